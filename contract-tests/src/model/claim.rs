//! Operations of those who hold a claim, or did.

use alkstore::Result;

use super::dice::Dice;
use super::seen::Seen;
use super::side::Side;
use crate::Harness;

/// An operation of the picked handle, which may long be stale.
#[derive(Debug, Clone)]
pub(super) enum ClaimOperation {
    Ack(usize),
    Retry {
        handle: usize,
        error: &'static str,
        delay: Option<i64>,
        luck: u64,
    },
    Fail(usize, Option<&'static str>),
    Heartbeat(usize, i64),
}

impl ClaimOperation {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let handle = dice.pick();
        match dice.below(8) {
            0 => Self::Ack(handle),
            1..4 => Self::Retry {
                handle,
                error: dice.of(&["boom", "", "nul \0 é"]),
                delay: dice.maybe(Dice::any_seconds),
                luck: dice.luck(),
            },
            4 => Self::Fail(handle, dice.of(&[None, Some("broken")])),
            _ => Self::Heartbeat(handle, dice.lease()),
        }
    }
}

impl<H: Harness> Side<'_, H> {
    pub(super) async fn claim(&mut self, operation: &ClaimOperation) -> Result<Seen> {
        let landed = match *operation {
            ClaimOperation::Ack(pick) => match self.kept.take_handle(pick) {
                Some(handle) => handle.ack().await?,
                None => return Ok(Seen::Nothing),
            },
            ClaimOperation::Retry {
                handle,
                error,
                delay,
                luck,
            } => match self.kept.take_handle(handle) {
                Some(handle) => {
                    let chance = Chance::set(luck);
                    let landed = handle.retry(error, delay).await;
                    chance.free();
                    landed?
                }
                None => return Ok(Seen::Nothing),
            },
            ClaimOperation::Fail(pick, error) => match self.kept.take_handle(pick) {
                Some(handle) => handle.fail(error).await?,
                None => return Ok(Seen::Nothing),
            },
            ClaimOperation::Heartbeat(pick, extend) => match self.kept.handle(pick) {
                Some(handle) => handle.heartbeat(extend).await?,
                None => return Ok(Seen::Nothing),
            },
        };
        Ok(Seen::Landed(landed))
    }
}

/// The thread's chance, set: the library draws a retry's delay from it in the same poll, so
/// both sides draw the same one.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn set(luck: u64) -> Self {
        let before = Self(fastrand::u64(..));
        fastrand::seed(luck);
        before
    }

    /// Chance is chance again: engines may name their processes with it.
    pub(super) fn free(self) {
        fastrand::seed(self.0);
    }
}
