//! Publishers that work at once: whoever has read an offset could read all below it.

use alkstore::{Engine, Result, Store, Tx};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Harness;
use crate::support::{never, number, numbers, offsets, read_all, within};

/// Publishers in several processes at once get every offset once, each in its own order.
pub(super) async fn concurrent_publishers_leave_no_hole<H: Harness>(h: &H) {
    const EACH: i64 = 20;
    let mut tasks = Vec::new();
    for process in 0..3 {
        let store = h.open().await;
        for task in 0..2 {
            let stream = store.stream("stream").unwrap();
            tasks.push(tokio::spawn(async move {
                let mut given = Vec::new();
                for round in 0..EACH {
                    let payload = (process * 2 + task) * 1000 + round;
                    given.push((stream.publish(&payload).await.unwrap(), payload));
                }
                given
            }));
        }
    }
    let mut given = Vec::new();
    for task in tasks {
        let of_one = within(h, task).await.unwrap();
        assert!(
            of_one.is_sorted(),
            "a publisher's own events are out of order: {of_one:?}"
        );
        given.extend(of_one);
    }
    given.sort_unstable();
    let store = h.open().await;
    let events = read_all(&store, "stream").await;
    assert_eq!(offsets(&events), (1..=6 * EACH).collect::<Vec<_>>());
    let read: Vec<_> = events
        .iter()
        .map(|event| (event.offset, number(event)))
        .collect();
    assert_eq!(read, given, "an event is not where its publisher was told");
}

/// Publishes in transactions of which every second one rolls back.
fn publish_half<E: Engine>(
    store: Store<E>,
    transactions: i64,
    first: i64,
) -> JoinHandle<Result<Vec<i64>>> {
    tokio::spawn(async move {
        let mut kept = Vec::new();
        for payload in first..first + transactions {
            let mut tx = store.begin_tx().await?;
            tx.publish_tx("stream", &payload).await?;
            tokio::task::yield_now().await;
            tx.publish_tx("stream", &payload).await?;
            if payload % 2 == 0 {
                tx.commit().await?;
                kept.push(payload);
            } else if payload % 4 == 1 {
                tx.rollback().await?;
            } else {
                drop(tx);
            }
        }
        Ok(kept)
    })
}

/// Rolled-back publishers leave no hole beside concurrent ones that commit.
pub(super) async fn rolled_back_publishers_leave_no_hole<H: Harness>(h: &H) {
    let mut tasks = Vec::new();
    for process in 0..3 {
        tasks.push(publish_half(h.open().await, 10, process * 1000));
    }
    let mut kept = Vec::new();
    for task in tasks {
        kept.extend(within(h, task).await.unwrap().unwrap());
    }
    let events = read_all(&h.open().await, "stream").await;
    assert_eq!(
        offsets(&events),
        (1..).take(2 * kept.len()).collect::<Vec<_>>()
    );
    let mut read = numbers(&events);
    assert!(
        read.chunks(2).all(|pair| pair[0] == pair[1]),
        "transactions mixed: {read:?}"
    );
    read.sort_unstable();
    read.dedup();
    kept.sort_unstable();
    assert_eq!(read, kept);
}

/// The events of one batch stand next to each other, however many publish at once.
pub(super) async fn concurrent_batches_stay_whole<H: Harness>(h: &H) {
    let mut tasks = Vec::new();
    for process in 0..3 {
        let store = h.open().await;
        for task in 0..3 {
            let stream = store.stream("stream").unwrap();
            tasks.push(tokio::spawn(async move {
                for round in 0..4 {
                    let payload = process * 100 + task * 10 + round;
                    let given = stream.publish_batch(&[(None, payload); 5]).await.unwrap();
                    assert!(
                        given.windows(2).all(|pair| pair[1] == pair[0] + 1),
                        "{given:?}"
                    );
                }
            }));
        }
    }
    for task in tasks {
        within(h, task).await.unwrap();
    }
    let events = read_all(&h.open().await, "stream").await;
    assert_eq!(offsets(&events), (1..=180).collect::<Vec<_>>());
    for batch in numbers(&events).chunks(5) {
        assert!(
            batch.iter().all(|payload| *payload == batch[0]),
            "{batch:?}"
        );
    }
}

/// Of two transactions that publish at once, the one that publishes first and commits last
/// is read too, by who reads on from the greatest offset it has seen.
pub(super) async fn an_event_that_commits_late_is_not_skipped<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let reader = h.open().await;
    let stream = reader.stream("stream").unwrap();
    let mut late = store.begin_tx().await.unwrap();
    late.publish_tx("stream", &1).await.unwrap();
    let early = tokio::spawn(async move {
        other
            .with_tx(async |tx| tx.publish_tx("stream", &2).await)
            .await
    });
    // Time for the second to commit first, on an engine that lets it.
    tokio::time::sleep(h.quiet()).await;
    let mut read = stream.read_since(0, 10).await.unwrap();
    late.commit().await.unwrap();
    within(h, early).await.unwrap().unwrap();
    let last = read.last().map_or(0, |event| event.offset);
    read.extend(stream.read_since(last, 10).await.unwrap());
    assert_eq!(offsets(&read), [1, 2]);
    let mut payloads = numbers(&read);
    payloads.sort_unstable();
    assert_eq!(payloads, [1, 2]);
}

