//! The macros in use, and what they say when they are misused.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the engine here is a stand-in that nobody reads about"
)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "support/boxed.rs"]
mod boxed;

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use alkstore_contract_tests::{Harness, contract};
use alkstore_macros::facade;
use boxed::{At, Backend, BoxedEngine, Error, Result};
use futures::FutureExt;

#[test]
fn misuse_is_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}

/// The harness's name says little, so that only the right path finds it.
struct Suite<T>(PhantomData<T>);

impl<T: Send + Sync> Harness for Suite<T> {}

contract! { mock: self::Suite<u8> }

contract! {
    skipping: crate::Suite<u16>,
    skip: {
        queue::a_job_is_done_once = "the stand-in shows how a skip looks",
    },
}

pub struct NewJob<'a>(&'a str);

#[facade]
pub trait Queues: Backend {
    fn insert_jobs(
        &self,
        at: At<'_, Self::Conn>,
        jobs: &[NewJob<'_>],
    ) -> impl Future<Output = Result<Vec<usize>>> + Send;

    fn rename_queue(&self, from: &str, to: &str) -> impl Future<Output = String> + Send;

    fn stop_claims(&self) -> impl Future<Output = ()> + Send;

    fn name_limit(&self, kind: &str) -> Option<usize>;
}

#[derive(Clone)]
struct Mock;

impl Backend for Mock {
    type Conn = Vec<String>;

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut Vec<String>> {
        connection.downcast_mut()
    }
}

impl Queues for Mock {
    async fn insert_jobs(
        &self,
        at: At<'_, Vec<String>>,
        jobs: &[NewJob<'_>],
    ) -> Result<Vec<usize>> {
        if let At::In(connection) = at {
            connection.extend(jobs.iter().map(|job| job.0.to_owned()));
        }
        Ok(jobs.iter().map(|job| job.0.len()).collect())
    }

    async fn rename_queue(&self, from: &str, to: &str) -> String {
        format!("{from} -> {to}")
    }

    async fn stop_claims(&self) {}

    fn name_limit(&self, kind: &str) -> Option<usize> {
        kind.len().checked_sub(3)
    }
}

fn boxed(engine: impl Queues) -> BoxedEngine {
    BoxedEngine(Arc::new(engine))
}

/// Inserts as a caller would that knows nothing of the engine, on a runtime that moves tasks.
fn insert<E: Queues>(engine: &E, at: At<'_, E::Conn>, jobs: &[NewJob<'_>]) -> Result<Vec<usize>> {
    fn send<F: Future + Send>(future: F) -> F {
        future
    }
    send(async { engine.insert_jobs(at, jobs).await })
        .now_or_never()
        .unwrap()
}

#[test]
fn a_boxed_engine_answers_as_the_engine_does() {
    for engine in [boxed(Mock), boxed(boxed(Mock))] {
        assert_eq!(insert(&engine, At::Auto, &[NewJob("mail")]), Ok(vec![4]));
        let renamed = engine.rename_queue("a", "b").now_or_never();
        assert_eq!(renamed.unwrap(), "a -> b");
        assert_eq!(engine.stop_claims().now_or_never(), Some(()));
        assert_eq!(engine.name_limit("queue"), Some(2));
    }
}

#[test]
fn a_boxed_engine_runs_on_the_callers_connection() {
    let mut connection = Vec::<String>::new();
    let jobs = [NewJob("a"), NewJob("b")];
    assert_eq!(
        insert(&boxed(Mock), At::In(&mut connection), &jobs),
        Ok(vec![1, 1])
    );
    assert_eq!(connection, ["a", "b"]);
}

#[test]
fn a_foreign_connection_is_an_error() {
    let mut connection = 5_u8;
    assert_eq!(
        insert(&boxed(Mock), At::In(&mut connection), &[NewJob("a")]),
        Err(Error("foreign connection"))
    );
}
