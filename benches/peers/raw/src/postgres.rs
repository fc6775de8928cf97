//! On a server, through tokio-postgres.

use std::future::poll_fn;
use std::sync::Arc;

use peer_harness::{Answer, Caller, Ear, PAYLOAD, Peer, Workload};
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use crate::line::Line;

const SCHEMA: &str = "
    CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                       claimed boolean NOT NULL DEFAULT false, payload bytea NOT NULL);
    CREATE INDEX ready ON jobs (id) WHERE NOT claimed;
    CREATE TABLE heads (head bigint NOT NULL) WITH (fillfactor = 50);
    INSERT INTO heads VALUES (0);
    CREATE TABLE events (id bigint PRIMARY KEY, payload bytea NOT NULL);";
/// Plans of fresh tables are for their size before they were filled.
const SESSION: &str = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan;
    SET jit = off";
const ENQUEUE: &str = "INSERT INTO jobs (payload) VALUES ($1)";
const ENQUEUE_MANY: &str = "INSERT INTO jobs (payload) SELECT unnest($1::bytea[])";
const ENQUEUE_AND_WAKE: &str = "WITH added AS (
        INSERT INTO jobs (payload) SELECT unnest($1::bytea[]))
    SELECT pg_notify('jobs', '')";
const WAKE: &str = "SELECT pg_notify('jobs', $1)";
const CLAIM: &str = "UPDATE jobs SET claimed = true WHERE id =
        (SELECT id FROM jobs WHERE NOT claimed ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id, payload";
const CLAIM_BATCH: &str = "UPDATE jobs SET claimed = true WHERE id = ANY (ARRAY
        (SELECT id FROM jobs WHERE NOT claimed ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING id, payload";
const ACK: &str = "DELETE FROM jobs WHERE id = ANY ($1::bigint[]) AND claimed";
/// Dense offsets: who publishes holds the head until the commit.
const PUBLISH: &str = "WITH head AS (UPDATE heads SET head = head + $2::bigint
                 RETURNING head - $2::bigint AS before)
    INSERT INTO events (id, payload) SELECT before + place, payload
    FROM head, unnest($1::bytea[]) WITH ORDINALITY AS event (payload, place)";
const READ: &str = "SELECT id, payload FROM events WHERE id > $1 ORDER BY id LIMIT $2";

/// A session for each task, and one on which those who wait at the same time commit together.
pub(crate) struct Raw {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    session: Session,
    enqueues: Line<(), ()>,
    publishes: Line<(), ()>,
    /// A single task waits for nobody.
    alone: bool,
}

pub(crate) struct Task {
    session: Session,
    shared: Arc<Shared>,
}

struct Session {
    client: Client,
    enqueue: Statement,
    enqueue_many: Statement,
    enqueue_and_wake: Statement,
    wake: Statement,
    claim: Statement,
    claim_batch: Statement,
    ack: Statement,
    publish: Statement,
    read: Statement,
}

impl Session {
    async fn open(url: &str) -> Answer<Self> {
        let client = connect(url).await?;
        client.batch_execute(SESSION).await?;
        Ok(Self {
            enqueue: client.prepare(ENQUEUE).await?,
            enqueue_many: client.prepare(ENQUEUE_MANY).await?,
            enqueue_and_wake: client.prepare(ENQUEUE_AND_WAKE).await?,
            wake: client.prepare(WAKE).await?,
            claim: client.prepare(CLAIM).await?,
            claim_batch: client.prepare(CLAIM_BATCH).await?,
            ack: client.prepare(ACK).await?,
            publish: client.prepare(PUBLISH).await?,
            read: client.prepare(READ).await?,
            client,
        })
    }

    async fn publish(&self, events: usize) -> Answer<()> {
        let (payloads, count) = (vec![PAYLOAD.as_bytes(); events], i64::try_from(events)?);
        self.client
            .execute(&self.publish, &[&payloads, &count])
            .await?;
        Ok(())
    }

    async fn enqueue_and_wake(&self, jobs: usize) -> Answer<()> {
        let payloads = vec![PAYLOAD.as_bytes(); jobs];
        self.client
            .execute(&self.enqueue_and_wake, &[&payloads])
            .await?;
        Ok(())
    }
}

async fn connect(url: &str) -> Answer<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // What fails there fails for the caller too.
    tokio::spawn(async { connection.await.ok() });
    Ok(client)
}

