//! Opening a store whose engine is told by its URL.

use std::fmt;

use futures::future::BoxFuture;

use crate::{BoxedStore, Error, Open, Result, Store};

/// The engines that an application is built with, to open a [`BoxedStore`] by a URL or a path:
/// the service that moves to another database changes its configuration and no code.
///
/// ```
/// use alkstore::{BoxedStore, Drivers, Open, Result};
///
/// async fn open<Sqlite: Open, Postgres: Open>(url: &str) -> Result<BoxedStore> {
///     Drivers::new().with::<Sqlite>().with::<Postgres>().open(url).await
/// }
/// ```
#[derive(Default)]
pub struct Drivers(Vec<Driver>);

struct Driver {
    schemes: &'static [&'static str],
    open: for<'u> fn(&'u str) -> BoxFuture<'u, Result<BoxedStore>>,
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drivers").field(&self.known()).finish()
    }
}

impl Drivers {
    /// No engine yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an engine, which answers to its [`Open::SCHEMES`]. The first one that answers to a
    /// scheme is taken.
    #[must_use]
    pub fn with<E: Open>(mut self) -> Self {
        self.0.push(Driver {
            schemes: E::SCHEMES,
            open: |target| Box::pin(async move { Ok(Store::<E>::open(target).await?.boxed()) }),
        });
        self
    }

    /// Opens the database by the engine that answers to the target's scheme: what stands before
    /// its first `:`, or for a path the empty one. A single letter before the `:` is the drive
    /// of a path.
    ///
    /// A target without a scheme is a path only if it looks like one: it has a separator or a
    /// file ending, or is `:memory:`. Any other word is refused, since a wrong setting would
    /// otherwise open a new and empty database of that name; write `./name` for such a file.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] that lists the schemes, if no engine answers to this one, and
    /// for a blank target or one that is neither a URL nor a path; else as for [`Store::open`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Store::open`].
    ///
    /// ```
    /// # use alkstore::{Drivers, Open, Result};
    /// # async fn example<Sqlite: Open>() -> Result<()> {
    /// let store = Drivers::new().with::<Sqlite>().open("app.db").await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(&self, target: &str) -> Result<BoxedStore> {
        let scheme = scheme(target);
        if scheme.is_empty() {
            check_path(target)?;
        }
        let answers = |driver: &&Driver| {
            driver
                .schemes
                .iter()
                .any(|s| s.eq_ignore_ascii_case(scheme))
        };
        match self.0.iter().find(answers) {
            Some(driver) => (driver.open)(target).await,
            None => Err(Error::InvalidArgument {
                argument: "url",
                // The rest of a URL may hold a password.
                value: scheme.to_owned(),
                reason: format!(
                    "no engine answers to this scheme; known are {}",
                    self.known()
                )
                .into(),
            }),
        }
    }

    fn known(&self) -> String {
        let shown = |scheme: &&str| match *scheme {
            "" => "a path".to_owned(),
            scheme => format!("`{scheme}:`"),
        };
        let all: Vec<_> = self
            .0
            .iter()
            .flat_map(|driver| driver.schemes)
            .map(shown)
            .collect();
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        }
    }
}

/// Refuses what is no path: a wrong setting must not become a new database.
fn check_path(target: &str) -> Result<()> {
    // What a setting holds that is not a path may be a secret, so none of it is shown.
    let refused = |value: String, reason: &'static str| {
        Err(Error::InvalidArgument {
            argument: "url",
            value,
            reason: reason.into(),
        })
    };
    if target.trim().is_empty() {
        return refused(
            target.to_owned(),
            "it is blank; a URL or the path of a database file is needed",
        );
    }
    let hidden = || format!("{} characters without a scheme", target.chars().count());
    let of_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if let Some((key, _)) = target.split_once('=')
        && key.bytes().all(of_key)
    {
        return refused(
            hidden(),
            "it is a list of parameters; write it as a URL, such as \
             postgres://user@host:5432/database",
        );
    }
    let ending = target.rsplit_once('.').is_some_and(|(name, ending)| {
        let of_ending = |byte: u8| byte.is_ascii_alphanumeric();
        !name.is_empty() && !ending.is_empty() && ending.bytes().all(of_ending)
    });
    if ending || target.contains(['/', '\\']) || target == ":memory:" {
        return Ok(());
    }
    refused(
        hidden(),
        "it has no scheme, and neither a path separator nor a file ending; write `./name` for \
         a database file of such a name",
    )
}

/// The scheme of a URL: what stands before the first `:`, or the empty text if the target is no
/// URL. A single letter is the drive of a path. Schemes ignore case.
///
/// ```
/// use alkstore::engine::scheme;
///
/// assert_eq!(scheme("postgres://app@db/app"), "postgres");
/// assert_eq!(scheme("data/app.db"), "");
/// ```
#[must_use]
pub fn scheme(target: &str) -> &str {
    let Some((before, _)) = target.split_once(':') else {
        return "";
    };
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = before.len() > 1
        && before.starts_with(|first: char| first.is_ascii_alphabetic())
        && before.bytes().all(of_scheme);
    if is_scheme { before } else { "" }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("sqlite:app.db", "sqlite")]
    #[case("postgres://app@localhost/app", "postgres")]
    #[case("app.db", "")]
    #[case("/var/lib/app.db", "")]
    #[case(":memory:", "")]
    #[case("C:\\app.db", "")]
    #[case("./odd:name.db", "")]
    #[case("", "")]
    fn schemes(#[case] target: &str, #[case] expected: &str) {
        assert_eq!(scheme(target), expected);
    }

    #[rstest]
    #[case("", "blank")]
    #[case(" \t", "blank")]
    #[case("host=127.0.0.1 user=app password=secret", "list of parameters")]
    #[case("host=/var/run dbname=secret.db", "list of parameters")]
    #[case("secret", "neither")]
    #[case("secret.", "neither")]
    #[case("the secret.of us", "neither")]
    fn what_is_neither_a_url_nor_a_path_is_refused(#[case] target: &str, #[case] why: &str) {
        let error = check_path(target).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("`url`") && said.contains(why), "{said}");
        assert!(!said.contains("secret"), "{said}");
        let opened = Drivers::new().open(target).now_or_never();
        let error = opened.expect("nothing is waited for").map(drop);
        assert_eq!(error.unwrap_err().to_string(), said);
    }

    #[rstest]
    #[case("app.db")]
    #[case("./app")]
    #[case("/var/lib/app")]
    #[case("data\\app")]
    #[case("./user=app")]
    #[case(":memory:")]
    fn paths_are_accepted(#[case] target: &str) {
        check_path(target).expect("it is a path");
    }

    #[test]
    fn an_unknown_scheme_is_named_and_its_password_is_not() {
        let drivers = Drivers::new();
        let opened = drivers.open("redis://app:secret@localhost");
        let opened = opened.now_or_never().expect("nothing is waited for");
        let error = opened.map(drop).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("redis") && said.contains("known are none"),
            "{said}"
        );
        assert!(!said.contains("secret"), "{said}");
    }
}
