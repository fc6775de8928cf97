//! Taking deliveries in: one transaction each.

use alkstore::{BoxedEngine, BoxedStore, EnqueueOpts, Queue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run::{ACKS, CHANNEL, Tally};
use crate::{Failure, business};

/// Every so many deliveries one comes a second time, as senders do that missed the answer.
const REPEATED: usize = 10;

/// A line of the input.
#[derive(Deserialize)]
struct Delivery<'a> {
    delivery: &'a str,
    event: &'a str,
    payload: Value,
}

/// What the job, the event and the message carry.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) delivery: String,
    pub(crate) event: String,
    pub(crate) action: Option<String>,
}

/// Takes every line in and says which repository it is from.
pub(crate) async fn ingest(
    store: &BoxedStore,
    queue: &Queue<BoxedEngine>,
    lines: impl Iterator<Item = &str>,
    tally: &Tally,
    new_repository: impl Fn(&str),
) -> Result<(), Failure> {
    for (number, line) in lines.filter(|line| !line.trim().is_empty()).enumerate() {
        let delivery: Delivery<'_> = match serde_json::from_str(line) {
            Ok(delivery) => delivery,
            Err(error) => {
                tally.malformed(number + 1, &error);
                continue;
            }
        };
        let times = if (number + 1).is_multiple_of(REPEATED) {
            2
        } else {
            1
        };
        for _ in 0..times {
            if take_in(store, queue, &delivery).await? {
                tally.taken_in(1);
                new_repository(repository(&delivery.payload));
            } else {
                tally.rolled_back(1);
            }
        }
    }
    Ok(())
}

/// One delivery, one transaction; `false` if it was there already and nothing remains.
async fn take_in(
    store: &BoxedStore,
    queue: &Queue<BoxedEngine>,
    delivery: &Delivery<'_>,
) -> Result<bool, Failure> {
    let repository = repository(&delivery.payload);
    let work = Work {
        delivery: delivery.delivery.into(),
        event: delivery.event.into(),
        action: delivery.payload["action"].as_str().map(Into::into),
    };
    let mut tx = store.begin_tx().await?;
    // All of it is written before the business row, to show that all of it goes with it.
    let job = queue
        .enqueue_tx(&mut tx, &work, EnqueueOpts::default())
        .await?;
    tx.publish_with_key_tx(repository, Some(delivery.event), &work)
        .await?;
    tx.outbox_enqueue_tx(ACKS, EnqueueOpts::default(), &work)
        .await?;
    tx.notify_tx(CHANNEL, &delivery.delivery).await?;
    let connection = tx.connection();
    let is_new =
        business::insert_delivery(connection, delivery.delivery, delivery.event, repository)
            .await?;
    if !is_new {
        tx.rollback().await?;
        return Ok(false);
    }
    business::set_job(tx.connection(), delivery.delivery, job).await?;
    tx.commit().await?;
    Ok(true)
}

/// The stream of a delivery: its repository, or one for those that belong to none.
fn repository(payload: &Value) -> &str {
    payload["repository"]["full_name"]
        .as_str()
        .unwrap_or("no repository")
}
