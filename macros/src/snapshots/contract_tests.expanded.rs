mod queue {
    #[test]
    fn a_claim_goes_to_one_worker() {
        ::alkstore_contract_tests::run::<
            super::Harness,
        >(
            "queue::a_claim_goes_to_one_worker",
            |harness| {
                ::std::boxed::Box::pin(
                    ::alkstore_contract_tests::queue::cases::a_claim_goes_to_one_worker(
                        harness,
                    ),
                )
            },
        );
    }
    #[test]
    #[ignore = "the reason"]
    fn a_job_is_done_once() {
        ::alkstore_contract_tests::run::<
            super::Harness,
        >(
            "queue::a_job_is_done_once",
            |harness| {
                ::std::boxed::Box::pin(
                    ::alkstore_contract_tests::queue::cases::a_job_is_done_once(harness),
                )
            },
        );
    }
}
