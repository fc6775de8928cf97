//! The runtime that a store needs.

use std::panic::catch_unwind;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::{Error, Result};

/// Checks that the caller runs in a Tokio runtime with a time driver, which every wait of this
/// library and of the database drivers needs. Engines call it when they open.
///
/// # Errors
///
/// [`Error::Database`] that says what is missing.
///
/// ```
/// use alkstore::engine::check_runtime;
///
/// assert!(check_runtime().is_err(), "there is no runtime here");
/// ```
pub fn check_runtime() -> Result<()> {
    const OPENING: &str = "a store cannot be opened here";
    if Handle::try_current().is_err() {
        return Err(Error::database(
            OPENING,
            "there is no Tokio runtime: open the store inside of one, \
             for example within `Runtime::block_on`",
        ));
    }
    // Tokio tells of a missing time driver by a panic alone; here it goes no further.
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| {
        Error::database(
            OPENING,
            "the Tokio runtime has no time driver: build it with `enable_time` or `enable_all`",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn refusal() -> String {
        let error = check_runtime().expect_err("it is refused");
        error.source().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn a_missing_runtime_is_an_error() {
        assert!(refusal().contains("no Tokio runtime"), "{}", refusal());
    }

    #[test]
    fn a_missing_time_driver_is_an_error() {
        let bare = tokio::runtime::Builder::new_current_thread().build();
        let said = bare.expect("a runtime").block_on(async { refusal() });
        assert!(said.contains("no time driver"), "{said}");
    }

    #[test]
    fn a_whole_runtime_is_accepted() {
        let mut whole = tokio::runtime::Builder::new_current_thread();
        let whole = whole.enable_time().build().expect("a runtime");
        whole
            .block_on(async { check_runtime() })
            .expect("it is accepted");
    }
}
