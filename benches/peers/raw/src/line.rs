//! Doing together what several tasks wait for.

use std::sync::{Mutex, PoisonError};

use peer_harness::Answer;
use tokio::sync::oneshot;

/// Those who wait. Whoever finds nobody serving serves all who wait by then, themselves included,
/// and goes on until nobody does.
pub(crate) struct Line<S, A> {
    serving: tokio::sync::Mutex<()>,
    waiting: Mutex<Vec<(S, oneshot::Sender<A>)>>,
}

impl<S, A> Line<S, A> {
    pub(crate) fn new() -> Self {
        Self {
            serving: tokio::sync::Mutex::new(()),
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Has `step` done with others. `serve` does steps and gives an answer for each, in their
    /// order, once all are committed.
    pub(crate) async fn through<F>(&self, step: S, serve: impl Fn(Vec<S>) -> F) -> Answer<A>
    where
        F: Future<Output = Answer<Vec<A>>>,
    {
        let (sender, mut receiver) = oneshot::channel();
        self.waiting().push((step, sender));
        let mut has_served = false;
        loop {
            // Whoever can run now joins.
            tokio::task::yield_now().await;
            // Who was served leaves the others to who served: they would be a small group.
            if !has_served && let Ok(answer) = receiver.try_recv() {
                return Ok(answer);
            }
            // Who serves looks once more after it has let go: nobody is left standing.
            let Ok(serving) = self.serving.try_lock() else {
                break;
            };
            let (steps, senders): (Vec<_>, Vec<_>) = self.waiting().drain(..).unzip();
            if !steps.is_empty() {
                has_served = true;
                let answers = serve(steps).await?;
                drop(serving);
                for (sender, answer) in senders.into_iter().zip(answers) {
                    // Whoever has stopped waiting wants no answer.
                    sender.send(answer).ok();
                }
            }
            if self.waiting().is_empty() {
                break;
            }
        }
        receiver.await.map_err(|_| "who served has failed".into())
    }

    /// Those who wait. A task that panicked ends the run anyway.
    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<(S, oneshot::Sender<A>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
