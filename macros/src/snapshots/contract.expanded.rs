type SqliteUnderTest = SqliteHarness;
mod sqlite {
    mod static_dispatch {
        type Harness = super::super::SqliteUnderTest;
        ::alkstore_contract_tests::__alkstore_name_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_payload_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_store_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_tx_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_notify_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_stream_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_queue_cases! {
            static_dispatch { queue::a_job_is_done_once = "the reason" }
        }
        ::alkstore_contract_tests::__alkstore_batch_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_outbox_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_lock_cases! {
            static_dispatch {}
        }
        ::alkstore_contract_tests::__alkstore_scheduler_cases! {
            static_dispatch {}
        }
    }
    mod boxed {
        type Harness = ::alkstore_contract_tests::Boxed<super::super::SqliteUnderTest>;
        ::alkstore_contract_tests::__alkstore_name_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_payload_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_store_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_tx_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_notify_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_stream_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_queue_cases! {
            boxed { queue::a_job_is_done_once = "the reason" }
        }
        ::alkstore_contract_tests::__alkstore_batch_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_outbox_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_lock_cases! {
            boxed {}
        }
        ::alkstore_contract_tests::__alkstore_scheduler_cases! {
            boxed {}
        }
    }
}
