//! Chance, from a seed: what is small, what is extreme, and how often.

use fastrand::Rng;
use serde::Serialize;

/// What jobs and events carry.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Payload {
    Nothing,
    Number(usize),
    /// Its keys are in no order.
    Record {
        b: (f64, Option<()>),
        a: &'static str,
    },
}

/// The source of all choices of one sequence.
#[derive(Debug)]
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    /// Whether what is rare happens.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of some choices.
    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Something, every other time.
    pub(super) fn maybe<T>(&mut self, some: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.bool().then(|| some(self))
    }

    /// Up to `most` of something.
    pub(super) fn some<T>(&mut self, most: usize, each: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| each(self)).collect()
    }

    /// What picks one of as many as there will be.
    pub(super) fn pick(&mut self) -> usize {
        self.0.u16(..).into()
    }

    /// What seeds the library's own chance.
    pub(super) fn luck(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Seconds as they are used: few, so that deadlines and the clock meet exactly at times.
    pub(super) fn seconds(&mut self) -> i64 {
        self.0.i64(1..=7)
    }

    /// Seconds from one end of time to the other, mostly few.
    pub(super) fn any_seconds(&mut self) -> i64 {
        match self.below(12) {
            0 => 0,
            1 => self.of(&[i64::MAX, i64::MAX - 1, i64::MIN, -1, -7, 3600]),
            _ => self.seconds(),
        }
    }

    /// Seconds that mostly make sense as a lease, and lapse soon.
    pub(super) fn lease(&mut self) -> i64 {
        match self.below(16) {
            0 => self.of(&[0, -1, i64::MIN]),
            1 => i64::MAX,
            _ => self.0.i64(1..=4),
        }
    }

    /// A limit of a read or a claim.
    pub(super) fn limit(&mut self) -> i64 {
        self.of(&[-1, 0, 1, 1, 2, 2, 3, 3, 5, 100, i64::MAX])
    }

    /// A place in a stream.
    pub(super) fn offset(&mut self) -> i64 {
        self.of(&[i64::MIN, -1, 0, 0, 1, 2, 3, 4, 5, 7, 9, 12, i64::MAX])
    }

    /// A payload, some of them not plain.
    pub(super) fn payload(&mut self) -> Payload {
        match self.below(4) {
            0 => Payload::Record {
                b: (1.5, None),
                a: "é\u{0}\n",
            },
            1 => Payload::Nothing,
            _ => Payload::Number(self.below(1000)),
        }
    }

    /// An event's key; a blank one is refused.
    pub(super) fn key(&mut self) -> Option<&'static str> {
        self.of(&[
            None,
            None,
            Some("k"),
            Some("a key"),
            Some("__alkstore_k"),
            Some(" "),
        ])
    }

    /// Which of two stores, streams, consumers.
    pub(super) fn two(&mut self) -> usize {
        self.below(2)
    }

    /// Which of two queues, outboxes, locks, schedules: mostly the first, so that much
    /// happens to one of them.
    pub(super) fn mostly_one(&mut self) -> usize {
        usize::from(self.one_in(4))
    }
}
