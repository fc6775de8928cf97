//! Wrong engines that the suite must notice: each breaks one rule, and at least one case of
//! the mechanisms named beside it has to fail.
//!
//! `cargo test --test mutants -- --nocapture` tells which case noticed which mutant.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the functions here are tests, if not by their attributes"
)]
#![allow(non_snake_case, reason = "a mutant's test bears the name of its fault")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::thread;
use std::time::Duration;

use alkstore_contract_tests::model::{self, Outcome};
use alkstore_contract_tests::reference::{Fault, ReferenceHarness};
use alkstore_contract_tests::{
    CaseFn, Harness as _, batch, lock, name, notify, outbox, payload, queue, run_on, scheduler,
    store, stream, tx,
};

type Case = (&'static str, CaseFn<ReferenceHarness>);

macro_rules! mutants {
    ($($mechanisms:tt $($fault:ident)*;)*) => {
        $($(
            #[test]
            fn $fault() {
                assert_noticed(Fault::$fault, &cases_of!$mechanisms);
            }
        )*)*

        const TESTED: &[Fault] = &[$($(Fault::$fault),*),*];
    };
}

macro_rules! cases_of {
    ($($mechanism:ident)*) => {
        [$($mechanism::table::<ReferenceHarness>()),*].concat()
    };
}

mutants! {
    [payload] PayloadReencoded PayloadCut;

    [store] CloseClosesOthers StoresSeeOnlyThemselves;
    [store notify] CloseLeavesReceivers RemovedSourceLeavesReceivers;

    [tx] RollbackKeepsJobs RollbackKeepsEvents RollbackKeepsOffsets RollbackKeepsRows
        DropCommits DropKeepsWriter CommitLosesRows TxReadsOnlyCommitted UncommittedIsVisible
        AckTxLandsAtOnce AckTxIgnoresDeadline JoinedTxCommitsAtOnce BusyWaitsForEver
        BusyIsPermanent SaveAlwaysMoves ConsumerIsNotHeld;
    [tx notify] RollbackKeepsWakes CommitLosesWakes WakesBeforeCommit;

    [notify] NotifyWakesNobody NotifyWakesEveryChannel WakesCrossKinds WakesStayInTheProcess
        ListenHearsThePast;
    [notify name] LongChannelsAreCut;
    [stream name] StreamsFoldCase;
    [lock name] LockNamesTrimmed;
    [stream notify] PublishWakesNobody TrimWakes;
    [queue notify] EnqueueWakesNobody RetryWakesNobody;

    [stream] StreamsShareOffsets OffsetsReusedAfterTrim PublishBatchReversed ReadDescending
        ReadInclusive ReadIgnoresLimit PageIgnoresBytes ReadCrossesStreams ReadIgnoresConsumer KeyLost KeyBlank
        EventTimeForgotten SavedOffsetMovesBack SaveNeverMoves NegativeSaveStored SaveStopsAtHead
        ConsumersShareOffset StreamsShareConsumers TrimExclusive TrimMiscounts
        TrimForgetsConsumers TrimCrossesStreams TrimInOneStep TrimStopsEarly;
    [stream tx] OffsetsHaveHoles;

    [queue] DelayAbsolute DelayIgnored RunAtNotBeforeNow PriorityNarrowed ExpiresAbsolute OverflowWraps VisibilityForgotten
        MaxAttemptsForgotten BackoffForgotten RetentionForgotten CreatedAtForgotten
        EnqueueBatchReversed IdsReused FindCrossesQueues;
    [queue] ClaimTakesHeld ClaimCrossesQueues ClaimIgnoresPriority ClaimTakesLowFirst
        ClaimIgnoresRunAt ClaimTakesNewest ClaimBatchReversed ClaimTakesOneMore
        ClaimTakesUnready ReadyExclusive ClaimTakesExpired ClaimLeavesExpired ExpiryExclusive ClaimBuriesOneExpired ExpiredDiesUnsaid ClaimForgetsError
        ClaimEndsOneLapsed
        ClaimTakesDead ClaimForgetsAttempt WorkerForgotten ClaimedAtForgotten
        ClaimIgnoresVisibility ReclaimNever ClaimLapsesEarly ClaimLapsesLate
        ReclaimForgetsAttempt ExhaustedIsHandedOut ExhaustedStaysAlive ExhaustedDiesUnsaid;
    [queue] StaleHandleActs LapsedHandleActs AckKeepsJob AckBuries AckBatchAllOrNothing
        HeartbeatAdds HeartbeatRevives HeartbeatOfStaleHandle HeartbeatIgnored
        RetryIgnoresDelay RetryAddsToRunAt RetryDropsError RetryRefundsAttempt FailDropsError RetryKeepsWorker
        RetryKeepsDeadline DeadForgetsWorker
        DiedAtForgotten DeadAreInvisible;
    [queue] CancelMissesHeld CancelTakesDead CancelCrossesQueues SweepMissesHeld
        SweepCountsNothing SweepDeletesExpired SweepCrossesQueues SweepPurgesEarly
        SweepPurgesUnstamped SweepNeverPurges SweepInOneStep SweepStopsEarly ClaimAlwaysBuries;

    [batch] DroppedClaimsStay DroppedClaimsCount;

    [lock] LockGivenTwice LocksShareName LockLapsesEarly LockLapsesLate SameOwnerRefused
        ReaskLengthens ReaskChangesToken TokenReused RenewAdds RenewRevives StaleTokenRenews
        StaleTokenReleases LapsedLockReleases ReleaseIgnored;

    [scheduler] FirstFireAtOnce UpsertResetsBoundary UpsertKeepsBoundary UpsertKeepsPayload UpsertKeepsQueue
        AgendaForgetsNext
        UpsertWakesNobody DeleteIgnored DeleteDenied AgendaExclusive AgendaHidesDue
        ScheduleStampsForgotten AdvanceIgnoresFrom AdvanceIgnored ResumeTakesBack LapsedLockEnds
        UpsertKeepsFarBoundary ResetIgnored ResetTakesAll SubsecForgotten;
}

#[test]
fn every_fault_is_tested_once() {
    for fault in Fault::ALL {
        let tests = TESTED.iter().filter(|tested| *tested == fault).count();
        assert_eq!(tests, 1, "{fault:?}");
    }
}

/// What proves that a mutant fails for its fault and not for its haste.
#[test]
fn without_a_fault_nothing_is_noticed() {
    let all = cases_of![name payload store tx notify stream queue batch outbox lock scheduler];
    for case @ (name, _) in &all {
        // A busy host makes a case miss its time once, not thrice.
        let passes = (0..3).any(|_| passes(None, case));
        assert!(passes, "{name} fails on a right engine in a hurry");
    }
}

/// The random walk notices engines that are wrong in what they store or answer, too.
#[tokio::test]
async fn the_model_notices_mutants() {
    let faults = [
        Fault::RollbackKeepsEvents,
        Fault::LapsedHandleActs,
        Fault::RetryAddsToRunAt,
        Fault::SavedOffsetMovesBack,
        Fault::StaleTokenReleases,
        Fault::UpsertResetsBoundary,
    ];
    for fault in faults {
        let mut differs = false;
        for seed in 0..60 {
            let model = ReferenceHarness::new().await;
            let mutant = ReferenceHarness::with_fault(Some(fault));
            let outcome = model::compare(&model, &mutant, seed, 40).await;
            differs |= matches!(outcome, Outcome::Differs(_));
            if differs {
                break;
            }
        }
        assert!(differs, "{fault:?} survives 60 sequences");
    }
}

fn assert_noticed(fault: Fault, cases: &[Case]) {
    match cases.iter().find(|case| !passes(Some(fault), case)) {
        Some((name, _)) => println!("{fault:?} is noticed by {name}"),
        None => panic!(
            "{fault:?} survives: none of {} cases noticed it",
            cases.len()
        ),
    }
}

/// Runs one case on a database with that fault.
fn passes(fault: Option<Fault>, &(name, case): &Case) -> bool {
    /// What hangs has failed.
    const DEADLINE: Duration = Duration::from_secs(5);
    hush();
    let run = move || {
        let setup = async { ReferenceHarness::with_fault(fault) };
        catch_unwind(AssertUnwindSafe(|| run_on(name, DEADLINE, setup, case))).is_ok()
    };
    let thread = thread::Builder::new().name(HUSHED.into()).spawn(run);
    thread
        .expect("the system has threads to spare")
        .join()
        .unwrap_or(false)
}

/// The threads on which a panic is what was hoped for.
const HUSHED: &str = "mutant";

fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if thread::current().name() != Some(HUSHED) || std::env::var_os("LOUD").is_some() {
                loud(panic);
            }
        }));
    });
}
