//! On a file, through rusqlite.

use std::sync::{Arc, Mutex, PoisonError};

use peer_harness::{Answer, Caller, Durability, Engine, PAYLOAD, Peer, Workload};
use rusqlite::{Connection, OptionalExtension, Result, TransactionBehavior, params};

use crate::line::Line;

/// The log grows until the run is over: what is copied out of it is copied later, and would be by
/// somebody else.
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA wal_autocheckpoint = 100000;
    PRAGMA cache_size = -65536;
    CREATE TABLE jobs (id INTEGER PRIMARY KEY, claimed INTEGER NOT NULL DEFAULT 0,
                       payload BLOB NOT NULL);
    CREATE INDEX ready ON jobs (id) WHERE claimed = 0;
    CREATE TABLE events (id INTEGER PRIMARY KEY, payload BLOB NOT NULL);";
const ENQUEUE: &str = "INSERT INTO jobs (payload) VALUES (?1)";
const CLAIM: &str = "UPDATE jobs SET claimed = 1
    WHERE id = (SELECT id FROM jobs INDEXED BY ready WHERE claimed = 0 ORDER BY id LIMIT 1)
    RETURNING id, payload";
const CLAIM_BATCH: &str = "UPDATE jobs SET claimed = 1
    WHERE id IN (SELECT id FROM jobs INDEXED BY ready WHERE claimed = 0 ORDER BY id LIMIT ?1)
    RETURNING id, payload";
const ACK: &str = "DELETE FROM jobs WHERE id = ?1 AND claimed = 1";
const PUBLISH: &str = "INSERT INTO events (payload) VALUES (?1)";
const READ: &str = "SELECT id, payload FROM events WHERE id > ?1 ORDER BY id LIMIT ?2";

/// How many rows a statement inserts where there are many.
const AT_ONCE: usize = 100;

/// One connection for all tasks: `SQLite` has one writer.
pub(crate) struct Raw(Arc<Store>);

pub(crate) struct Task(Arc<Store>);

struct Store {
    connection: Mutex<Connection>,
    line: Line<Step, Done>,
    /// A single task waits for nobody.
    alone: bool,
}

/// What a task wants done in a commit with others.
#[derive(Clone, Copy)]
enum Step {
    Enqueue,
    Claim,
    Ack(i64),
    Publish,
}

/// What has come of it: how many rows, or the job.
enum Done {
    Rows(usize),
    Job(Option<(i64, Vec<u8>)>),
}

impl Peer for Raw {
    const NAME: &'static str = "raw";
    const VERSION: &'static str = "rusqlite 0.39";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimBatchAck,
        Workload::Publish,
        Workload::ReadSince,
        Workload::ClaimWithReadyBehind,
    ];
    const CAN_BE_FULL: bool = true;

    type Caller = Task;

    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        Self::with(store, tasks, "NORMAL")
    }

    async fn open_full(store: &str, tasks: usize) -> Answer<Self> {
        Self::with(store, tasks, "FULL")
    }

    fn settings(engine: Engine, durability: Durability) -> String {
        format!("{}, no checkpoints", engine.durability(durability))
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(self.0.clone()))
    }
}

impl Raw {
    fn with(store: &str, tasks: usize, synchronous: &str) -> Answer<Self> {
        let connection = Connection::open(store)?;
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        Ok(Self(Arc::new(Store {
            connection: Mutex::new(connection),
            line: Line::new(),
            alone: tasks == 1,
        })))
    }
}

impl Store {
    /// Does something on the connection. A task that panicked ends the run anyway.
    fn on<T>(&self, body: impl FnOnce(&mut Connection) -> Result<T>) -> Answer<T> {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(body(&mut connection)?)
    }

    /// Does a step in a commit of its own or with others.
    async fn step(&self, step: Step) -> Answer<Done> {
        if self.alone {
            return self.on(|connection| step.perform(connection));
        }
        let serve = async |steps: Vec<Step>| {
            self.on(|connection| {
                if let [step] = steps[..] {
                    return Ok(vec![step.perform(connection)?]);
                }
                connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
                let done: Result<_> = steps.iter().map(|step| step.perform(connection)).collect();
                connection.prepare_cached("COMMIT")?.execute([])?;
                done
            })
        };
        self.line.through(step, serve).await
    }

    /// Inserts so many rows in one transaction.
    fn insert(&self, sql: &str, rows: usize) -> Answer<()> {
        // A statement for many rows is cheaper than many statements.
        let many = format!("{sql}{}", ", (?1)".repeat(AT_ONCE - 1));
        self.on(|connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut insert = tx.prepare_cached(&many)?;
                for _ in 0..rows / AT_ONCE {
                    insert.execute([PAYLOAD.as_bytes()])?;
                }
                let mut insert = tx.prepare_cached(sql)?;
                for _ in 0..rows % AT_ONCE {
                    insert.execute([PAYLOAD.as_bytes()])?;
                }
            }
            tx.commit()
        })
    }
}

impl Step {
    fn perform(self, connection: &Connection) -> Result<Done> {
        let change = |sql, parameters: &[&dyn rusqlite::ToSql]| {
            let rows = connection.prepare_cached(sql)?.execute(parameters)?;
            Ok(Done::Rows(rows))
        };
        match self {
            Self::Enqueue => change(ENQUEUE, &[&PAYLOAD.as_bytes()]),
            Self::Publish => change(PUBLISH, &[&PAYLOAD.as_bytes()]),
            Self::Ack(id) => change(ACK, &[&id]),
            Self::Claim => {
                let mut claim = connection.prepare_cached(CLAIM)?;
                let job = claim.query_row([], |row| Ok((row.get(0)?, row.get(1)?)));
                Ok(Done::Job(job.optional()?))
            }
        }
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.0.step(Step::Enqueue).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        self.0.insert(ENQUEUE, jobs)
    }

    async fn claim_ack(&mut self) -> Answer<bool> {
        let Done::Job(Some((id, _payload))) = self.0.step(Step::Claim).await? else {
            return Ok(false);
        };
        match self.0.step(Step::Ack(id)).await? {
            Done::Rows(1) => Ok(true),
            _ => Err("an ack did not land".into()),
        }
    }

    async fn claim_batch_ack(&mut self, jobs: usize) -> Answer<usize> {
        let jobs = i64::try_from(jobs)?;
        let claimed: Vec<(i64, Vec<u8>)> = self.0.on(|connection| {
            connection
                .prepare_cached(CLAIM_BATCH)?
                .query_map([jobs], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        self.0.on(|connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut acked = 0;
            {
                let mut ack = tx.prepare_cached(ACK)?;
                for (id, _payload) in &claimed {
                    acked += ack.execute([id])?;
                }
            }
            tx.commit()?;
            Ok(acked)
        })
    }

    async fn publish(&mut self) -> Answer<()> {
        self.0.step(Step::Publish).await?;
        Ok(())
    }

    async fn publish_batch(&mut self, events: usize) -> Answer<()> {
        self.0.insert(PUBLISH, events)
    }

    async fn read_since(&mut self, offset: usize, limit: usize) -> Answer<usize> {
        let (offset, limit) = (i64::try_from(offset)?, i64::try_from(limit)?);
        let events: Vec<(i64, Vec<u8>)> = self.0.on(|connection| {
            connection
                .prepare_cached(READ)?
                .query_map(params![offset, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        Ok(events.len())
    }
}
