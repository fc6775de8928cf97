//! Operations on locks.

use alkstore::{Lock, Result};

use super::dice::Dice;
use super::seen::Seen;
use super::side::Side;
use crate::Harness;

pub(super) const LOCKS: [&str; 2] = ["l0", "l1"];
const OWNERS: [&str; 3] = ["o0", "o1", "o2"];

/// An operation on the lock of that number, or with the picked handle of one.
#[derive(Debug, Clone)]
pub(super) enum LockOperation {
    TryLock(usize, &'static str, i64),
    Renew(usize, i64),
    Release(usize),
}

impl LockOperation {
    pub(super) fn random(dice: &mut Dice) -> Self {
        match dice.below(6) {
            0..3 => Self::TryLock(dice.mostly_one(), dice.of(&OWNERS), dice.lease()),
            3..5 => Self::Renew(dice.pick(), dice.lease()),
            _ => Self::Release(dice.pick()),
        }
    }
}

impl<H: Harness> Side<'_, H> {
    pub(super) async fn lock(&mut self, store: usize, operation: &LockOperation) -> Result<Seen> {
        match *operation {
            LockOperation::TryLock(lock, owner, ttl) => {
                let locked = self.stores[store].try_lock(LOCKS[lock], owner, ttl).await?;
                Ok(self.kept.locked(lock, locked))
            }
            LockOperation::Renew(pick, ttl) => match picked(&self.kept.locks, pick) {
                Some(place) => Ok(Seen::Landed(self.kept.locks[place].renew(ttl).await?)),
                None => Ok(Seen::Nothing),
            },
            LockOperation::Release(pick) => match picked(&self.kept.locks, pick) {
                Some(place) => {
                    let lock = self.kept.locks.remove(place);
                    Ok(Seen::Landed(lock.release().await?))
                }
                None => Ok(Seen::Nothing),
            },
        }
    }
}

fn picked<E>(locks: &[Lock<E>], pick: usize) -> Option<usize> {
    (!locks.is_empty()).then(|| pick % locks.len())
}
