#![deny(dead_code)]

pub trait Harness {}

pub type CaseFn<H> = for<'h> fn(&'h H) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'h>>;

pub mod queue {
    use crate::Harness;

    alkstore_macros::cases! {
        queue:
        a_claim_goes_to_one_worker,
    }

    async fn a_claim_goes_to_one_worker<H: Harness>(_: &H) {}

    async fn a_job_is_done_once<H: Harness>(_: &H) {}
}

struct Mock;

impl Harness for Mock {}

fn main() {
    drop(queue::cases::a_claim_goes_to_one_worker(&Mock));
    assert!(!queue::CASES.is_empty());
}
