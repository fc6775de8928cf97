use alkstore::Error;

use super::*;
use crate::support::{Clock, attempts, error_of};

/// A spec is `@every`, a space, a whole number from 1 on and one of s, m, h, d.
pub(super) async fn specs_are_every_so_many_units<H: Harness>(h: &H) {
    let store = h.open().await;
    let table = [
        ("@every 1s", 1),
        ("@every 90s", 90),
        ("@every 5m", 300),
        ("@every 2h", 7200),
        ("@every 7d", 604_800),
        ("@every 9223372036854775807s", i64::MAX),
        ("@every 106751991167300d", 106_751_991_167_300 * 86_400),
    ];
    for (spec, interval_s) in table {
        let registered = schedule(&store, "tick", spec).await;
        assert_eq!(
            (&*registered.spec, registered.interval_s),
            (spec, interval_s)
        );
        assert_eq!((&*registered.name, &*registered.queue), ("tick", "tick"));
    }
    // The boundary after the end of time is its last second.
    assert_eq!(
        schedule(&store, "end", "@every 9223372036854775807s")
            .await
            .next_at,
        i64::MAX
    );
}

/// Every other text, cron included, is `InvalidSpec`, and nothing is stored.
pub(super) async fn anything_else_is_no_spec<H: Harness>(h: &H) {
    let store = h.open().await;
    let bad = [
        "",
        " ",
        "@every",
        "@every ",
        "@every s",
        "@every 1",
        "1s",
        "every 1s",
        "@every 0s",
        "@every 00d",
        "@every -1s",
        "@every +1s",
        "@every 1.5h",
        "@every 1e3s",
        "@every 9e9d",
        "@every 0x10s",
        "@every 1_000s",
        "@every 1w",
        "@every 1ms",
        "@every 1S",
        "@Every 1s",
        "@EVERY 1s",
        "@every  1s",
        "@every\t1s",
        "@every1s",
        " @every 1s",
        "@every 1s ",
        "@every 1s\n",
        "@every 1 s",
        "@every 1h30m",
        "@every 1ss",
        "@every 1\0s",
        "@every \u{661}s",
        "@every \u{ff11}s",
        "@every 1\u{e9}",
        "@every 9223372036854775808s",
        "@every 153722867280912931m",
        "@every 106751991167301d",
        "@every 99999999999999999999999999s",
        "@daily",
        "*/5 * * * *",
        "* * * * * *",
    ];
    for spec in bad {
        let opts = ScheduleOpts::default();
        let error = error_of(store.schedule("tick", spec, "tick", &1, opts).await);
        assert!(matches!(&error, Error::InvalidSpec { spec: given, .. } if given == spec));
        assert!(!error.to_string().contains(['\n', '\t', '\0']), "{error}");
        assert!(
            !store.unschedule("tick").await.unwrap(),
            "{spec:?} was stored"
        );
    }
    // A bad spec does not touch the schedule that it would have replaced.
    let good = schedule(&store, "tick", "@every 1h").await;
    let opts = ScheduleOpts::default();
    error_of(
        store
            .schedule("tick", "@hourly", "elsewhere", &1, opts)
            .await,
    );
    h.advance(10);
    assert_eq!(schedule(&store, "tick", "@every 1h").await, good);
}

/// A schedule and the queue it fires into need valid names that are not reserved.
pub(super) async fn schedule_names_and_queues_are_shared_names<H: Harness>(h: &H) {
    let store = h.open().await;
    let spec = "@every 1s";
    for bad in ["", " \n", "a\0b", &"x".repeat(256)] {
        let opts = ScheduleOpts::default();
        let errors = [
            error_of(store.schedule(bad, spec, "jobs", &1, opts.clone()).await),
            error_of(store.schedule("tick", spec, bad, &1, opts).await),
            error_of(store.unschedule(bad).await),
        ];
        for error in errors {
            assert!(
                matches!(&error, Error::InvalidName { name, .. } if name == bad),
                "{error:?}"
            );
        }
    }
    for bad in [
        "__alkstore_",
        "__alkstore_scheduler",
        "__alkstore_outbox:post",
    ] {
        let opts = ScheduleOpts::default();
        let errors = [
            error_of(store.schedule(bad, spec, "jobs", &1, opts.clone()).await),
            error_of(store.schedule("tick", spec, bad, &1, opts).await),
            error_of(store.unschedule(bad).await),
        ];
        for error in errors {
            assert!(
                matches!(&error, Error::ReservedName { name } if name == bad),
                "{error:?}"
            );
        }
    }
    assert!(
        !store.unschedule("tick").await.unwrap(),
        "nothing was stored"
    );
    let longest = "x".repeat(255);
    assert_eq!(schedule(&store, &longest, spec).await.queue, longest);
    assert!(store.unschedule(&longest).await.unwrap());
}

/// Jobs that could never be claimed are refused at once, and nothing is stored.
pub(super) async fn senseless_schedule_options_are_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    for max_attempts in [0, -1, i64::MIN] {
        let opts = ScheduleOpts::default().max_attempts(max_attempts);
        let error = error_of(store.schedule("tick", "@every 1s", "tick", &1, opts).await);
        let Error::InvalidArgument {
            argument: "max_attempts",
            value,
            ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(*value, max_attempts.to_string());
        assert!(!store.unschedule("tick").await.unwrap(), "it was stored");
    }
}

