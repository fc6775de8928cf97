//! Locks: one holder until the deadline, and a token that only grows.

use alkstore::Result;
use alkstore::engine::{At, Locks};

use super::database::Work;
use super::{Fault, Reference};

/// A lock that was acquired at least once.
#[derive(Debug, Clone)]
pub(super) struct Record {
    owner: String,
    /// The token of the last acquisition; it stays when that ends.
    token: i64,
    /// The deadline of the acquisition, unless it was released.
    held_until: Option<i64>,
}

impl Locks for Reference {
    async fn acquire_lock(&self, name: &str, owner: &str, ttl: i64) -> Result<Option<i64>> {
        self.write(At::Auto, |work| work.acquire_lock(name, owner, ttl))
            .await
    }

    async fn renew_lock(&self, name: &str, token: i64, ttl: i64) -> Result<bool> {
        self.write(At::Auto, |work| work.renew_lock(name, token, ttl))
            .await
    }

    async fn resume_lock(&self, name: &str, token: i64, ttl: i64) -> Result<bool> {
        self.write(At::Auto, |work| work.resume_lock(name, token, ttl))
            .await
    }

    async fn release_lock(&self, name: &str, token: i64) -> Result<bool> {
        self.write(At::Auto, |work| work.release_lock(name, token))
            .await
    }
}

impl Work<'_> {
    fn acquire_lock(&mut self, name: &str, owner: &str, ttl: i64) -> Option<i64> {
        let until = self.rules.after(ttl);
        let (rules, name) = (self.rules, self.lock_name(name));
        let record = self
            .state
            .locks
            .entry(name.into())
            .or_insert_with(|| Record {
                owner: String::new(),
                token: 0,
                held_until: None,
            });
        let held = record
            .held_until
            .is_some_and(|deadline| !rules.lock_lapsed(deadline));
        if held && record.owner != owner && !rules.breaks(Fault::LockGivenTwice) {
            return None;
        }
        if held && record.owner == owner {
            match rules.fault {
                Some(Fault::SameOwnerRefused) => return None,
                Some(Fault::ReaskLengthens) => record.held_until = Some(until),
                Some(Fault::ReaskChangesToken) => record.token += 1,
                _ => {}
            }
            return Some(record.token);
        }
        let token = record.token + 1;
        *record = Record {
            owner: owner.into(),
            token,
            held_until: Some(until),
        };
        Some(token)
    }

    fn renew_lock(&mut self, name: &str, token: i64, ttl: i64) -> bool {
        let (rules, until) = (self.rules, self.rules.after(ttl));
        let Some(record) = self.state.locks.get_mut(self.lock_name(name)) else {
            return false;
        };
        let Some(deadline) = record.held_until else {
            return false;
        };
        let lapsed = rules.lock_lapsed(deadline) && !rules.breaks(Fault::RenewRevives);
        let stale = record.token != token && !rules.breaks(Fault::StaleTokenRenews);
        if lapsed || stale {
            return false;
        }
        record.held_until = Some(match rules.fault {
            Some(Fault::RenewAdds) => deadline.saturating_add(ttl),
            _ => until,
        });
        true
    }

    fn resume_lock(&mut self, name: &str, token: i64, ttl: i64) -> bool {
        let (rules, until) = (self.rules, self.rules.after(ttl));
        let Some(record) = self.state.locks.get_mut(self.lock_name(name)) else {
            return false;
        };
        let acquired_since = record.token != token && !rules.breaks(Fault::ResumeTakesBack);
        let Some(deadline) = record.held_until.filter(|_| !acquired_since) else {
            return false;
        };
        if rules.lock_lapsed(deadline) && rules.breaks(Fault::LapsedLockEnds) {
            return false;
        }
        record.held_until = Some(until);
        true
    }

    fn release_lock(&mut self, name: &str, token: i64) -> bool {
        let (rules, name) = (self.rules, self.lock_name(name));
        let Some(record) = self.state.locks.get_mut(name) else {
            return false;
        };
        let Some(deadline) = record.held_until else {
            return false;
        };
        let lapsed = rules.lock_lapsed(deadline) && !rules.breaks(Fault::LapsedLockReleases);
        let stale = record.token != token && !rules.breaks(Fault::StaleTokenReleases);
        if lapsed || stale {
            return false;
        }
        match rules.fault {
            Some(Fault::ReleaseIgnored) => {}
            Some(Fault::TokenReused) => {
                self.state.locks.remove(name);
            }
            _ => record.held_until = None,
        }
        true
    }

    fn lock_name<'n>(&self, name: &'n str) -> &'n str {
        match self.rules.fault {
            Some(Fault::LocksShareName) => "",
            Some(Fault::LockNamesTrimmed) => name.trim_end(),
            _ => name,
        }
    }
}
