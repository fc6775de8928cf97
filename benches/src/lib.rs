//! What the benches measure with: an engine that does no work, so that a bench over it measures
//! everything around one, and the sizes that all benches use.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

use std::any::Any;
use std::time::Duration;

use alkstore::engine::{
    Advance, After, Agenda, At, Backend, Batch, BatchError, Batches, Batching, ClaimEnd, ClaimId,
    ClaimRequest, Locks, NewEvent, NewJob, NewSchedule, Notify, Queues, Results, Schedules,
    Streams, SweepStep, Topic, Transaction, TrimStep, WakeHub, Wakes, Write, Written,
};
use alkstore::{Error, Job, Result, StreamEvent, WakeReceiver};

/// A payload of about what a small job or event weighs: an id and a few words.
pub const PAYLOAD: &str = "a payload of about one hundred bytes, as jobs and events have that \
                           carry an id and a few words";

/// How many tasks call at once where many do.
pub const TASKS: u64 = 16;

/// Says yes to everything at once and stores nothing.
#[derive(Debug, Clone, Default)]
pub struct Null {
    hub: WakeHub,
}

/// A connection to nothing.
#[derive(Debug, Default)]
pub struct NullConn;

impl Transaction for NullConn {
    type Conn = Self;

    fn conn(&mut self) -> &mut Self {
        self
    }

    async fn commit(self, _wakes: Wakes) -> Result<()> {
        Ok(())
    }

    async fn rollback(self) -> Result<()> {
        Ok(())
    }
}

impl Backend for Null {
    type Conn = NullConn;
    type Tx = NullConn;

    async fn begin(&self) -> Result<NullConn> {
        Ok(NullConn)
    }

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut NullConn> {
        connection.downcast_mut()
    }

    fn upcast(connection: &mut NullConn) -> &mut (dyn Any + Send) {
        connection
    }

    fn reread_interval(&self) -> Duration {
        Duration::MAX
    }

    async fn close(&self) {
        self.hub.close();
    }
}

impl Queues for Null {
    async fn insert_jobs(
        &self,
        _at: At<'_, NullConn>,
        jobs: &[NewJob<'_>],
    ) -> Result<Results<i64>> {
        Ok(Results::from_elem(1, jobs.len()))
    }

    async fn claim_jobs(&self, _requests: &[ClaimRequest<'_>]) -> Result<Vec<Vec<Job>>> {
        Ok(Vec::new())
    }

    async fn finish_claims(
        &self,
        _at: At<'_, NullConn>,
        ends: &[ClaimEnd<'_>],
    ) -> Result<Results<bool>> {
        Ok(Results::from_elem(true, ends.len()))
    }

    async fn extend_claim(&self, _claim: &ClaimId<'_>, _extend: i64) -> Result<bool> {
        Ok(true)
    }

    async fn cancel_job(&self, _queue: &str, _id: i64) -> Result<bool> {
        Ok(true)
    }

    async fn find_job(&self, _at: At<'_, NullConn>, _queue: &str, _id: i64) -> Result<Option<Job>> {
        Ok(None)
    }

    async fn sweep_jobs(&self, _queue: &str) -> Result<SweepStep> {
        Ok(SweepStep::default())
    }
}

impl Streams for Null {
    async fn append_events(
        &self,
        _at: At<'_, NullConn>,
        events: &[NewEvent<'_>],
    ) -> Result<Results<i64>> {
        Ok(Results::from_elem(1, events.len()))
    }

    async fn read_events(
        &self,
        _at: At<'_, NullConn>,
        _stream: &str,
        _after: After<'_>,
        _limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        Ok(Vec::new())
    }

    async fn read_page(
        &self,
        _stream: &str,
        _offset: i64,
        _limit: i64,
        _bytes: i64,
    ) -> Result<Vec<StreamEvent>> {
        Ok(Vec::new())
    }

    async fn save_offset(
        &self,
        _at: At<'_, NullConn>,
        _stream: &str,
        _consumer: &str,
        _offset: i64,
    ) -> Result<bool> {
        Ok(true)
    }

    async fn find_offset(
        &self,
        _at: At<'_, NullConn>,
        _stream: &str,
        _consumer: &str,
    ) -> Result<i64> {
        Ok(0)
    }

    async fn trim_events(&self, _stream: &str, _after: i64, _horizon: i64) -> Result<TrimStep> {
        Ok(TrimStep::default())
    }
}

impl Locks for Null {
    async fn acquire_lock(&self, _name: &str, _owner: &str, _ttl: i64) -> Result<Option<i64>> {
        Ok(Some(1))
    }

    async fn renew_lock(&self, _name: &str, _token: i64, _ttl: i64) -> Result<bool> {
        Ok(true)
    }

    async fn resume_lock(&self, _name: &str, _token: i64, _ttl: i64) -> Result<bool> {
        Ok(true)
    }

    async fn release_lock(&self, _name: &str, _token: i64) -> Result<bool> {
        Ok(true)
    }
}

impl Notify for Null {
    async fn send_notify(
        &self,
        _at: At<'_, NullConn>,
        channel: &str,
        _payload: &[u8],
    ) -> Result<()> {
        self.hub.wake(Topic::channel(channel));
        Ok(())
    }

    async fn listen(&self, topic: Topic<'_>) -> Result<WakeReceiver> {
        Ok(self.hub.attach(topic))
    }

    fn notify_limit(&self) -> Option<usize> {
        None
    }
}

impl Schedules for Null {
    async fn upsert_schedule(&self, _schedule: &NewSchedule<'_>) -> Result<i64> {
        Ok(0)
    }

    async fn delete_schedule(&self, _name: &str) -> Result<bool> {
        Ok(true)
    }

    async fn read_agenda(&self, _at: At<'_, NullConn>, _limit: i64) -> Result<Agenda> {
        Ok(Agenda::default())
    }

    async fn reset_boundaries(&self) -> Result<()> {
        Ok(())
    }

    async fn advance_schedules(
        &self,
        _at: At<'_, NullConn>,
        steps: &[Advance<'_>],
    ) -> Result<Results<bool>> {
        Ok(Results::from_elem(true, steps.len()))
    }
}

impl Batches for Null {
    fn batching(&self) -> Batching {
        Batching {
            inline: true,
            timeout: Duration::MAX,
        }
    }

    fn lane(&self, _write: &Write<'_>) -> u64 {
        0
    }

    fn overdue(&self, _write: &Write<'_>) -> Error {
        Error::transient("the write timed out", "nothing is ever late here")
    }

    async fn write_batch(&self, batch: &mut Batch) -> Result<Vec<Written>, BatchError> {
        let writes = batch.begin(|_, _| true);
        let written = |write| match write {
            Write::Insert(_) => Written::Inserted(1),
            Write::Append(_) => Written::Appended(1),
            Write::Finish(_) => Written::Finished(true),
            Write::Claim(_) => Written::Claimed(Vec::new()),
        };
        Ok(writes.into_iter().map(written).collect())
    }

    async fn release_claims(&self, _claims: &[ClaimId<'_>]) -> Result<()> {
        Ok(())
    }
}