impl Peer for Raw {
    const NAME: &'static str = "raw";
    const VERSION: &'static str = "tokio-postgres 0.7";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimBatchAck,
        Workload::Publish,
        Workload::ReadSince,
        Workload::ClaimWithReadyBehind,
        Workload::WakeSameProcess,
        Workload::WakeOtherProcess,
    ];

    type Caller = Task;

    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        let client = connect(store).await?;
        let there = client.query_one("SELECT to_regclass('jobs') IS NOT NULL", &[]);
        // The listener of another process finds it made.
        if !there.await?.get::<_, bool>(0) {
            client.batch_execute(SCHEMA).await?;
        }
        Ok(Self {
            url: store.to_owned(),
            shared: Arc::new(Shared {
                session: Session::open(store).await?,
                enqueues: Line::new(),
                publishes: Line::new(),
                alone: tasks == 1,
            }),
        })
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task {
            session: Session::open(&self.url).await?,
            shared: self.shared.clone(),
        })
    }

    async fn listen(&self, ear: Ear) -> Answer<()> {
        let (client, mut connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        let heard = ear.clone();
        let messages = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message?, AsyncMessage::Notification(_)) {
                    heard.heard();
                }
            }
            Ok::<_, tokio_postgres::Error>(())
        });
        client.batch_execute("LISTEN jobs").await?;
        ear.ready();
        messages.await??;
        Err("the server is gone".into())
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        if self.shared.alone {
            let Session {
                client, enqueue, ..
            } = &self.session;
            client.execute(enqueue, &[&PAYLOAD.as_bytes()]).await?;
            return Ok(());
        }
        let serve = async |all: Vec<()>| {
            self.shared.session.enqueue_and_wake(all.len()).await?;
            Ok(all)
        };
        self.shared.enqueues.through((), serve).await
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let payloads = vec![PAYLOAD.as_bytes(); jobs];
        let Session {
            client,
            enqueue_many,
            ..
        } = &self.session;
        client.execute(enqueue_many, &[&payloads]).await?;
        Ok(())
    }

    async fn claim_ack(&mut self) -> Answer<bool> {
        let Session {
            client, claim, ack, ..
        } = &self.session;
        let Some(job) = client.query_opt(claim, &[]).await? else {
            return Ok(false);
        };
        let (id, _payload): (i64, Vec<u8>) = (job.get(0), job.get(1));
        if client.execute(ack, &[&vec![id]]).await? == 1 {
            Ok(true)
        } else {
            Err("an ack did not land".into())
        }
    }

    async fn claim_batch_ack(&mut self, jobs: usize) -> Answer<usize> {
        let Session {
            client,
            claim_batch,
            ack,
            ..
        } = &self.session;
        let jobs = client.query(claim_batch, &[&i64::try_from(jobs)?]).await?;
        let jobs: Vec<(i64, Vec<u8>)> = jobs.iter().map(|job| (job.get(0), job.get(1))).collect();
        let ids: Vec<i64> = jobs.iter().map(|(id, _payload)| *id).collect();
        Ok(usize::try_from(client.execute(ack, &[&ids]).await?)?)
    }

    async fn publish(&mut self) -> Answer<()> {
        if self.shared.alone {
            return self.session.publish(1).await;
        }
        let serve = async |all: Vec<()>| {
            self.shared.session.publish(all.len()).await?;
            Ok(all)
        };
        self.shared.publishes.through((), serve).await
    }

    async fn publish_batch(&mut self, events: usize) -> Answer<()> {
        self.session.publish(events).await
    }

    async fn read_since(&mut self, offset: usize, limit: usize) -> Answer<usize> {
        let (offset, limit) = (i64::try_from(offset)?, i64::try_from(limit)?);
        let Session { client, read, .. } = &self.session;
        let events = client.query(read, &[&offset, &limit]).await?;
        let events: Vec<(i64, Vec<u8>)> =
            events.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(events.len())
    }

    async fn wake(&mut self) -> Answer<()> {
        let Session { client, wake, .. } = &self.session;
        client.execute(wake, &[&PAYLOAD]).await?;
        Ok(())
    }
}
