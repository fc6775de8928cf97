//! Locks in SQL.

use alkstore::Result;
use alkstore::engine::{At, Locks};

use crate::Postgres;
use crate::backend::Statement;
use crate::queue::get;
use crate::schema::{NOW, sum};

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
        let clock = format!("clock AS MATERIALIZED (SELECT {NOW} AS now)");
        let now = "(SELECT now FROM clock)";
        let held = format!("known.expires_at >= {now}");
        let own = format!("known.owner = excluded.owner AND {held}");
        let deadline = sum(now, "$4");
        // Tokens count the acquisitions of a name, under the lock of its row: a sequence could
        // hand out the greater one first.
        let acquire = format!(
            "WITH {clock}
             INSERT INTO {schema}.locks AS known (name, owner, token, expires_at)
             VALUES ($2, $3, 1, {deadline})
             ON CONFLICT (name) DO UPDATE SET
                 owner = excluded.owner,
                 token = CASE WHEN {own} THEN known.token ELSE known.token + 1 END,
                 expires_at = CASE WHEN {own} THEN known.expires_at ELSE excluded.expires_at END
             WHERE {own} OR known.expires_at IS NULL OR known.expires_at < {now}
             RETURNING token"
        );
        let renew = format!(
            "WITH {clock}
             UPDATE {schema}.locks SET expires_at = {deadline}
             WHERE name = $2 AND token = $3 AND expires_at >= {now}
             RETURNING token"
        );
        let resume = format!(
            "WITH {clock}
             UPDATE {schema}.locks SET expires_at = {deadline}
             WHERE name = $2 AND token = $3 AND expires_at IS NOT NULL
             RETURNING token"
        );
        let release = format!(
            "UPDATE {schema}.locks SET expires_at = NULL
             WHERE name = $2 AND token = $3 AND expires_at >= (SELECT {NOW})
             RETURNING token"
        );
        Self {
            acquire: Statement::new("acquiring a lock", acquire),
            renew: Statement::new("renewing a lock", renew),
            resume: Statement::new("resuming a lock", resume),
            release: Statement::new("releasing a lock", release),
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
