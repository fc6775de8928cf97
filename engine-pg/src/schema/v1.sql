-- Names are compared byte by byte: an index that follows a language's rules breaks when the
-- operating system's change, and sorts what nobody reads.

-- Live jobs. A job without a claim's deadline is pending. A batch draws one id for a thousand
-- jobs, hence the step: the ids up to the next one that can be drawn are the batch's.
CREATE TABLE {schema}.jobs (
    id bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 1000) PRIMARY KEY,
    priority bigint NOT NULL,
    run_at bigint NOT NULL,
    attempts bigint NOT NULL DEFAULT 0,
    max_attempts bigint NOT NULL,
    claimed_at bigint,
    claim_expires_at bigint,
    created_at bigint NOT NULL,
    expires_at bigint,
    visibility_timeout_s bigint NOT NULL,
    backoff_base_s bigint NOT NULL,
    dead_letter_retention_s bigint,
    queue text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C",
    last_error text COLLATE "C",
    payload bytea NOT NULL
);
-- In all indexes of jobs a number stands for the queue: it is compared faster than a name, and the
-- columns behind it are found faster. Those of pending jobs, which claims walk, are in lines.sql.
CREATE INDEX jobs_claimed ON {schema}.jobs (hashtextextended(queue, 0), claim_expires_at, id)
    WHERE claim_expires_at IS NOT NULL;
CREATE INDEX jobs_expiring ON {schema}.jobs (hashtextextended(queue, 0), expires_at, id)
    WHERE expires_at IS NOT NULL;

-- Dead jobs, out of the way of the live ones.
CREATE TABLE {schema}.dead_jobs (
    id bigint PRIMARY KEY,
    priority bigint NOT NULL,
    run_at bigint NOT NULL,
    attempts bigint NOT NULL,
    max_attempts bigint NOT NULL,
    claimed_at bigint,
    created_at bigint NOT NULL,
    expires_at bigint,
    visibility_timeout_s bigint NOT NULL,
    backoff_base_s bigint NOT NULL,
    dead_letter_retention_s bigint,
    died_at bigint NOT NULL,
    purge_at bigint,
    queue text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C",
    last_error text COLLATE "C",
    payload bytea NOT NULL
);
CREATE INDEX dead_jobs_purging ON {schema}.dead_jobs (queue, purge_at, id)
    WHERE purge_at IS NOT NULL;

-- The head is the offset of the last event ever published; it survives every trim. Whoever
-- publishes holds the row until the commit, which is what makes offset order commit order. The
-- room in its pages lets the row be updated in place.
CREATE TABLE {schema}.streams (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    head bigint NOT NULL,
    name text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 50);
CREATE TABLE {schema}.events (
    stream bigint NOT NULL,
    "offset" bigint NOT NULL,
    created_at bigint NOT NULL,
    key text COLLATE "C",
    payload bytea NOT NULL,
    PRIMARY KEY (stream, "offset")
);
CREATE TABLE {schema}.offsets (
    "offset" bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, consumer)
) WITH (fillfactor = 50);

-- A row outlives its release: its token is what the next acquisition counts on from.
CREATE TABLE {schema}.locks (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    expires_at bigint
) WITH (fillfactor = 50);

CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    spec text COLLATE "C" NOT NULL,
    interval_s bigint NOT NULL,
    next_at bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    expires bigint,
    max_attempts bigint NOT NULL,
    visibility_timeout_s bigint NOT NULL,
    backoff_base_s bigint NOT NULL,
    dead_letter_retention_s bigint,
    payload bytea NOT NULL
);
CREATE INDEX schedules_next ON {schema}.schedules (next_at, name);

-- The comment tells this table from another of the same name. Like every table it has a primary
-- key: where all tables are published, the rows of one without cannot be changed.
CREATE TABLE {schema}.schema_version (version bigint PRIMARY KEY);
COMMENT ON TABLE {schema}.schema_version IS 'alkstore';
INSERT INTO {schema}.schema_version VALUES (1);
