//! The delay before a job is tried again, and the pauses of loops whose attempts fail.

use std::time::Duration;

/// The longest delay in seconds.
const MOST: i64 = 3600;

/// A delay in seconds, uniform over the whole seconds from half the cap, rounded up, to the
/// cap: `base` doubled for each attempt after the first, at most an hour. Half of it is
/// certain so that a retry is never at once, half is random so that jobs that failed
/// together do not come back together.
pub(crate) fn delay(base: i64, attempts: i64) -> i64 {
    let cap = cap(base, attempts);
    fastrand::i64(cap - cap / 2..=cap)
}

fn cap(base: i64, attempts: i64) -> i64 {
    let doublings = u32::try_from(attempts.saturating_sub(1).max(0)).unwrap_or(u32::MAX);
    let factor = 1_i64
        .checked_shl(doublings)
        .filter(|factor| *factor > 0)
        .unwrap_or(i64::MAX);
    base.max(0).saturating_mul(factor).min(MOST)
}

/// Pauses between attempts that fail: each up to twice as long as the one before, half of it
/// random, so that those who failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self {
            next: first,
            longest,
        }
    }

    /// The pause after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(5, 1, 5)]
    #[case(5, 2, 10)]
    #[case(5, 10, 2560)]
    #[case(5, 11, 3600)]
    #[case(5, 62, 3600)]
    #[case(5, 63, 3600)]
    #[case(5, 64, 3600)]
    #[case(5, 65, 3600)]
    #[case(1, i64::MAX, 3600)]
    #[case(i64::MAX, 1, 3600)]
    #[case(0, 30, 0)]
    #[case(7, 0, 7)]
    fn the_cap_doubles_up_to_an_hour(#[case] base: i64, #[case] attempts: i64, #[case] cap_s: i64) {
        assert_eq!(cap(base, attempts), cap_s);
    }

    #[test]
    fn the_delay_takes_every_second_from_half_the_cap_to_the_cap() {
        let mut seen: Vec<i64> = (0..2000).map(|_| delay(5, 2)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [5, 6, 7, 8, 9, 10]);
        assert!((0..2000).all(|_| (3..=5).contains(&delay(5, 1))));
        assert_eq!(delay(0, 9), 0);
    }

    #[test]
    fn pauses_grow_to_the_longest() {
        let ms = Duration::from_millis;
        let mut pauses = Pauses::between(ms(500), ms(4000));
        for cap in [500, 1000, 2000, 4000, 4000, 4000] {
            let pause = pauses.next();
            assert!((ms(cap / 2)..=ms(cap)).contains(&pause), "{pause:?}");
        }
    }
}
