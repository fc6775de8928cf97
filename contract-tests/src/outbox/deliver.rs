use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alkstore::{Error, JobState};
use futures::future::join_all;

use super::*;
use crate::Harness;
use crate::support::{error_of, job_of, within};

/// Without a message `run_once` is `false` and delivers nothing.
pub(super) async fn an_empty_outbox_delivers_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    assert!(!outbox.run_once("w", unreachable_delivery).await.unwrap());
    let delayed = EnqueueOpts::default().delay(Duration::from_secs(60));
    outbox.enqueue(&1, delayed).await.unwrap();
    assert!(!outbox.run_once("w", unreachable_delivery).await.unwrap());
}

/// The delivery gets the message, and its `Ok` acks it.
pub(super) async fn a_delivery_that_succeeds_ends_the_message<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let id = outbox(&store)
        .enqueue(&("invoice", 7), EnqueueOpts::default())
        .await
        .unwrap();
    let outbox = outbox(&other);
    let waiting = job(&outbox, id).await;
    let mut seen = None;
    let delivery = async |message: Delivery<_>| {
        assert_eq!(
            message.payload_as::<(String, i32)>().unwrap(),
            ("invoice".to_owned(), 7)
        );
        assert_eq!(job(&outbox, id).await, *message);
        seen = Some(message.clone());
        Ok::<_, Infallible>(())
    };
    assert!(outbox.run_once("w", delivery).await.unwrap());
    let seen = seen.expect("it was delivered");
    let claimed_at = seen.claimed_at.expect("it is claimed");
    let expected = job_of! {
        state: JobState::Processing,
        attempts: 1,
        worker_id: Some("w".to_owned()),
        claimed_at: Some(claimed_at),
        claim_expires_at: Some(claimed_at + 60),
        ..waiting
    };
    assert_eq!(seen, expected);
    assert_eq!(outbox.get_job(id).await.unwrap(), None);
    assert!(!outbox.run_once("w", unreachable_delivery).await.unwrap());
}

/// Messages go by priority, `run_at` and id, and each call delivers one.
pub(super) async fn messages_go_in_the_order_of_a_queue<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    for (message, priority, run_at) in [(2, 0, 50), (1, 0, 20), (0, 3, 90), (3, 0, 50)] {
        let opts = EnqueueOpts::default().priority(priority).run_at(run_at);
        outbox.enqueue(&message, opts).await.unwrap();
    }
    let mut delivered = Vec::new();
    loop {
        let before = delivered.len();
        let delivery = async |message: Delivery<_>| {
            delivered.push(message.payload_as::<i32>()?);
            Ok::<_, Error>(())
        };
        if !outbox.run_once("w", delivery).await.unwrap() {
            break;
        }
        assert_eq!(delivered.len(), before + 1);
    }
    assert_eq!(delivered, [0, 1, 2, 3]);
}

/// A worker's name is checked before a message is claimed.
pub(super) async fn a_worker_needs_a_name<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    for bad in ["", " ", "a\0b"] {
        let error = error_of(outbox.run_once(bad, unreachable_delivery).await);
        assert!(
            matches!(&error, Error::InvalidName { name, .. } if name == bad),
            "{error:?}"
        );
    }
    assert_eq!(job(&outbox, id).await.attempts, 0);
}

/// Runners in several tasks and processes deliver each message once.
pub(super) async fn concurrent_runners_deliver_each_message_once<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await];
    let mut expected = BTreeMap::new();
    for message in 0..30 {
        outbox(&stores[0])
            .enqueue(&message, EnqueueOpts::default())
            .await
            .unwrap();
        expected.insert(message, 1);
    }
    let delivered = Arc::new(Mutex::new(BTreeMap::new()));
    let runners = stores.iter().flat_map(|store| [store; 3]).map(|store| {
        let (outbox, delivered) = (outbox(store), Arc::clone(&delivered));
        tokio::spawn(async move { while run_and_count(&outbox, &delivered).await {} })
    });
    for runner in within(h, join_all(runners)).await {
        runner.unwrap();
    }
    assert_eq!(*delivered.lock().unwrap(), expected);
}

async fn run_and_count<E: Engine>(
    outbox: &Outbox<E>,
    delivered: &Mutex<BTreeMap<i32, i32>>,
) -> bool {
    let delivery = |message: Delivery<E>| {
        let message = message.payload_as().unwrap();
        *delivered.lock().unwrap().entry(message).or_insert(0) += 1;
        async { Ok::<_, Infallible>(()) }
    };
    outbox.run_once("w", delivery).await.unwrap()
}
