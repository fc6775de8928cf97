//! No peer but the limit: the statements that any of them must make, over tables with nothing
//! that the workload does not need, on one connection, prepared once. What is left out is what a
//! library is for: priorities, deadlines, attempts, waking others.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use peer_harness::{Answer, Arguments, Caller, PAYLOAD, Peer, Workload};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
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

/// One connection for all tasks: `SQLite` has one writer, and a mutex is a cheaper queue for it
/// than its own waiting.
struct Raw(Arc<Mutex<Connection>>);

struct Task(Arc<Mutex<Connection>>);

impl Peer for Raw {
    const NAME: &'static str = "raw";
    const VERSION: &'static str = "rusqlite 0.39";
    const CAN: &'static [Workload] = Workload::ALL;
    const BLOCKS: bool = true;

    type Caller = Task;

    async fn open(store: &str, _tasks: usize) -> Answer<Self> {
        let connection = Connection::open(store)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(self.0.clone()))
    }
}

impl Task {
    /// Does something on the connection. A task that panicked ends the run anyway.
    fn on<T>(&self, body: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Answer<T> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(body(&mut connection)?)
    }

    /// Inserts so many rows in one transaction.
    fn insert(&self, sql: &str, rows: usize) -> Answer<()> {
        self.on(|connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut insert = tx.prepare_cached(sql)?;
                for _ in 0..rows {
                    insert.execute([PAYLOAD.as_bytes()])?;
                }
            }
            tx.commit()
        })
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.on(|connection| {
            connection
                .prepare_cached(ENQUEUE)?
                .execute([PAYLOAD.as_bytes()])
        })?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        self.insert(ENQUEUE, jobs)
    }

    async fn claim_ack(&mut self) -> Answer<bool> {
        let claimed: Option<(i64, Vec<u8>)> = self.on(|connection| {
            connection
                .prepare_cached(CLAIM)?
                .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })?;
        let Some((id, _payload)) = claimed else {
            return Ok(false);
        };
        // Let go in between: a job is worked on after its claim and before its ack.
        if self.on(|connection| connection.prepare_cached(ACK)?.execute([id]))? == 1 {
            Ok(true)
        } else {
            Err("an ack did not land".into())
        }
    }

    async fn claim_batch_ack(&mut self, jobs: usize) -> Answer<usize> {
        let jobs = i64::try_from(jobs)?;
        let claimed: Vec<(i64, Vec<u8>)> = self.on(|connection| {
            connection
                .prepare_cached(CLAIM_BATCH)?
                .query_map([jobs], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        self.on(|connection| {
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
        self.on(|connection| {
            connection
                .prepare_cached(PUBLISH)?
                .execute([PAYLOAD.as_bytes()])
        })?;
        Ok(())
    }

    async fn publish_batch(&mut self, events: usize) -> Answer<()> {
        self.insert(PUBLISH, events)
    }

    async fn read_since(&mut self, offset: usize, limit: usize) -> Answer<usize> {
        let (offset, limit) = (i64::try_from(offset)?, i64::try_from(limit)?);
        let events: Vec<(i64, Vec<u8>)> = self.on(|connection| {
            connection
                .prepare_cached(READ)?
                .query_map(params![offset, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        Ok(events.len())
    }
}

fn main() {
    peer_harness::main::<Raw>(Arguments::of_process());
}
