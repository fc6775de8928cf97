use std::future::pending;

use alkstore::Error;

use super::*;
use crate::Harness;
use crate::support::{error_of, within};

/// A delivery that beats in time keeps the message to itself for longer than 60 seconds.
pub(super) async fn a_delivery_can_hold_its_claim<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let slow = async |message: Delivery<_>| {
        assert!(message.heartbeat(600).await?);
        h.advance(500);
        assert!(!outbox.run_once("other", unreachable_delivery).await?);
        let error = error_of(message.heartbeat(0).await);
        assert!(matches!(
            error,
            Error::InvalidArgument {
                argument: "extend",
                ..
            }
        ));
        assert!(message.heartbeat(600).await?);
        Ok::<_, Error>(())
    };
    assert!(outbox.run_once("w", slow).await.unwrap());
    assert_eq!(outbox.get_job(id).await.unwrap(), None);
}

/// A delivery longer than its claim is made again meanwhile, and its own end is ignored.
pub(super) async fn a_slow_delivery_is_repeated_and_its_end_does_not_count<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let mut in_between = None;
    let slow = async |message: Delivery<_>| {
        assert_eq!(message.attempts, 1);
        h.advance(62);
        assert!(!message.heartbeat(60).await?);
        let second = async |message: Delivery<_>| {
            assert_eq!((message.id, message.attempts), (id, 2));
            Err::<(), _>("not this time")
        };
        assert!(outbox.run_once("other", second).await?);
        in_between = Some(job(&outbox, id).await);
        Ok::<_, Error>(())
    };
    assert!(
        outbox.run_once("w", slow).await.unwrap(),
        "there was something to do"
    );
    let after = job(&outbox, id).await;
    assert_eq!(after.last_error.as_deref(), Some("not this time"));
    assert_eq!(Some(after), in_between);
}

/// Dropping `run_once` midway loses nothing: the message comes back when the lease is over.
pub(super) async fn a_dropped_delivery_is_repeated_after_its_lease<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let begun = tokio::sync::Notify::new();
    let stuck = outbox.run_once("w", async |_| {
        begun.notify_one();
        pending::<Result<(), Infallible>>().await
    });
    tokio::select! {
        biased;
        _ = stuck => unreachable!("the delivery never ends"),
        () = within(h, begun.notified()) => {}
    }
    assert!(!outbox.run_once("w", unreachable_delivery).await.unwrap());
    h.advance(62);
    let mut attempts = 0;
    let again = async |message: Delivery<_>| {
        attempts = message.attempts;
        Ok::<_, Infallible>(())
    };
    assert!(outbox.run_once("w", again).await.unwrap());
    assert_eq!(attempts, 2);
    assert_eq!(outbox.get_job(id).await.unwrap(), None);
}
