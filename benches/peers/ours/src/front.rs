//! Jobs of a higher priority that nobody can claim.

use std::time::Duration;

use alkstore::{Engine, EnqueueOpts, Queue};
use peer_harness::{Answer, Front, PAYLOAD, ROWS};

/// Far enough from now for any run.
const LATER: Duration = Duration::from_secs(3600);

/// Soon, but after the last of the jobs is there.
const SOON: Duration = Duration::from_secs(1);

/// Puts them into the queue, which is empty.
pub(crate) async fn put<E: Engine>(queue: &Queue<E>, front: Front, jobs: usize) -> Answer<()> {
    let higher = EnqueueOpts::default().priority(10);
    let options = match front {
        Front::Delayed => higher.delay(LATER),
        Front::Processing => higher,
        Front::Dead | Front::Expired => higher.expires(SOON),
    };
    let mut left = jobs;
    while left > 0 {
        let payloads = vec![PAYLOAD; ROWS.min(left)];
        queue.enqueue_batch(&payloads, options.clone()).await?;
        left -= payloads.len();
    }
    match front {
        Front::Delayed => {}
        Front::Processing => claim(queue, jobs).await?,
        // A second is over within two.
        Front::Expired => tokio::time::sleep(2 * SOON).await,
        Front::Dead => {
            tokio::time::sleep(2 * SOON).await;
            while queue.sweep_expired().await?.expired > 0 {}
        }
    }
    Ok(())
}

/// Claims them for somebody who does not finish.
async fn claim<E: Engine>(queue: &Queue<E>, jobs: usize) -> Answer<()> {
    let mut left = i64::try_from(jobs)?;
    while left > 0 {
        let claimed = queue
            .claim_batch("busy", left.min(i64::try_from(ROWS)?))
            .await?;
        if claimed.is_empty() {
            return Err("there are fewer jobs than were enqueued".into());
        }
        left -= i64::try_from(claimed.len())?;
    }
    Ok(())
}
