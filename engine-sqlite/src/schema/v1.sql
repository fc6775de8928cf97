-- Live jobs. A job without a claim's deadline is pending.
CREATE TABLE __alkstore_jobs (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    worker_id TEXT,
    claimed_at INTEGER,
    claim_expires_at INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    visibility_timeout_s INTEGER NOT NULL,
    backoff_base_s INTEGER NOT NULL,
    dead_letter_retention_s INTEGER,
    last_error TEXT,
    payload BLOB NOT NULL
);
CREATE INDEX __alkstore_jobs_claimed
    ON __alkstore_jobs (queue, claim_expires_at)
    WHERE claim_expires_at IS NOT NULL;
CREATE INDEX __alkstore_jobs_expiring
    ON __alkstore_jobs (queue, expires_at)
    WHERE expires_at IS NOT NULL;
-- The indexes of pending jobs, which claims walk, are in lines.sql.

-- The greatest id that no live job has any more. Ids are never used again; to keep the last one
-- when its job goes, and not whenever one is given, saves each enqueue a page.
CREATE TABLE __alkstore_last_job (
    id INTEGER PRIMARY KEY
);
INSERT INTO __alkstore_last_job VALUES (0);
CREATE TRIGGER __alkstore_last_job_gone AFTER DELETE ON __alkstore_jobs
    WHEN NOT EXISTS (SELECT 1 FROM __alkstore_jobs WHERE id > old.id)
BEGIN
    UPDATE __alkstore_last_job SET id = old.id WHERE id < old.id;
END;

-- Dead jobs, out of the way of the live ones.
CREATE TABLE __alkstore_dead_jobs (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    worker_id TEXT,
    claimed_at INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    visibility_timeout_s INTEGER NOT NULL,
    backoff_base_s INTEGER NOT NULL,
    dead_letter_retention_s INTEGER,
    last_error TEXT,
    payload BLOB NOT NULL,
    died_at INTEGER NOT NULL,
    purge_at INTEGER
);
CREATE INDEX __alkstore_dead_jobs_purging
    ON __alkstore_dead_jobs (queue, purge_at)
    WHERE purge_at IS NOT NULL;
-- A death is one statement: a job is never in both tables, nor in none.
CREATE TRIGGER __alkstore_job_died AFTER INSERT ON __alkstore_dead_jobs BEGIN
    DELETE FROM __alkstore_jobs WHERE id = new.id;
END;

-- The head is the offset of the last event that was trimmed, or less: what is not trimmed says
-- itself how far the stream has come.
CREATE TABLE __alkstore_streams (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    head INTEGER NOT NULL DEFAULT 0
);
-- A place is the stream's id, times 2^40, plus the event's offset: one number to find both by, and
-- room for an event of some size within its page.
CREATE TABLE __alkstore_events (
    place INTEGER PRIMARY KEY CHECK (place > 0),
    created_at INTEGER NOT NULL,
    key TEXT,
    payload BLOB NOT NULL
);
CREATE TABLE __alkstore_offsets (
    stream TEXT NOT NULL,
    consumer TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    PRIMARY KEY (stream, consumer)
) WITHOUT ROWID;

-- One row for each lock that is held or has lapsed. Tokens are never used again.
CREATE TABLE __alkstore_locks (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);

CREATE TABLE __alkstore_schedules (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    interval_s INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    expires INTEGER,
    max_attempts INTEGER NOT NULL,
    visibility_timeout_s INTEGER NOT NULL,
    backoff_base_s INTEGER NOT NULL,
    dead_letter_retention_s INTEGER,
    payload BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX __alkstore_schedules_next ON __alkstore_schedules (next_at, name);

-- What other processes look at to tell which topics changed. Streams and queues show it by
-- their newest events and jobs; a queue has a row once a job of it was given back.
CREATE TABLE __alkstore_topics (
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
