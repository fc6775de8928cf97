//! Doing what waits on a lane.

use std::marker::PhantomData;
use std::sync::Arc;

use super::lanes::Call;
use super::pulse::Pulse;
use super::{Failed, Work};
use crate::{Error, Result};

/// Does what waits on a lane, and what comes meanwhile, until nobody waits.
pub(super) async fn serve<E, W>(engine: E, lane: String, holder: Arc<Pulse>)
where
    E: Send + Sync,
    W: Work<E>,
{
    let lanes = W::lanes(&engine);
    let _serving = Serving::<E, W> {
        engine: &engine,
        lane: &lane,
        holder,
        work: PhantomData,
    };
    loop {
        tokio::task::yield_now().await;
        let Some(since) = lanes.oldest(&lane) else {
            return;
        };
        // Who waits is taken once there is a turn: nobody is left out who came by then.
        match W::turn(&engine, since).await {
            Ok(turn) => {
                let calls = lanes.next(&lane, W::joins);
                lanes.crowd.note(calls.len());
                batch::<E, W>(&engine, turn, calls).await;
            }
            Err(error) => {
                if let Some(call) = lanes.first(&lane) {
                    call.done.send(Err(error)).ok();
                }
            }
        }
    }
}

/// Being the one who serves.
struct Serving<'s, E, W: Work<E>> {
    engine: &'s E,
    lane: &'s str,
    holder: Arc<Pulse>,
    work: PhantomData<W>,
}

impl<E, W: Work<E>> Drop for Serving<'_, E, W> {
    fn drop(&mut self) {
        // If the runtime has ended first, the lane is free, and who waits is told.
        W::lanes(self.engine).leave(self.lane, &self.holder);
    }
}

async fn batch<E, W>(engine: &E, turn: W::Turn, calls: Vec<Call<W, W::Output>>)
where
    E: Send + Sync,
    W: Work<E>,
{
    let (mut items, mut callers) = (Vec::new(), Vec::with_capacity(calls.len()));
    for call in calls {
        callers.push((call.items.len(), call.since, call.done));
        items.extend(call.items);
    }
    match W::run(engine, turn, &items).await {
        Ok(outputs) if outputs.len() == items.len() => {
            let mut outputs = outputs.into_iter();
            for (count, _, done) in callers {
                done.send(Ok(outputs.by_ref().take(count).collect())).ok();
            }
        }
        Ok(_) => {
            let error = Error::database("the engine broke its contract", "a result is missing");
            tell(callers.into_iter().map(|(_, _, done)| done), error);
        }
        Err(Failed::Broken(error)) => tell(callers.into_iter().map(|(_, _, done)| done), error),
        Err(Failed::Undone(error)) => {
            // One of them cannot be done, and must not keep the others from it.
            if let [_] = callers[..] {
                tell(callers.into_iter().map(|(_, _, done)| done), error);
                return;
            }
            let mut rest = &items[..];
            for (count, since, done) in callers {
                let (own, others) = rest.split_at(count);
                rest = others;
                let alone = async {
                    let turn = W::turn(engine, since).await?;
                    match W::run(engine, turn, own).await {
                        Ok(outputs) => Ok(outputs),
                        Err(Failed::Undone(error) | Failed::Broken(error)) => Err(error),
                    }
                };
                done.send(alone.await).ok();
            }
        }
    }
}

type Done<O> = tokio::sync::oneshot::Sender<Result<Vec<O>>>;

/// Tells all of them of one error.
fn tell<O>(mut callers: impl Iterator<Item = Done<O>>, error: Error) {
    let first = callers.next();
    for done in callers {
        done.send(Err(error.share())).ok();
    }
    if let Some(done) = first {
        done.send(Err(error)).ok();
    }
}
