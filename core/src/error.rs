//! The one error type of the contract.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The result of every fallible operation of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Arc<dyn StdError + Send + Sync>;

/// What can go wrong, one variant for each thing that a caller can act on.
///
/// No work, a lost race, a refused handle operation and a lost lock are values
/// (`None`, `false`, an empty list), never errors.
///
/// Every operation checks its names first, then its other arguments, then encodes its payload,
/// and then finds the store open or closed: a call that is wrong by itself says so in any case.
/// Text that came from the caller is
/// shown with its control characters escaped.
///
/// `{}` shows what failed. `{:#}` adds the causes, on one line: that is what logs want. Crates
/// that print a chain of sources, such as anyhow, show each text once.
///
/// ```
/// use alkstore::Error;
///
/// fn advice(error: &Error) -> &'static str {
///     match error {
///         Error::PayloadTooLarge { .. } => "send a reference instead",
///         error if error.is_transient() => "try again",
///         _ => "mend the call",
///     }
/// }
/// assert_eq!(advice(&Error::PayloadTooLarge { limit: 8000 }), "send a reference instead");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The encoded payload of a notify is not below the engine's limit.
    #[error("the encoded payload must be shorter than {limit} bytes")]
    PayloadTooLarge {
        /// The first size in bytes that is refused.
        limit: usize,
    },
    /// The name starts with the prefix that the library keeps for itself.
    #[error("the name {} is reserved: it starts with `__alkstore_`", Shown(name))]
    ReservedName {
        /// The name as it was given.
        name: String,
    },
    /// The name breaks a rule that all engines share.
    #[error("the name {} is invalid: {reason}", Shown(name))]
    InvalidName {
        /// The name as it was given.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The schedule's spec is not `@every <n><unit>`.
    #[error("the schedule spec {} is invalid: {reason}", Shown(spec))]
    InvalidSpec {
        /// The spec as it was given.
        spec: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An argument is outside what the operation accepts; nothing was done.
    #[error("the argument `{argument}` is {}: {reason}", Shown(value))]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// The value as it was given.
        value: String,
        /// What would be accepted.
        reason: Cow<'static, str>,
    },
    /// `run_schedules` led and another runner took over.
    #[error("the scheduler's leadership was lost to another runner")]
    LeadershipLost,
    /// The receiver is closed for good: its store was closed or its database is gone.
    #[error("the receiver is closed")]
    Closed,
    /// A payload cannot be encoded, or stored bytes cannot be decoded as asked.
    #[error(transparent)]
    Codec(CodecError),
    /// The database refused or could not be reached; the source chain has the details.
    #[error(transparent)]
    Database(DatabaseError),
}

impl Error {
    /// A database error that trying again does not mend.
    ///
    /// `context` says what failed; `source` is the driver's own error.
    ///
    /// ```
    /// let error = alkstore::Error::database("cannot read the schema", std::fmt::Error);
    /// assert!(!error.is_transient());
    /// ```
    pub fn database(
        context: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Database(DatabaseError {
            context: context.into(),
            transient: false,
            source: Some(Source::from(source.into())),
        })
    }

    /// A database error that may pass: a lock that was held, a lost connection.
    ///
    /// ```
    /// let error = alkstore::Error::transient("the writer is busy", std::fmt::Error);
    /// assert!(error.is_transient());
    /// ```
    pub fn transient(
        context: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Database(DatabaseError {
            context: context.into(),
            transient: true,
            source: Some(Source::from(source.into())),
        })
    }

    /// The error of every operation that starts after the store was closed.
    #[must_use]
    pub fn store_closed() -> Self {
        Self::database(
            "the store is closed: the operation was not started",
            StoreClosed,
        )
    }

    /// Whether trying the same call again can help: a lock timeout, a serialization
    /// failure, a deadlock, a lost connection, an exhausted pool, a busy disk.
    ///
    /// Inside a transaction it is the whole transaction that has to be tried again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Database(error) if error.transient)
    }

    /// The same failure for one more of those whom it keeps from being served.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Database(error) => Self::Database(DatabaseError {
                context: error.context.clone(),
                transient: error.transient,
                source: error.source.clone(),
            }),
            other => Self::database(other.to_string(), "it was done together with others"),
        }
    }

    /// The same failure as a [`Error::Database`], for places that promise only that.
    pub(crate) fn into_database(self) -> Self {
        match self {
            Self::Database(_) => self,
            other => Self::database("the event could not be read", other),
        }
    }
}

/// The store was closed before the operation began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`Store::close` was called before")]
pub struct StoreClosed;

