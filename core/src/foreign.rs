//! Calls of the application's code that must not take the library's with it.

use std::any::Any;
use std::fmt::{Display, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The text of an error that the application made, which is dropped then. Formatting it may
/// fail or panic, and so may dropping it.
pub(crate) fn error_text(error: impl Display) -> String {
    let mut text = String::new();
    // What a panic leaves is text, whole or not.
    let formatted = catch_unwind(AssertUnwindSafe(|| write!(text, "{error:#}")));
    drop_quietly(error);
    let reason = match formatted {
        Ok(Ok(())) => return text,
        Ok(Err(_)) => "the error could not be formatted".to_owned(),
        Err(panic) => format!("formatting the error panicked: {}", panic_text(panic)),
    };
    if text.is_empty() {
        reason
    } else {
        format!("{text} ({reason})")
    }
}

/// The text of a panic, whose payload is dropped then.
pub(crate) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message").to_owned();
    drop_quietly(panic);
    text
}

/// Drops a value of the application's, whose `Drop` may panic.
fn drop_quietly<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // This one could panic again, and so on: a leak is the end of it.
        std::mem::forget(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    struct Evil {
        said: &'static str,
        panics: bool,
    }

    impl Display for Evil {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.said)?;
            assert!(!self.panics, "while formatting");
            Err(fmt::Error)
        }
    }

    impl Drop for Evil {
        fn drop(&mut self) {
            std::panic::panic_any(Again);
        }
    }

    /// A payload that panics when it is dropped.
    struct Again;

    impl Drop for Again {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::panic_any(Self);
            }
        }
    }

    #[test]
    fn an_error_that_cannot_be_shown_has_a_text() {
        let text = |said, panics| error_text(Evil { said, panics });
        assert_eq!(text("", false), "the error could not be formatted");
        assert_eq!(
            text("so far", false),
            "so far (the error could not be formatted)"
        );
        assert!(text("", true).ends_with("panicked: while formatting"));
        assert_eq!(error_text("plain"), "plain");
    }

    #[test]
    fn a_panic_has_a_text_whatever_its_payload() {
        assert_eq!(panic_text(Box::new("text")), "text");
        assert_eq!(panic_text(Box::new(String::from("made"))), "made");
        assert_eq!(panic_text(Box::new(Again)), "no message");
    }
}