/// A transaction that has published and takes its time hides no event for good, whether it
/// commits or rolls back in the end.
pub(super) async fn a_slow_transaction_hides_no_event_of_others<H: Harness>(h: &H) {
    for commits in [true, false] {
        let name = format!("commits: {commits}");
        let (store, other) = (h.open().await, h.open().await);
        let mut events = store
            .stream(&name)
            .unwrap()
            .subscribe("consumer")
            .await
            .unwrap();
        let mut slow = store.begin_tx().await.unwrap();
        slow.publish_tx(&name, &0).await.unwrap();
        let stream = other.stream(&name).unwrap();
        let fast = tokio::spawn(async move {
            for payload in 1..=3 {
                stream.publish(&payload).await.unwrap();
            }
        });
        let mut read = Vec::new();
        let early = tokio::time::timeout(h.quiet(), events.recv()).await;
        read.extend(early.ok().flatten().map(|event| event.unwrap()));
        if commits {
            slow.commit().await.unwrap()
        } else {
            slow.rollback().await.unwrap()
        }
        let all = if commits { 4 } else { 3 };
        while read.len() < all {
            read.push(within(h, events.recv()).await.unwrap().unwrap());
        }
        within(h, fast).await.unwrap();
        assert_eq!(offsets(&read), (1..).take(all).collect::<Vec<_>>());
        let mut payloads = numbers(&read);
        payloads.sort_unstable();
        assert_eq!(
            payloads,
            (4 - i64::try_from(all).unwrap()..=3).collect::<Vec<_>>()
        );
        never(h, events.recv()).await;
    }
}

/// Who reads from offset to offset while others publish, commit and roll back sees each
/// offset once, in order, without a gap.
pub(super) async fn no_event_is_skipped_by_a_concurrent_reader<H: Harness>(h: &H) {
    let reader = h.open().await;
    let stream = reader.stream("stream").unwrap();
    let (stop, mut stopped) = oneshot::channel();
    let reading = tokio::spawn(async move {
        let mut read = Vec::new();
        loop {
            let last_round = stopped.try_recv().is_ok();
            let from = i64::try_from(read.len()).unwrap();
            for event in stream.read_since(from, 7).await.unwrap() {
                read.push(event.offset);
            }
            if last_round && from == i64::try_from(read.len()).unwrap() {
                return read;
            }
            if last_round {
                let rest = stream
                    .read_since(i64::try_from(read.len()).unwrap(), i64::MAX)
                    .await;
                read.extend(offsets(&rest.unwrap()));
                return read;
            }
            tokio::task::yield_now().await;
        }
    });
    let mut publishing = Vec::new();
    for process in 0..3 {
        publishing.push(publish_half(h.open().await, 14, process * 1000));
    }
    let mut kept = 0;
    for task in publishing {
        kept += within(h, task).await.unwrap().unwrap().len();
    }
    stop.send(()).unwrap();
    let read = within(h, reading).await.unwrap();
    assert_eq!(read, (1..).take(2 * kept).collect::<Vec<_>>());
}

/// Nor is one skipped by who subscribes.
pub(super) async fn no_event_is_skipped_by_a_concurrent_subscriber<H: Harness>(h: &H) {
    let reader = h.open().await;
    let mut events = reader
        .stream("stream")
        .unwrap()
        .subscribe("consumer")
        .await
        .unwrap();
    let mut publishing = Vec::new();
    for process in 0..3 {
        publishing.push(publish_half(h.open().await, 14, process * 1000));
    }
    // Each of the three commits 7 transactions with two events.
    for expected in 1..=42 {
        let event = within(h, events.recv()).await.unwrap().unwrap();
        assert_eq!(event.offset, expected);
    }
    for task in publishing {
        within(h, task).await.unwrap().unwrap();
    }
    never(h, events.recv()).await;
}

/// Transactions that publish to the same streams in opposite order all end: done, or with an
/// error that trying again mends, and then it does.
pub(super) async fn publishers_of_several_streams_do_not_block_for_ever<H: Harness>(h: &H) {
    let mut tasks = Vec::new();
    for order in [["one", "two"], ["two", "one"]] {
        let store = h.open().await;
        tasks.push(tokio::spawn(async move {
            for round in 0..3 {
                let both = async |tx: &mut Tx<H::Engine>| -> Result<()> {
                    tx.publish_tx(order[0], &round).await?;
                    tokio::task::yield_now().await;
                    tx.publish_tx(order[1], &round).await.map(drop)
                };
                while let Err(error) = store.with_tx(both).await {
                    assert!(error.is_transient(), "{error:?}");
                }
            }
        }));
    }
    for task in tasks {
        within(h, task).await.unwrap();
    }
    let store = h.open().await;
    for stream in ["one", "two"] {
        let events = read_all(&store, stream).await;
        assert_eq!(offsets(&events), (1..=6).collect::<Vec<_>>());
    }
}

/// Trims at once, beside a publisher, count each event once and leave what is above them.
pub(super) async fn concurrent_trims_count_each_event_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (1..=30).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    let mut trims = Vec::new();
    for _ in 0..3 {
        let stream = h.open().await.stream("stream").unwrap();
        trims.push(tokio::spawn(async move {
            let mut trimmed = 0;
            for horizon in [5, 11, 20, 25] {
                trimmed += stream.trim_to(horizon).await.unwrap();
            }
            trimmed
        }));
    }
    stream.publish(&31).await.unwrap();
    let mut trimmed = 0;
    for trim in trims {
        trimmed += within(h, trim).await.unwrap();
    }
    assert_eq!(trimmed, 25);
    assert_eq!(
        offsets(&read_all(&store, "stream").await),
        [26, 27, 28, 29, 30, 31]
    );
}