/// A failure of the database, with the driver's error as its source.
#[derive(Debug)]
pub struct DatabaseError {
    context: Cow<'static, str>,
    transient: bool,
    source: Option<Source>,
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.context))?;
        write_causes(f, self)
    }
}

impl StdError for DatabaseError {
    /// The driver's error, or the error in it, where the driver's only repeats its text.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let mut cause: &(dyn StdError + 'static) = self.source.as_deref()?;
        while let Some(inner) = cause.source()
            && cause.to_string().contains(&inner.to_string())
        {
            cause = inner;
        }
        Some(cause)
    }
}

/// Adds the causes of an error to its text, where `{:#}` asks for them.
fn write_causes(f: &mut fmt::Formatter<'_>, error: &dyn StdError) -> fmt::Result {
    let mut next = error.source().filter(|_| f.alternate());
    while let Some(cause) = next {
        write!(f, ": {}", Escaped(&cause.to_string()))?;
        next = cause.source();
    }
    Ok(())
}

/// A payload that could not be encoded or decoded.
#[derive(Debug)]
pub struct CodecError {
    pub(crate) context: &'static str,
    pub(crate) source: serde_json::Error,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.context)?;
        write_causes(f, self)
    }
}

impl StdError for CodecError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.source)
    }
}

/// A caller's text in quotes, escaped and cut, so that a log line stays one line.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        match self.0.char_indices().nth(MOST) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}… ({} bytes)", &self.0[..end], self.0.len()),
        }
    }
}

/// Text with its control characters escaped and everything else as it is.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() {
                write!(f, "{}", c.escape_default())
            } else {
                write!(f, "{c}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_escape_control_characters() {
        let error = Error::ReservedName {
            name: "__alkstore_\u{1b}[31m\n".into(),
        };
        assert_eq!(error.to_string().lines().count(), 1);
        assert!(!error.to_string().contains('\u{1b}'));
        let error = Error::database("while reading \"a\nb\"", std::fmt::Error);
        assert_eq!(error.to_string().lines().count(), 1);
    }

    #[test]
    fn the_source_chain_reaches_the_cause() {
        let error = Error::store_closed();
        let cause = error.source().expect("a database error has a source");
        assert!(cause.downcast_ref::<StoreClosed>().is_some());
    }

    /// A driver's error that shows its cause and gives it again.
    #[derive(Debug, thiserror::Error)]
    #[error("the driver says: {0}")]
    struct Repeating(#[source] StoreClosed);

    fn every_variant() -> Vec<Error> {
        let (name, reason) = ("a name".to_owned(), "a reason");
        let codec = crate::payload::decode::<u8>(b"[]").expect_err("a list is no number");
        let unencodable = std::collections::BTreeMap::from([((), ())]);
        let encoding = crate::payload::encode(&unencodable).expect_err("keys are text");
        vec![
            Error::PayloadTooLarge { limit: 8000 },
            Error::ReservedName { name: name.clone() },
            Error::InvalidName {
                name: name.clone(),
                reason,
            },
            Error::InvalidSpec {
                spec: name.clone(),
                reason,
            },
            Error::InvalidArgument {
                argument: "n",
                value: name,
                reason: reason.into(),
            },
            Error::LeadershipLost,
            Error::Closed,
            codec,
            encoding,
            Error::store_closed(),
            Error::store_closed().share(),
            Error::LeadershipLost.share(),
            Error::LeadershipLost.into_database(),
            Error::transient("reading failed", Repeating(StoreClosed)),
            Error::database("reading failed", Error::store_closed()),
        ]
    }

    #[test]
    fn a_printed_chain_has_each_text_once() {
        for error in every_variant() {
            let mut texts = vec![error.to_string()];
            let mut next = error.source();
            while let Some(cause) = next {
                texts.push(cause.to_string());
                next = cause.source();
            }
            for (n, text) in texts.iter().enumerate() {
                assert!(!text.is_empty(), "{texts:?}");
                let others = texts.iter().enumerate().filter(|(other, _)| *other != n);
                let repeated = others.filter(|(_, other)| other.contains(text.as_str()));
                assert_eq!(repeated.count(), 0, "{texts:?}");
            }
            assert_eq!(format!("{error:#}"), texts.join(": "));
        }
    }

    #[test]
    fn long_text_is_cut() {
        let error = Error::InvalidName {
            name: "é".repeat(500),
            reason: "too long",
        };
        assert!(error.to_string().len() < 400);
        assert!(error.to_string().contains("(1000 bytes)"));
    }
}
