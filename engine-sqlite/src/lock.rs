//! Named locks.

use alkstore::Result;
use alkstore::engine::Locks;

use crate::Sqlite;
use crate::error::Answer;
use crate::exec::{Exec, Inline, Value, ready};

impl Locks for Sqlite {
    async fn acquire_lock(&self, name: &str, owner: &str, ttl: i64) -> Result<Option<i64>> {
        const DOING: &str = "acquiring a lock";
        let holder = |x: &mut Inline<'_>, now| ready(holder(x, now, name));
        // Who comes too late only reads: losers neither write nor wait for a writer.
        if let Some(held) = self.inner().read(DOING, holder).await? {
            return Ok(held.token_for(owner));
        }
        let acquire = |x: &mut Inline<'_>, now| ready(acquire(x, now, name, owner, ttl));
        match self.inner().write(DOING, acquire, |_, _| {}).await {
            // The writer was busy for too long. Whoever got the lock meanwhile has won it.
            Err(error) if error.is_transient() => match self.inner().read(DOING, holder).await? {
                Some(held) => Ok(held.token_for(owner)),
                None => Err(error),
            },
            acquired => acquired,
        }
    }

    async fn renew_lock(&self, name: &str, token: i64, ttl: i64) -> Result<bool> {
        let renew = |x: &mut Inline<'_>, now: i64| {
            let until = Value::Int(now.saturating_add(ttl));
            let values = [Value::Text(name), Value::Int(token), Value::Int(now), until];
            ready(x.execute(RENEW, &values))
        };
        Ok(self
            .inner()
            .write("renewing a lock", renew, |_, _| {})
            .await?
            .changes
            > 0)
    }

    async fn resume_lock(&self, name: &str, token: i64, ttl: i64) -> Result<bool> {
        let resume = |x: &mut Inline<'_>, now: i64| {
            let until = Value::Int(now.saturating_add(ttl));
            ready(x.execute(RESUME, &[Value::Text(name), Value::Int(token), until]))
        };
        Ok(self
            .inner()
            .write("resuming a lock", resume, |_, _| {})
            .await?
            .changes
            > 0)
    }

    async fn release_lock(&self, name: &str, token: i64) -> Result<bool> {
        let release = |x: &mut Inline<'_>, now: i64| {
            let values = [Value::Text(name), Value::Int(token), Value::Int(now)];
            ready(x.execute(RELEASE, &values))
        };
        Ok(self
            .inner()
            .write("releasing a lock", release, |_, _| {})
            .await?
            .changes
            > 0)
    }
}

const HOLDER: &str =
    "SELECT token, owner FROM __alkstore_locks WHERE name = ?1 AND expires_at >= ?2";
const CLEAR: &str = "DELETE FROM __alkstore_locks WHERE name = ?1";
const ACQUIRE: &str = "INSERT INTO __alkstore_locks (name, owner, expires_at) VALUES (?1, ?2, ?3)";
const RENEW: &str = "UPDATE __alkstore_locks SET expires_at = ?4
     WHERE name = ?1 AND token = ?2 AND expires_at >= ?3";
const RESUME: &str = "UPDATE __alkstore_locks SET expires_at = ?3 WHERE name = ?1 AND token = ?2";
const RELEASE: &str =
    "DELETE FROM __alkstore_locks WHERE name = ?1 AND token = ?2 AND expires_at >= ?3";

/// An acquisition that has not lapsed.
struct Held {
    token: i64,
    owner: String,
}

impl Held {
    /// Its token, for its owner.
    fn token_for(&self, owner: &str) -> Option<i64> {
        (self.owner == owner).then_some(self.token)
    }
}

async fn holder<X: Exec>(x: &mut X, now: i64, name: &str) -> Answer<Option<Held>> {
    let values = [Value::Text(name), Value::Int(now)];
    let held = |row: &crate::exec::Row<'_>| {
        Ok(Held {
            token: row.int(0)?,
            owner: row.text(1)?,
        })
    };
    Ok(x.rows(HOLDER, &values, held).await?.pop())
}

async fn acquire<X: Exec>(
    x: &mut X,
    now: i64,
    name: &str,
    owner: &str,
    ttl: i64,
) -> Answer<Option<i64>> {
    if let Some(held) = holder(x, now, name).await? {
        return Ok(held.token_for(owner));
    }
    x.execute(CLEAR, &[Value::Text(name)]).await?;
    let until = Value::Int(now.saturating_add(ttl));
    let acquired = x
        .execute(ACQUIRE, &[Value::Text(name), Value::Text(owner), until])
        .await?;
    Ok(Some(acquired.last_id))
}
