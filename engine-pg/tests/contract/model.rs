//! Random sequences of operations, in lock step with the reference engine.

use alkstore_contract_tests::model;

use crate::harness::PostgresHarness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_show_what_the_model_shows() {
    model::sequences::<PostgresHarness>().await;
}
