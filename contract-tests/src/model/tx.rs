//! Transactions: a list of operations, and an end.

use std::mem;
use std::sync::{Arc, Mutex};

use alkstore::{Result, Tx};

use super::dice::Dice;
use super::seen::Seen;
use super::side::{Kept, Side};
use super::step::{Step, Stepper};
use crate::Harness;

/// How a transaction comes to be and how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    Commit,
    Rollback,
    Drop,
    /// The application's own, committed or not.
    Joined(bool),
}

/// A transaction. If one of its business writes fails, it ends there and is rolled back.
#[derive(Debug, Clone)]
pub(super) struct TxOperation {
    frame: Frame,
    steps: Vec<Step>,
}

impl TxOperation {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let frames = [
            Frame::Commit,
            Frame::Commit,
            Frame::Commit,
            Frame::Rollback,
            Frame::Drop,
            Frame::Joined(true),
            Frame::Joined(true),
            Frame::Joined(false),
        ];
        Self {
            frame: dice.of(&frames),
            steps: dice.some(7, Step::random),
        }
    }
}

impl<H: Harness> Side<'_, H> {
    pub(super) async fn tx(&mut self, store: usize, operation: &TxOperation) -> Result<Seen> {
        let before = self.kept.jobs.len();
        let outside = self.stores[1 - store].clone();
        let ended = match operation.frame {
            Frame::Joined(commit) => self.join(store, operation, commit).await,
            frame => {
                let mut tx = self.stores[store].begin_tx().await?;
                let mut stepper = Stepper::<H>::new(mem::take(&mut self.kept), outside);
                let whole = stepper.run(&mut tx, &operation.steps, Some(self.h)).await;
                let seen;
                (self.kept, seen) = stepper.end();
                let commit = whole && frame == Frame::Commit;
                let ended = end(tx, commit, frame).await;
                ended.map(|()| (seen, commit))
            }
        };
        let kept = matches!(ended, Ok((_, true)));
        if !kept {
            // Their ids may be given again.
            self.kept.jobs.truncate(before);
        }
        ended.map(|(seen, _)| Seen::All(seen))
    }

    /// The steps in a transaction of the application's own: what was seen, and whether they
    /// were committed.
    async fn join(
        &mut self,
        store: usize,
        operation: &TxOperation,
        commit: bool,
    ) -> Result<(Vec<Seen>, bool)> {
        let joining = self.stores[store].clone();
        let (steps, outside) = (operation.steps.clone(), self.stores[1 - store].clone());
        let mut stepper = Stepper::<H>::new(mem::take(&mut self.kept), outside);
        // The body's future can borrow nothing but the connection.
        let report = Arc::new(Mutex::new(None::<(Kept<H::Engine>, Vec<Seen>, bool)>));
        let slot = Arc::clone(&report);
        let ran = self.h.with_own_tx(
            commit,
            Box::new(move |connection| {
                Box::pin(async move {
                    let mut tx = joining.join_tx(connection);
                    let whole = stepper.run(&mut tx, &steps, None).await;
                    let (kept, seen) = stepper.end();
                    slot.lock().unwrap().replace((kept, seen, whole));
                    let broken = || alkstore::Error::database("a business write", "it failed");
                    if whole { Ok(()) } else { Err(broken()) }
                })
            }),
        );
        let ran = ran.await;
        let Some((kept, seen, whole)) = report.lock().unwrap().take() else {
            panic!("the application's transaction did not begin: {ran:?}");
        };
        self.kept = kept;
        if whole {
            ran?;
        }
        Ok((seen, whole && commit))
    }
}

async fn end<E: alkstore::Engine>(tx: Tx<E>, commit: bool, frame: Frame) -> Result<()> {
    if commit {
        tx.commit().await
    } else if frame == Frame::Drop {
        drop(tx);
        Ok(())
    } else {
        tx.rollback().await
    }
}