/// Every other value of an option is taken: what lies beyond the end of time is its end.
pub(super) async fn every_schedule_option_has_a_meaning<H: Harness>(h: &H) {
    let store = h.open().await;
    for (name, expires) in [("min", i64::MIN), ("zero", 0), ("max", i64::MAX)] {
        let mut opts = ScheduleOpts::default().priority(expires);
        (opts.expires, opts.max_attempts) = (Some(expires), Some(i64::MAX));
        store
            .schedule(name, "@every 1h", name, &1, opts)
            .await
            .unwrap();
    }
    let opts = ScheduleOpts::default().expires(Duration::MAX);
    assert_eq!(opts.expires, Some(i64::MAX));
    let end = "@every 9223372036854775807s";
    store.schedule("end", end, "end", &1, opts).await.unwrap();
    h.advance(3600);
    let runner = Runner::start(&store);
    let jobs = fired(h, &queue(&store, "max"), 1).await;
    assert_eq!(
        (jobs[0].priority, jobs[0].max_attempts, jobs[0].expires_at),
        (i64::MAX, i64::MAX, Some(i64::MAX))
    );
    // Those of the others have expired when they are fired.
    for name in ["min", "zero", "end"] {
        fired(h, &queue(&store, name), 0).await;
    }
    runner.stop(h).await;
}

/// A payload that cannot be encoded is refused when it is registered, not when it fires.
pub(super) async fn a_payload_that_cannot_be_encoded_is_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    // JSON's keys are texts.
    let bad = std::collections::BTreeMap::from([((1, 2), 3)]);
    let opts = ScheduleOpts::default();
    let error = error_of(
        store
            .schedule("tick", "@every 1s", "tick", &bad, opts)
            .await,
    );
    assert!(matches!(error, Error::Codec(_)), "{error:?}");
    assert!(!store.unschedule("tick").await.unwrap(), "it was stored");
}

/// A new schedule's next boundary is now plus its interval.
pub(super) async fn the_first_boundary_is_one_interval_away<H: Harness>(h: &H) {
    let store = h.open().await;
    let clock = Clock::new(h, &store);
    for () in attempts() {
        let now = clock.now().await;
        let registered = schedule(&store, "tick", "@every 90m").await;
        if clock.shows(now).await {
            assert_eq!(registered.next_at, now + 5400);
            return;
        }
        assert!(store.unschedule("tick").await.unwrap());
    }
}

/// Registering a schedule again with its spec, as each start of a fleet does, keeps the
/// boundary, though it may be overdue, and takes what else changed.
pub(super) async fn the_same_spec_keeps_the_boundary<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let first = schedule(&store, "tick", "@every 1h").await;
    for _ in 0..3 {
        h.advance(1500);
        let opts = ScheduleOpts::default().priority(9);
        let again = other
            .schedule("tick", "@every 1h", "elsewhere", &2, opts)
            .await
            .unwrap();
        assert_eq!((again.next_at, &*again.queue), (first.next_at, "elsewhere"));
    }
}

/// Registering a schedule with another spec starts it anew from now.
pub(super) async fn a_changed_spec_sets_a_new_boundary<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let clock = Clock::new(h, &store);
    for () in attempts() {
        schedule(&store, "tick", "@every 1h").await;
        h.advance(600);
        let now = clock.now().await;
        let longer = schedule(&other, "tick", "@every 2h").await;
        let shorter = schedule(&store, "tick", "@every 1m").await;
        if clock.shows(now).await {
            assert_eq!((longer.next_at, longer.interval_s), (now + 7200, 7200));
            assert_eq!((shorter.next_at, shorter.interval_s), (now + 60, 60));
            return;
        }
    }
}

/// Schedules are stored: a boundary that passes while no process runs is still overdue.
pub(super) async fn an_overdue_boundary_survives_a_restart<H: Harness>(h: &H) {
    let store = h.open().await;
    let first = schedule(&store, "tick", "@every 1h").await;
    store.close().await;
    h.advance(3700);
    let store = h.open().await;
    assert_eq!(schedule(&store, "tick", "@every 1h").await, first);
    let runner = Runner::start(&store);
    let jobs = fired(h, &queue(&store, "tick"), 1).await;
    assert_eq!(jobs[0].payload, br#""tick""#);
    runner.stop(h).await;
}

/// Unscheduling is `true` once, and a schedule that comes back starts anew.
pub(super) async fn unschedule_tells_whether_it_was_there<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    assert!(!store.unschedule("tick").await.unwrap());
    let first = schedule(&store, "tick", "@every 1h").await;
    schedule(&store, "tock", "@every 1h").await;
    h.advance(600);
    assert!(other.unschedule("tick").await.unwrap());
    assert!(!store.unschedule("tick").await.unwrap());
    assert!(schedule(&store, "tick", "@every 1h").await.next_at >= first.next_at + 600);
    assert!(
        store.unschedule("tock").await.unwrap(),
        "the other one is untouched"
    );
}
