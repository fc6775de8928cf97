//! What a listener costs to whom nothing happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::wake::{Ear, start_listening};
use crate::{Answer, Outcome, Peer};

/// What a start leaves to be done is done by then.
const SETTLE: Duration = Duration::from_secs(1);

/// Listens in this process for so long and tells how busy it was.
pub(crate) async fn measure<P: Peer>(peer: &Arc<P>, time: Duration) -> Answer<Outcome> {
    let (ear, mut hearing) = Ear::new();
    start_listening(peer, ear);
    hearing.until_ready().await?;
    tokio::time::sleep(SETTLE).await;
    let (start, before) = (Instant::now(), busy()?);
    tokio::time::sleep(time).await;
    let (time, busy) = (start.elapsed(), busy()?.saturating_sub(before));
    let percent = 100.0 * busy.as_secs_f64() / time.as_secs_f64();
    Ok(Outcome::new(1, time).with("cpu_percent", json!(percent)))
}

/// The time that all threads of this process were on a core. The kernel's other counts are in
/// steps of ten milliseconds: a tenth of a per cent of the ten seconds that are looked at.
fn busy() -> Answer<Duration> {
    let mut busy = Duration::ZERO;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may have ended since.
        if let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) {
            let nanoseconds = text.split_whitespace().next().ok_or("no time in there")?;
            busy += Duration::from_nanos(nanoseconds.parse()?);
        }
    }
    Ok(busy)
}
