//! One expansion of each macro, as a reader would like to find it. `ALKSTORE_BLESS=1 cargo
//! test` writes the files anew; look at the difference before you keep it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;

use crate::{contract, facade};

#[test]
fn facade_writes_a_twin() {
    let expansion = facade::facade(
        &TokenStream::new(),
        &quote! {
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
        },
    );
    check("facade", expansion);
}

#[test]
fn cases_opens_doors() {
    let expansion = contract::cases(quote! {
        queue:
        a_claim_goes_to_one_worker,
        a_job_is_done_once,
    });
    check("cases", expansion);
}

#[test]
fn contract_calls_every_mechanism_for_both_faces() {
    let expansion = contract::contract(quote! {
        sqlite: SqliteHarness,
        skip: { queue::a_job_is_done_once = "the reason" },
    });
    check("contract", expansion);
}

#[test]
fn contract_tests_are_tests() {
    let expansion = contract::tests(quote! {
        [queue: a_claim_goes_to_one_worker, a_job_is_done_once]
        static_dispatch { queue::a_job_is_done_once = "the reason" }
    });
    check("contract_tests", expansion);
}

#[test]
fn a_renamed_dependency_is_named_everywhere() {
    let calls = contract::contract(quote! {
        sqlite: SqliteHarness,
        crate: renamed::suite,
        skip: { queue::a_job_is_done_once = "the reason" },
    });
    let tests = contract::tests(quote! {
        [queue: a_claim_goes_to_one_worker] static_dispatch {} renamed::suite
    });
    for expansion in [calls, tests] {
        let expansion = prettyplease::unparse(&syn::parse2(expansion).unwrap());
        assert!(expansion.contains("renamed::suite::"), "{expansion}");
        assert!(
            !expansion.contains("alkstore_contract_tests"),
            "{expansion}"
        );
    }
}

fn check(name: &str, expansion: TokenStream) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/snapshots");
    let file = file.join(format!("{name}.expanded.rs"));
    let expansion = prettyplease::unparse(&syn::parse2(expansion).unwrap());
    if std::env::var_os("ALKSTORE_BLESS").is_some() {
        std::fs::write(&file, &expansion).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        expansion == expected,
        "{} differs from this expansion:\n{expansion}",
        file.display()
    );
}
