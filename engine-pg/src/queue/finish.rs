//! The ends of claims.

use std::collections::HashSet;

use alkstore::Result;
use alkstore::engine::{At, ClaimEnd, ClaimId, Outcome, Results, Topic};
use sqlx::PgConnection;

use crate::Postgres;
use crate::backend::{Statement, patience};
use crate::notify::{had_room, wake_all, wake_later, wake_with_room};
use crate::queue::{bury, get, holds};
use crate::schema::{NOW, sum};

const DOING: &str = "ending claims";

/// One claim, done: the shortest way for what happens most.
pub(super) fn ack(schema: &str) -> Statement {
    let holds = holds(&format!("(SELECT {NOW})"));
    let patience = patience(5);
    let text = format!(
        "DELETE FROM {schema}.jobs
         WHERE id = $2 AND queue = $3 AND attempts = $4 AND {holds}
             AND {patience}
         RETURNING id"
    );
    Statement::waiting("ending a claim", text)
}

/// The claims `$2` of jobs of queue `$3` in their attempt `$4`, all done. Returns the ids of those
/// that landed.
///
/// The rows are not locked before they are deleted. Who ends the same claims in another order may
/// meet this in a circle: then the server ends one of the two, and it is tried again.
pub(super) fn ack_alike(schema: &str) -> Statement {
    let holds = holds(&format!("(SELECT {NOW})"));
    let patience = patience(5);
    let text = format!(
        "DELETE FROM {schema}.jobs
         WHERE id = ANY ($2::bigint[]) AND queue = $3 AND attempts = $4 AND {holds}
             AND {patience}
         RETURNING id"
    );
    Statement::waiting(DOING, text)
}

/// Claims by id `$2`, queue `$3` and attempts `$4`, all done. Returns as [`finish`] does.
///
/// Here and there the ids are a condition of their own: a join alone, planned while the table
/// was empty, reads all of it.
pub(super) fn ack_all(schema: &str) -> Statement {
    let holds = holds("(SELECT now FROM clock)");
    let patience = patience(5);
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         held AS MATERIALIZED (
             SELECT jobs.id, ordinal
             FROM unnest($2::bigint[], $3::text[], $4::bigint[])
                 WITH ORDINALITY AS given (id, queue, attempt, ordinal)
             JOIN {schema}.jobs ON jobs.id = given.id AND jobs.queue = given.queue
                 AND jobs.attempts = given.attempt
             WHERE jobs.id = ANY ($2) AND {holds} AND {patience}
             ORDER BY jobs.id
             FOR UPDATE OF jobs
         ),
         done AS (
             DELETE FROM {schema}.jobs WHERE id = ANY (ARRAY(SELECT id FROM held))
         )
         SELECT min(ordinal) FROM held GROUP BY id"
    );
    Statement::waiting(DOING, text)
}

/// Claims by id `$2`, queue `$3` and attempts `$4`, to end as `$5` says (done, again, dead),
/// after the delay `$6`, with the error `$7`. In somebody's transaction `$8` has what to notify
/// of for each. Returns the positions of those that landed.
///
/// Jobs are locked in the order of their ids, so that two batches never wait for each other in
/// a circle. Of a claim that comes twice the first lands.
pub(super) fn finish(schema: &str, channel: &str) -> Statement {
    let now = "(SELECT now FROM clock)";
    let holds = holds(now);
    let run_at = sum(now, "delay");
    let bury = bury(schema, "true");
    let wakes = "ARRAY(SELECT DISTINCT wake FROM landed WHERE outcome = 'again' AND wake <> '')";
    let wake = wake_all(channel, wakes);
    let patience = patience(9);
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         held AS MATERIALIZED (
             SELECT jobs.id, outcome, delay, error, wake, ordinal
             FROM unnest(
                 $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::text[],
                 $8::text[]
             ) WITH ORDINALITY AS given (
                 id, queue, attempt, outcome, delay, error, wake, ordinal
             )
             JOIN {schema}.jobs ON jobs.id = given.id AND jobs.queue = given.queue
                 AND jobs.attempts = given.attempt
             WHERE jobs.id = ANY ($2) AND {holds} AND {patience}
             ORDER BY jobs.id
             FOR UPDATE OF jobs
         ),
         landed AS MATERIALIZED (
             SELECT DISTINCT ON (id) * FROM held ORDER BY id, ordinal
         ),
         done AS (
             DELETE FROM {schema}.jobs
             WHERE id = ANY (ARRAY(SELECT id FROM landed WHERE outcome = 'done'))
         ),
         doomed (id, last_error) AS MATERIALIZED (
             SELECT id, error FROM landed WHERE outcome = 'dead'
         ),
         {bury},
         again AS (
             UPDATE {schema}.jobs SET run_at = {run_at}, last_error = error,
                 worker_id = NULL, claim_expires_at = NULL
             FROM landed
             WHERE jobs.id = landed.id AND outcome = 'again'
                 AND jobs.id = ANY (ARRAY(SELECT id FROM landed))
         )
         SELECT ordinal, {wake} FROM landed"
    );
    Statement::waiting(DOING, text)
}

