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
pub fn table<H: crate::Harness>() -> ::std::vec::Vec<(&'static str, crate::CaseFn<H>)> {
    let cases: [crate::CaseFn<H>; CASES.len()] = [
        |harness| ::std::boxed::Box::pin(cases::a_claim_goes_to_one_worker(harness)),
        |harness| ::std::boxed::Box::pin(cases::a_job_is_done_once(harness)),
    ];
    ::std::iter::zip(CASES.iter().copied(), cases).collect()
}
#[doc(hidden)]
#[macro_export]
macro_rules! __alkstore_queue_cases {
    ($($face:tt)*) => {
        $crate::__contract_tests! { [queue : a_claim_goes_to_one_worker,
        a_job_is_done_once] $($face)* }
    };
}
