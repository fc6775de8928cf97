#[doc(hidden)]
pub const CASES: &[&str] = &[
    "queue::a_claim_goes_to_one_worker",
    "queue::a_job_is_done_once",
];
#[doc(hidden)]
pub mod cases {
    pub async fn a_claim_goes_to_one_worker<H: crate::Harness>(harness: &H) {
        super::a_claim_goes_to_one_worker(harness).await;
    }
    pub async fn a_job_is_done_once<H: crate::Harness>(harness: &H) {
        super::a_job_is_done_once(harness).await;
    }
}
#[doc(hidden)]
#[macro_export]
macro_rules! __alkstore_queue_cases {
    ($($face:tt)*) => {
        $crate::__contract_tests! { [queue : a_claim_goes_to_one_worker,
        a_job_is_done_once] $($face)* }
    };
}
