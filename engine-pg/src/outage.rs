//! How often something that fails is tried again, and how often the log says so.

use std::time::{Duration, Instant};

/// How long nothing is said after a warning, at first and at most.
const SILENCE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));
/// What fails again sooner than this has not been well.
const WELL: Duration = Duration::from_secs(5);

/// A series of failures of one thing.
#[derive(Debug)]
pub(crate) struct Outage {
    least: Duration,
    most: Duration,
    pause: Duration,
    silence: Duration,
    /// When the next warning is due, if there has been one.
    warn_at: Option<Instant>,
    /// Since when it has been well.
    well_since: Option<Instant>,
}

impl Outage {
    /// Pauses from `least` on, twice as long each time, up to `most`.
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most,
            pause: least,
            silence: SILENCE.0,
            warn_at: None,
            well_since: None,
        }
    }

    /// It works again.
    pub(crate) fn is_over(&mut self, now: Instant) {
        self.pause = self.least;
        self.well_since.get_or_insert(now);
    }

    /// It failed once more; whether to warn of it.
    pub(crate) fn is_to_be_told(&mut self, now: Instant) -> bool {
        if self
            .well_since
            .take()
            .is_some_and(|since| now - since >= WELL)
        {
            self.warn_at = None;
            self.silence = SILENCE.0;
        }
        if self.warn_at.is_some_and(|at| now < at) {
            return false;
        }
        self.warn_at = Some(now + self.silence);
        self.silence = (self.silence * 2).min(SILENCE.1);
        true
    }

    /// The pause before the next attempt. At any moment of an outage many processes try: they
    /// must not do it in step.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.most);
        pause.mul_f64(fastrand::f64().mul_add(0.5, 0.75))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_of_a_few_times() {
        let mut outage = Outage::new(Duration::from_millis(50), Duration::from_millis(1200));
        let began = Instant::now();
        let (mut now, mut attempts, mut told) = (began, 0, 0);
        while now - began < Duration::from_secs(20) {
            attempts += 1;
            told += u32::from(outage.is_to_be_told(now));
            now += outage.pause();
        }
        assert!((15..28).contains(&attempts), "{attempts} attempts");
        assert!((2..=5).contains(&told), "{told} warnings");
        // A session that is let in and lost at once is the same outage.
        outage.is_over(now);
        assert!(!outage.is_to_be_told(now));
        outage.is_over(now);
        assert!(outage.is_to_be_told(now + WELL));
    }

    #[test]
    fn pauses_grow() {
        let mut outage = Outage::new(Duration::from_millis(50), Duration::from_millis(1200));
        for expected in [50, 100, 200, 400, 800, 1200, 1200] {
            let (pause, expected) = (outage.pause(), Duration::from_millis(expected));
            assert!(pause >= expected.mul_f64(0.75) && pause <= expected.mul_f64(1.25));
        }
        outage.is_over(Instant::now());
        assert!(outage.pause() < Duration::from_millis(100));
    }
}
