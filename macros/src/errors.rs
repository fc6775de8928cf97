//! Several errors at once: a mistake seldom comes alone.

use quote::ToTokens;
use syn::{Error, Result};

/// The errors so far, combined.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    /// Adds one that points at its cause.
    pub(crate) fn refuse(&mut self, cause: impl ToTokens, message: &str) {
        let error = Error::new_spanned(cause, message);
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn into_result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