/// Claims by id `$2`, queue `$3` and attempts `$4`, to give back as if they had never been.
/// Returns the queues that have jobs again.
pub(super) fn release(schema: &str) -> Statement {
    let holds = holds("(SELECT now FROM clock)");
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         held AS MATERIALIZED (
             SELECT jobs.id
             FROM unnest($2::bigint[], $3::text[], $4::bigint[]) AS given (id, queue, attempt)
             JOIN {schema}.jobs ON jobs.id = given.id AND jobs.queue = given.queue
                 AND jobs.attempts = given.attempt
             WHERE jobs.id = ANY ($2) AND {holds}
             ORDER BY jobs.id
             FOR UPDATE OF jobs
         )
         UPDATE {schema}.jobs SET worker_id = NULL, claim_expires_at = NULL, attempts = attempts - 1
         WHERE id = ANY (ARRAY(SELECT id FROM held))
         RETURNING queue"
    );
    Statement::new("giving claims back", text)
}

impl Postgres {
    pub(crate) async fn release(&self, claims: &[ClaimId<'_>]) -> Result<()> {
        let inner = self.inner();
        let arguments = || {
            inner
                .arguments()
                .add(claims.iter().map(|claim| claim.id).collect::<Vec<_>>())
                .add(claims.iter().map(|claim| claim.queue).collect::<Vec<_>>())
                .add(claims.iter().map(|claim| claim.attempt).collect::<Vec<_>>())
        };
        let rows = inner
            .run(At::Auto, &inner.statements.queue.release, arguments)
            .await?;
        let queues = rows.iter().map(|row| get(row, 0));
        for queue in queues.collect::<Result<HashSet<String>>>()? {
            wake_later(inner, Topic::queue(&queue));
        }
        Ok(())
    }

    async fn ack(&self, at: At<'_, PgConnection>, claim: &ClaimId<'_>) -> Result<bool> {
        let inner = self.inner();
        let arguments = || {
            inner
                .arguments()
                .add(claim.id)
                .add(claim.queue)
                .add(claim.attempt)
        };
        let rows = inner
            .run(at, &inner.statements.queue.ack, arguments)
            .await?;
        Ok(!rows.is_empty())
    }

    async fn ack_alike(
        &self,
        at: At<'_, PgConnection>,
        queue: &str,
        attempt: i64,
        ends: &[ClaimEnd<'_>],
    ) -> Result<Results<bool>> {
        let inner = self.inner();
        let ids: Vec<_> = ends.iter().map(|end| end.claim.id).collect();
        let arguments = || inner.arguments().add(&ids[..]).add(queue).add(attempt);
        let rows = inner
            .run(at, &inner.statements.queue.ack_alike, arguments)
            .await?;
        let landed = rows.iter().map(|row| get(row, 0));
        // Of a claim that comes twice the first lands.
        let mut landed = landed.collect::<Result<HashSet<i64>>>()?;
        Ok(ids.iter().map(|id| landed.remove(id)).collect())
    }

    pub(crate) async fn finish(
        &self,
        at: At<'_, PgConnection>,
        ends: &[ClaimEnd<'_>],
    ) -> Result<Results<bool>> {
        match ends {
            [] => return Ok(Results::new()),
            [
                ClaimEnd {
                    claim,
                    outcome: Outcome::Done,
                },
            ] => {
                return Ok(Results::from([self.ack(at, claim).await?]));
            }
            _ => {}
        }
        let all_done = ends.iter().all(|end| end.outcome == Outcome::Done);
        let ClaimId { queue, attempt, .. } = ends[0].claim;
        let alike = |end: &ClaimEnd<'_>| end.claim.queue == queue && end.claim.attempt == attempt;
        if all_done && ends.iter().all(alike) {
            return self.ack_alike(at, queue, attempt, ends).await;
        }
        let inner = self.inner();
        let in_tx = matches!(at, At::In(_));
        let wake = |end: &ClaimEnd<'_>| {
            if in_tx {
                crate::notify::for_anyone(Topic::queue(end.claim.queue))
            } else {
                String::new()
            }
        };
        let arguments = || {
            let arguments = inner
                .arguments()
                .add(ends.iter().map(|end| end.claim.id).collect::<Vec<_>>())
                .add(ends.iter().map(|end| end.claim.queue).collect::<Vec<_>>())
                .add(ends.iter().map(|end| end.claim.attempt).collect::<Vec<_>>());
            if all_done {
                return arguments;
            }
            let (mut outcomes, mut delays, mut errors) = (Vec::new(), Vec::new(), Vec::new());
            for end in ends {
                let (outcome, delay, error) = match end.outcome {
                    Outcome::Done => ("done", 0, ""),
                    Outcome::Again { delay, error } => ("again", delay, error),
                    Outcome::Dead { error } => ("dead", 0, error),
                };
                outcomes.push(outcome);
                delays.push(delay);
                errors.push(error);
            }
            let wakes = ends.iter().map(wake).collect::<Vec<_>>();
            arguments.add(outcomes).add(delays).add(errors).add(wakes)
        };
        let statements = &inner.statements.queue;
        let statement = if all_done {
            &statements.ack_all
        } else {
            &statements.finish
        };
        let rows = inner.run(at, statement, arguments).await?;
        if in_tx && !had_room(&rows) {
            wake_with_room(inner, ends.iter().map(wake).filter(|wake| !wake.is_empty()));
        }
        let mut landed = Results::from_elem(false, ends.len());
        for row in &rows {
            let position: i64 = get(row, 0)?;
            let index = usize::try_from(position - 1).unwrap_or(usize::MAX);
            if let (Some(landed), Some(end)) = (landed.get_mut(index), ends.get(index)) {
                *landed = true;
                if !in_tx && matches!(end.outcome, Outcome::Again { .. }) {
                    wake_later(inner, Topic::queue(end.claim.queue));
                }
            }
        }
        Ok(landed)
    }
}
