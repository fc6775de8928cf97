/// Jobs.
pub trait Queues: Backend {
    /// Inserts jobs.
    fn insert_jobs(
        &self,
        at: At<'_, Self::Conn>,
        jobs: &[NewJob<'_>],
    ) -> impl Future<Output = Result<Vec<i64>>> + Send;
    /// Deletes a job.
    fn cancel_job(
        &self,
        queue: &str,
        id: i64,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// The most jobs that a queue holds.
    #[must_use]
    fn job_limit(&self, queue: &str) -> Option<usize>;
}
/// `Queues` behind a pointer.
pub(crate) mod queues_twin {
    use super::*;
    pub(crate) trait DynQueues: Send + Sync {
        fn insert_jobs<'s>(
            &'s self,
            at: At<'s, dyn ::std::any::Any + ::std::marker::Send>,
            jobs: &'s [NewJob<'s>],
        ) -> ::futures::future::BoxFuture<'s, Result<Vec<i64>>>;
        fn cancel_job<'s>(
            &'s self,
            queue: &'s str,
            id: i64,
        ) -> ::futures::future::BoxFuture<'s, Result<bool>>;
        fn job_limit(&self, queue: &str) -> Option<usize>;
    }
    impl<E: Queues> DynQueues for E {
        fn insert_jobs<'s>(
            &'s self,
            at: At<'s, dyn ::std::any::Any + ::std::marker::Send>,
            jobs: &'s [NewJob<'s>],
        ) -> ::futures::future::BoxFuture<'s, Result<Vec<i64>>> {
            let at = match at {
                At::Auto => At::Auto,
                At::In(connection) => {
                    match <E as Backend>::downcast(connection) {
                        Some(connection) => At::In(connection),
                        None => {
                            return Box::pin(
                                ::std::future::ready(
                                    Err(crate::boxed::foreign_connection()),
                                ),
                            );
                        }
                    }
                }
            };
            Box::pin(Queues::insert_jobs(self, at, jobs))
        }
        fn cancel_job<'s>(
            &'s self,
            queue: &'s str,
            id: i64,
        ) -> ::futures::future::BoxFuture<'s, Result<bool>> {
            Box::pin(Queues::cancel_job(self, queue, id))
        }
        fn job_limit(&self, queue: &str) -> Option<usize> {
            Queues::job_limit(self, queue)
        }
    }
    impl Queues for crate::boxed::BoxedEngine {
        async fn insert_jobs(
            &self,
            at: At<'_, Self::Conn>,
            jobs: &[NewJob<'_>],
        ) -> Result<Vec<i64>> {
            DynQueues::insert_jobs(&*self.0, at, jobs).await
        }
        async fn cancel_job(&self, queue: &str, id: i64) -> Result<bool> {
            DynQueues::cancel_job(&*self.0, queue, id).await
        }
        fn job_limit(&self, queue: &str) -> Option<usize> {
            DynQueues::job_limit(&*self.0, queue)
        }
    }
}
