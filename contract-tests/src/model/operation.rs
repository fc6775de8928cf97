//! What can happen, and how often.

use super::claim::ClaimOperation;
use super::dice::Dice;
use super::lock::LockOperation;
use super::outbox::OutboxOperation;
use super::queue::QueueOperation;
use super::scheduler::ScheduleOperation;
use super::stream::StreamOperation;
use super::tx::TxOperation;

/// One operation on the store of that number.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Queue(usize, QueueOperation),
    Claim(ClaimOperation),
    Stream(usize, StreamOperation),
    Lock(usize, LockOperation),
    Outbox(usize, OutboxOperation),
    Schedule(usize, ScheduleOperation),
    Tx(usize, TxOperation),
    /// The clock moves on.
    Advance(i64),
    /// The process ends, with or without a close, and another one starts.
    Reopen {
        store: usize,
        close: bool,
    },
    /// All jobs, events, offsets, locks and schedules.
    LookAtEverything,
}

/// What a sequence can be mostly about.
#[derive(Debug, Clone, Copy)]
enum Subject {
    Queues,
    Streams,
    Locks,
    Outboxes,
    Schedules,
    Transactions,
}

impl Subject {
    fn random(dice: &mut Dice) -> Self {
        match dice.below(20) {
            0..8 => Self::Queues,
            8..11 => Self::Streams,
            11..13 => Self::Locks,
            13..15 => Self::Outboxes,
            15..17 => Self::Schedules,
            _ => Self::Transactions,
        }
    }
}

impl Operation {
    /// As many random ones, and a look at everything.
    pub(super) fn sequence(seed: u64, operations: usize) -> Vec<Self> {
        let mut dice = Dice::new(seed);
        // Every other one is about one subject, so that more than a little happens to it.
        let favourite = Subject::random(&mut dice);
        let random = (0..operations).map(|_| Self::random(&mut dice, favourite));
        random.chain([Self::LookAtEverything]).collect()
    }

    fn random(dice: &mut Dice, favourite: Subject) -> Self {
        if dice.one_in(6) {
            return Self::Advance(if dice.one_in(12) {
                3600
            } else {
                dice.seconds()
            });
        }
        let store = dice.two();
        if dice.one_in(40) {
            let close = dice.one_in(2);
            return Self::Reopen { store, close };
        }
        let subject = match dice.one_in(2) {
            true => favourite,
            false => Subject::random(dice),
        };
        match subject {
            Subject::Queues if dice.one_in(3) => Self::Claim(ClaimOperation::random(dice)),
            Subject::Queues => Self::Queue(store, QueueOperation::random(dice)),
            Subject::Streams => Self::Stream(store, StreamOperation::random(dice)),
            Subject::Locks => Self::Lock(store, LockOperation::random(dice)),
            Subject::Outboxes => Self::Outbox(store, OutboxOperation::random(dice)),
            Subject::Schedules => Self::Schedule(store, ScheduleOperation::random(dice)),
            Subject::Transactions => Self::Tx(store, TxOperation::random(dice)),
        }
    }
}
