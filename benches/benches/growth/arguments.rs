//! What the measuring programs are told on their command lines, which criterion's benches get too.

use std::time::Duration;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Everything once, to see that it works.
    Token,
    /// A few seconds.
    Quick,
    /// As long as stable figures take.
    Full,
}

impl Length {
    /// One value for each length.
    pub(crate) fn pick<T>(self, token: T, quick: T, full: T) -> T {
        match self {
            Self::Token => token,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) length: Length,
    only: Vec<String>,
    engines: Vec<String>,
    minutes: Option<f64>,
}

/// Flags of criterion and cargo that stand alone; any other is taken to have a value.
const ALONE: [&str; 9] = [
    "--bench",
    "--discard-baseline",
    "--exact",
    "--list",
    "--nocapture",
    "--noplot",
    "--quiet",
    "--verbose",
    "-v",
];

impl Arguments {
    pub(crate) fn of_process() -> Self {
        Self::parse(std::env::args().skip(1))
    }

    fn parse(words: impl Iterator<Item = String>) -> Self {
        let mut parsed = Self {
            length: Length::Full,
            only: Vec::new(),
            engines: Vec::new(),
            minutes: None,
        };
        let mut words = words.peekable();
        let list = |words: Option<String>| -> Vec<String> {
            let words = words.expect("the option has a value");
            words.split(',').map(str::to_owned).collect()
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--test" | "--list" => parsed.length = Length::Token,
                "--quick" if parsed.length == Length::Full => parsed.length = Length::Quick,
                "--only" => parsed.only = list(words.next()),
                "--engine" => parsed.engines = list(words.next()),
                "--minutes" => {
                    let minutes = words.next().expect("--minutes has a value");
                    parsed.minutes = Some(minutes.parse().expect("--minutes is a number"));
                }
                alone if alone == "--quick" || ALONE.contains(&alone) => {}
                flag if flag.starts_with('-') => {
                    words.next_if(|value| !flag.contains('=') && !value.starts_with('-'));
                }
                // Criterion takes a free word as a part of the names of what it runs.
                _ => parsed.only.push(word),
            }
        }
        parsed
    }

    /// Whether a section was asked for.
    pub(crate) fn wants(&self, section: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == section)
    }

    /// Whether an engine was asked for.
    pub(crate) fn on(&self, engine: &str) -> bool {
        self.engines.is_empty() || self.engines.iter().any(|asked| asked == engine)
    }

    /// How long something is measured: `--minutes`, or `usual`.
    pub(crate) fn lasting(&self, usual: Duration) -> Duration {
        let asked = self.minutes.map(|minutes| minutes * 60.0);
        asked.map_or(usual, Duration::from_secs_f64)
    }
}
