//! The rules that every name obeys, on every engine alike.

use crate::{Error, Result};

/// The longest name in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// What names of the library's own start with; no shared name may.
pub const RESERVED_PREFIX: &str = "__alkstore_";

/// The channel of the wake that every receiver gets after its engine's connection for
/// notifications was lost and made anew.
pub const LISTENER_RECONNECTED: &str = "__alkstore_listener_reconnected__";

/// The lock that the leading scheduler holds.
pub const SCHEDULER_LOCK: &str = "__alkstore_scheduler";

/// The queue behind an outbox.
pub(crate) fn outbox_queue(outbox: &str) -> String {
    format!("{RESERVED_PREFIX}outbox:{outbox}")
}

/// Checks a name that all users of a database share: of a channel, a stream, a queue, an
/// outbox, a lock, a schedule.
pub(crate) fn check_shared(name: &str) -> Result<()> {
    check_local(name)?;
    if name.starts_with(RESERVED_PREFIX) {
        return Err(Error::ReservedName {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// Checks an event's key: any text that databases store, of any length. It is no name: it is
/// carried, and nothing is found by it.
pub(crate) fn check_key(key: &str) -> Result<()> {
    let reason = if key.is_empty() {
        "an empty key is none; publish without a key"
    } else if key.as_bytes().contains(&0) {
        CONTAINS_NUL
    } else {
        return Ok(());
    };
    Err(Error::InvalidName {
        name: key.to_owned(),
        reason,
    })
}

const CONTAINS_NUL: &str = "it contains a NUL character";

/// Checks a name that means something only beside a shared one: a stream's consumer, a
/// lock's owner, a worker.
#[inline]
pub(crate) fn check_local(name: &str) -> Result<()> {
    // Most names begin with a letter; then nothing has to be trimmed to see that they are not
    // blank.
    let begun = name.as_bytes().first().is_some_and(u8::is_ascii_graphic);
    if begun && name.len() <= MAX_NAME_BYTES && !name.as_bytes().contains(&0) {
        Ok(())
    } else {
        check_closely(name)
    }
}

#[cold]
fn check_closely(name: &str) -> Result<()> {
    let reason = if name.trim().is_empty() {
        "it is empty or blank"
    } else if name.len() > MAX_NAME_BYTES {
        "it is longer than 255 bytes"
    } else if name.as_bytes().contains(&0) {
        CONTAINS_NUL
    } else {
        return Ok(());
    };
    Err(Error::InvalidName {
        name: name.to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("orders")]
    #[case::longest(&"x".repeat(255))]
    #[case::emoji("🦀 'quoted' \"twice\"\n")]
    fn accepted(#[case] name: &str) {
        assert!(check_shared(name).is_ok());
        assert!(check_local(name).is_ok());
    }

    #[rstest]
    #[case::empty("")]
    #[case::blank(" \t\n")]
    #[case::nul("a\0b")]
    #[case::too_long(&"x".repeat(256))]
    #[case::too_long_in_bytes(&"é".repeat(128))]
    fn refused(#[case] name: &str) {
        assert!(matches!(check_shared(name), Err(Error::InvalidName { .. })));
        assert!(matches!(check_local(name), Err(Error::InvalidName { .. })));
    }

    #[test]
    fn a_key_is_any_text_but_empty_or_with_a_nul() {
        for key in [" ", "\n", RESERVED_PREFIX, &"k".repeat(1 << 20)] {
            assert!(check_key(key).is_ok());
        }
        for key in ["", "a\0b"] {
            assert!(matches!(check_key(key), Err(Error::InvalidName { .. })));
        }
    }

    #[test]
    fn only_shared_names_reserve_the_prefix() {
        assert!(matches!(
            check_shared(SCHEDULER_LOCK),
            Err(Error::ReservedName { .. })
        ));
        assert!(check_local(SCHEDULER_LOCK).is_ok());
    }
}
