-- Pending jobs stand in three lines, so that no claim walks past jobs that it may not take.
DROP INDEX IF EXISTS __alkstore_jobs_pending;
-- Those that were ready when they were enqueued, and do not expire.
CREATE INDEX IF NOT EXISTS __alkstore_jobs_ready
    ON __alkstore_jobs (queue, priority DESC, run_at, id)
    WHERE claim_expires_at IS NULL AND expires_at IS NULL AND run_at <= created_at;
-- Those that were not: by the order of claims, and by the time at which they are ready.
CREATE INDEX IF NOT EXISTS __alkstore_jobs_delayed
    ON __alkstore_jobs (queue, priority DESC, run_at, id)
    WHERE claim_expires_at IS NULL AND expires_at IS NULL AND run_at > created_at;
CREATE INDEX IF NOT EXISTS __alkstore_jobs_due
    ON __alkstore_jobs (queue, run_at, priority, id)
    WHERE claim_expires_at IS NULL AND expires_at IS NULL AND run_at > created_at;
-- Those that expire, grouped by how long they are ready for: in a group, the expired ones are
-- before all others. The bounds keep the difference within a number's range.
CREATE INDEX IF NOT EXISTS __alkstore_jobs_lifetime
    ON __alkstore_jobs (queue, priority DESC, (min(max(expires_at, -2305843009213693952), 2305843009213693952)
        - min(max(run_at, -2305843009213693952), 2305843009213693952)) DESC, run_at, id)
    WHERE claim_expires_at IS NULL AND expires_at IS NOT NULL;
