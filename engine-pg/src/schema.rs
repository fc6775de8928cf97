//! The schema: its name, and the statements that work on it.

mod migrate;

use alkstore::{Error, Result};

use crate::{lock, notify, queue, scheduler, stream};

/// The longest name that a server keeps whole, in bytes.
pub(crate) const LONGEST_NAME: usize = 63;

/// Every statement of the engine, by mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) queue: queue::Statements,
    pub(crate) stream: stream::Statements,
    pub(crate) lock: lock::Statements,
    pub(crate) notify: notify::Statements,
    pub(crate) schedule: scheduler::Statements,
}

/// The schema's name, checked.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let reason = if name.is_empty() {
            "it must not be empty"
        } else if name.len() > LONGEST_NAME {
            "it must not be longer than 63 bytes"
        } else if name.contains('\0') {
            "it must not contain a NUL character"
        } else {
            return Ok(Self {
                name: name.to_owned(),
            });
        };
        Err(Error::InvalidArgument {
            argument: "schema",
            value: name.to_owned(),
            reason: reason.into(),
        })
    }

    /// The name as it stands in SQL.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.name.replace('"', "\"\""))
    }

    /// A number that stands for the schema, the same in every process.
    pub(crate) fn number(&self) -> u64 {
        // FNV-1a: the standard library's hashes differ from one version to the next.
        self.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    pub(crate) fn statements(&self) -> Statements {
        let (schema, channel) = (&self.quoted(), &notify::internal_channel(self));
        Statements {
            queue: queue::Statements::new(schema, channel),
            stream: stream::Statements::new(schema, channel),
            lock: lock::Statements::new(schema),
            notify: notify::Statements::new(channel),
            schedule: scheduler::Statements::new(schema, channel),
        }
    }
}

/// A text as it stands in SQL, whatever the session's `standard_conforming_strings`.
pub(crate) fn literal(text: &str) -> String {
    let text = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\"))
    } else {
        format!("'{text}'")
    }
}

/// SQL for the server's time in unix seconds when the statement began, moved by the argument `$1`.
pub(crate) const NOW: &str = "(floor(date_part('epoch', statement_timestamp()))::bigint \
     + least($1::bigint, 9223372036854775807 \
         - floor(date_part('epoch', statement_timestamp()))::bigint))";

/// SQL for the time as it is read, moved in the same way: for what has waited for others before.
pub(crate) const CLOCK: &str = "least(floor(date_part('epoch', clock_timestamp()))::numeric \
     + $1::bigint, 9223372036854775807)::bigint";

/// SQL for a sum of two numbers that stays at the end of the range.
pub(crate) fn sum(a: &str, b: &str) -> String {
    const MOST: &str = "9223372036854775807";
    const LEAST: &str = "(-9223372036854775808)::bigint";
    format!(
        "CASE WHEN {b} > 0 AND {a} > {MOST} - {b} THEN {MOST} \
         WHEN {b} < 0 AND {a} < {LEAST} - {b} THEN {LEAST} ELSE {a} + {b} END"
    )
}

/// The same where `b` is not negative, with each of them once or twice.
pub(crate) fn sum_up(a: &str, b: &str) -> String {
    format!("({a} + least({b}, 9223372036854775807 - greatest({a}, 0)))")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_bounded() {
        let odd = Schema::new("My \"odd\" schema").expect("a legal name");
        assert_eq!(odd.quoted(), "\"My \"\"odd\"\" schema\"");
        assert!(Schema::new(&"é".repeat(31)).is_ok());
        for refused in ["", "a\0b", &"é".repeat(32)] {
            let error = Schema::new(refused).expect_err("an illegal name");
            assert!(matches!(
                error,
                Error::InvalidArgument {
                    argument: "schema",
                    ..
                }
            ));
        }
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\'b"), r"E'a\\''b'");
    }

    #[test]
    fn schemas_have_numbers_of_their_own() {
        let number = |name| Schema::new(name).expect("a legal name").number();
        assert_eq!(number("alkstore"), number("alkstore"));
        assert_ne!(number("alkstore"), number("alkstorf"));
    }
}
