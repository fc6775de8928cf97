//! Streams under publishers that commit in every order.

use std::time::Duration;

use alkstore::Store;
use alkstore_postgres::{Postgres, PostgresOptions};
use futures::future::join_all;

use crate::support::{database, open, open_with, soon};

/// Publishers that meet on one stream, some of them rolling back, hide no event from any
/// reader: whoever has read an offset has been able to read all below it.
#[tokio::test(flavor = "multi_thread")]
async fn no_interleaving_hides_an_event() {
    let database = database();
    let stores = join_all((0..3).map(|_| open(&database))).await;
    for seed in 0..200 {
        let name = format!("stream {seed}");
        let publishers = (0..4).map(|publisher| {
            let store = stores[publisher % stores.len()].clone();
            tokio::spawn(publish(store, name.clone(), seed * 4 + publisher as u64))
        });
        let publishers: Vec<_> = publishers.collect();
        let readers: Vec<_> = stores
            .iter()
            .map(|store| tokio::spawn(follow(store.clone(), name.clone())))
            .collect();
        let mut published = Vec::new();
        for publisher in publishers {
            published.extend(soon(publisher).await.unwrap());
        }
        let end = stores[0]
            .stream(&name)
            .unwrap()
            .publish(&u64::MAX)
            .await
            .unwrap();
        published.sort_unstable();
        let (offsets, _): (Vec<_>, Vec<_>) = published.iter().copied().unzip();
        assert_eq!(
            offsets,
            (1..end).collect::<Vec<_>>(),
            "seed {seed}: offsets are dense"
        );
        for reader in readers {
            let read = soon(reader).await.unwrap();
            assert_eq!(read, published, "seed {seed}");
        }
    }
}

/// A few transactions with publishes in them; what committed, by offset.
async fn publish(store: Store<Postgres>, name: String, seed: u64) -> Vec<(i64, u64)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut committed = Vec::new();
    for nth in 0..2 {
        let mut tx = store.begin_tx().await.unwrap();
        let mut mine = Vec::new();
        for part in 0..random.u64(1..3) {
            let payload = (seed << 8) + nth * 16 + part;
            mine.push((tx.publish_tx(&name, &payload).await.unwrap(), payload));
            for _ in 0..random.u8(0..4) {
                tokio::task::yield_now().await;
            }
        }
        match random.u8(0..4) {
            0 => tx.rollback().await.unwrap(),
            1 => drop(tx),
            _ => {
                tx.commit().await.unwrap();
                committed.extend(mine);
            }
        }
    }
    committed
}

/// Reads to the end, always after the last offset that was there.
async fn follow(store: Store<Postgres>, name: String) -> Vec<(i64, u64)> {
    let stream = store.stream(&name).unwrap();
    let mut read = Vec::new();
    loop {
        let after = read.last().map_or(0, |(offset, _)| *offset);
        for event in stream.read_since(after, 3).await.unwrap() {
            match event.payload_as().unwrap() {
                u64::MAX => return read,
                payload => read.push((event.offset, payload)),
            }
        }
    }
}

/// Two transactions that publish to one stream do so one after the other, and the second goes
/// on where the first one's end left the stream.
#[tokio::test]
async fn a_second_publisher_waits_for_the_first_ones_end() {
    let database = database();
    let store = open(&database).await;
    let stream = store.stream("stream").unwrap();
    for commit in [true, false] {
        let head = stream.publish(&0).await.unwrap();
        let mut first = store.begin_tx().await.unwrap();
        assert_eq!(first.publish_tx("stream", &1).await.unwrap(), head + 1);
        let mut second = Box::pin(stream.publish(&2));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
        assert!(early.is_err(), "the second did not wait");
        assert_eq!(stream.read_since(head, 9).await.unwrap().len(), 0);
        let expected = if commit {
            first.commit().await.unwrap();
            head + 2
        } else {
            first.rollback().await.unwrap();
            head + 1
        };
        assert_eq!(soon(second).await.unwrap(), expected);
    }
}

/// A publisher that waits too long for another gives up with a transient error.
#[tokio::test]
async fn a_wait_ends_at_its_deadline() {
    let database = database();
    let patient = open(&database).await;
    let options = PostgresOptions::new().operation_timeout(Duration::from_secs(1));
    let store = open_with(&database, options).await;
    let mut first = patient.begin_tx().await.unwrap();
    first.publish_tx("stream", &1).await.unwrap();
    let error = soon(store.stream("stream").unwrap().publish(&2))
        .await
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    first.commit().await.unwrap();
    assert!(store.stream("stream").unwrap().publish(&3).await.is_ok());
}

/// Batches over several streams in different orders do not meet in a deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn batches_over_several_streams_do_not_deadlock() {
    use alkstore::engine::{At, NewEvent, Streams as _};
    let database = database();
    let store = open(&database).await;
    let publishers = (0..8).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut names = ["a", "b", "c", "d"];
            fastrand::Rng::with_seed(n).shuffle(&mut names);
            let event = |stream| NewEvent {
                stream,
                key: None,
                payload: b"1",
            };
            let events: Vec<_> = names.into_iter().chain(names).map(event).collect();
            for _ in 0..20 {
                let offsets = store
                    .engine()
                    .append_events(At::Auto, &events)
                    .await
                    .unwrap();
                let (first, second) = offsets.split_at(4);
                assert!(std::iter::zip(first, second).all(|(first, second)| first + 1 == *second));
            }
        })
    });
    for publisher in join_all(publishers).await {
        publisher.unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        let events = store
            .stream(name)
            .unwrap()
            .read_since(0, 1000)
            .await
            .unwrap();
        let offsets: Vec<_> = events.iter().map(|event| event.offset).collect();
        assert_eq!(offsets, (1..=320).collect::<Vec<_>>());
    }
}
