//! Locks in SQL.

use alkstore::Result;
use alkstore::engine::{At, Locks};

use crate::Postgres;
use crate::backend::{Statement, patience};
use crate::queue::get;
use crate::schema::{CLOCK, NOW, sum};

/// The statements of this mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    acquire: Statement,
    renew: Statement,
    resume: Statement,
    release: Statement,
}

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        let own = "known.owner = excluded.owner AND known.expires_at >= clock.now";
        let deadline = sum("clock.now", "$4");
        // Deadlines count from when the row is had: who waited for it would get a lock that has
        // lapsed. Tokens count the acquisitions of a name, under the lock of its row: a sequence
        // could hand out the greater one first.
        let acquire = format!(
            "INSERT INTO {schema}.locks AS known (name, owner, token, expires_at)
             SELECT $2::text, $3::text, 1, {deadline}
             FROM (SELECT {CLOCK} AS now) AS clock WHERE {patience}
             ON CONFLICT (name) DO UPDATE SET (owner, token, expires_at) = (
                 SELECT excluded.owner,
                     CASE WHEN {own} THEN known.token ELSE known.token + 1 END,
                     CASE WHEN {own} THEN known.expires_at ELSE {deadline} END
                 FROM (SELECT {CLOCK} AS now) AS clock
             )
             WHERE known.owner = excluded.owner OR known.expires_at IS NULL
                 OR known.expires_at < {CLOCK}
             RETURNING token",
            patience = patience(5)
        );
        let renew = format!(
            "WITH held AS MATERIALIZED (
                 SELECT name FROM {schema}.locks
                 WHERE name = $2 AND token = $3 AND {patience} FOR UPDATE
             ),
             clock AS MATERIALIZED (SELECT {CLOCK} AS now FROM held)
             UPDATE {schema}.locks SET expires_at = {deadline}
             FROM clock WHERE name = $2 AND token = $3 AND expires_at >= clock.now
             RETURNING token",
            patience = patience(5)
        );
        let resume = format!(
            "WITH held AS MATERIALIZED (
                 SELECT name FROM {schema}.locks
                 WHERE name = $2 AND token = $3 AND {patience} FOR UPDATE
             ),
             clock AS MATERIALIZED (SELECT {CLOCK} AS now FROM held)
             UPDATE {schema}.locks SET expires_at = {deadline}
             FROM clock WHERE name = $2 AND token = $3 AND expires_at IS NOT NULL
             RETURNING token",
            patience = patience(5)
        );
        let release = format!(
            "UPDATE {schema}.locks SET expires_at = NULL
             WHERE name = $2 AND token = $3 AND expires_at >= (SELECT {NOW}) AND {patience}
             RETURNING token",
            patience = patience(4)
        );
        Self {
            acquire: Statement::waiting("acquiring a lock", acquire),
            renew: Statement::waiting("renewing a lock", renew),
            resume: Statement::waiting("resuming a lock", resume),
            release: Statement::waiting("releasing a lock", release),
        }
    }
}

impl Locks for Postgres {
    async fn acquire_lock(&self, name: &str, owner: &str, ttl: i64) -> Result<Option<i64>> {
        let inner = self.inner();
        let arguments = || inner.arguments().add(name).add(owner).add(ttl);
        let rows = inner
            .run(At::Auto, &inner.statements.lock.acquire, arguments)
            .await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    async fn renew_lock(&self, name: &str, token: i64, ttl: i64) -> Result<bool> {
        let inner = self.inner();
        let arguments = || inner.arguments().add(name).add(token).add(ttl);
        let rows = inner
            .run(At::Auto, &inner.statements.lock.renew, arguments)
            .await?;
        Ok(!rows.is_empty())
    }

    async fn resume_lock(&self, name: &str, token: i64, ttl: i64) -> Result<bool> {
        let inner = self.inner();
        let arguments = || inner.arguments().add(name).add(token).add(ttl);
        let rows = inner
            .run(At::Auto, &inner.statements.lock.resume, arguments)
            .await?;
        Ok(!rows.is_empty())
    }

    async fn release_lock(&self, name: &str, token: i64) -> Result<bool> {
        let inner = self.inner();
        let arguments = || inner.arguments().add(name).add(token);
        let rows = inner
            .run(At::Auto, &inner.statements.lock.release, arguments)
            .await?;
        Ok(!rows.is_empty())
    }
}
