//! Random sequences of operations, in lock step with the reference engine.

use alkstore_contract_tests::{Boxed, model};

use crate::harness::SqliteHarness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_show_what_the_model_shows() {
    model::sequences::<SqliteHarness>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_do_on_the_boxed_store() {
    model::sequences::<Boxed<SqliteHarness>>().await;
}
