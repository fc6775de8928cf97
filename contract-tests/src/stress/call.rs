//! Ways to make a call: to its end, half-way, or with pauses.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use alkstore::Result;
use fastrand::Rng;
use tokio::time::{sleep, timeout};

use super::LIMIT;

/// The end of a call.
pub(super) enum End<T> {
    Done(T),
    /// Its future was dropped.
    Dropped,
    /// It failed, or took too long.
    Failed(String),
}

/// Makes a call as chance has it.
pub(super) async fn make<T>(dice: &mut Rng, call: impl Future<Output = Result<T>>) -> End<T> {
    let mut call = pin!(call);
    match dice.u8(..8) {
        0 => {
            for _ in 0..dice.u8(1..6) {
                if let Some(result) = poll_once(call.as_mut()).await {
                    return ended(result);
                }
                tokio::task::yield_now().await;
            }
            End::Dropped
        }
        1 => {
            let limit = Duration::from_micros(dice.u64(..3000));
            timeout(limit, call).await.map_or(End::Dropped, ended)
        }
        2 => {
            for _ in 0..dice.u8(1..4) {
                if let Some(result) = poll_once(call.as_mut()).await {
                    return ended(result);
                }
                // It is not polled meanwhile.
                sleep(Duration::from_micros(dice.u64(..3000))).await;
            }
            to_the_end(call).await
        }
        _ => to_the_end(call).await,
    }
}

/// Makes a call to its end.
pub(super) async fn to_the_end<T>(call: impl Future<Output = Result<T>>) -> End<T> {
    match timeout(LIMIT, call).await {
        Ok(result) => ended(result),
        Err(_) => End::Failed(format!("a call did not end within {LIMIT:?}")),
    }
}

fn ended<T>(result: Result<T>) -> End<T> {
    match result {
        Ok(value) => End::Done(value),
        Err(error) => End::Failed(format!("a call failed: {error:?}")),
    }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
