//! The URL of a database, and what is wrong with one.

use std::str::FromStr as _;

use alkstore::{Error, Result};
use sqlx::postgres::PgConnectOptions;

pub(super) fn parse(url: &str) -> Result<PgConnectOptions> {
    if let Some(parameter) = unknown_parameter(url) {
        return Err(Error::InvalidArgument {
            argument: "url",
            value: without_password(url),
            reason: format!(
                "it has the parameter {parameter:?}, which is none of {}",
                PARAMETERS.join(", ")
            )
            .into(),
        });
    }
    PgConnectOptions::from_str(url)
        .map(|options| match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("alkstore"),
        })
        // Servers write out all digits by themselves, and a pooler need not take the setting.
        .map(|options| options.extra_float_digits(None))
        .map_err(|error| Error::InvalidArgument {
            argument: "url",
            value: without_password(url),
            reason: format!(
                "it must be like `postgres://role:password@host:port/database`: {error}"
            )
            .into(),
        })
}

/// What the driver knows; it passes over all others with a warning, and a misspelt `sslmode`
/// would mean no encryption.
const PARAMETERS: [&str; 12] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// Other names that the driver knows the same by, and what is its own.
const OTHER_PARAMETERS: [&str; 7] = [
    "ssl-mode",
    "ssl-root-cert",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "statement-cache-capacity",
    "",
];

/// The first parameter of the URL that is none.
fn unknown_parameter(url: &str) -> Option<&str> {
    let (_, query) = url.split('#').next()?.split_once('?')?;
    let mut names = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => name,
        None => pair,
    });
    let known = |name: &&str| {
        // `options[name]`, whose brackets may be encoded.
        let (name, setting) = match name.split_once('[').or_else(|| {
            let (name, rest) = name.split_once('%')?;
            rest.to_ascii_uppercase()
                .starts_with("5B")
                .then_some((name, rest))
        }) {
            Some((name, _)) => (name, true),
            None => (*name, false),
        };
        match setting {
            true => name == "options",
            false => PARAMETERS.contains(&name) || OTHER_PARAMETERS.contains(&name),
        }
    };
    names.find(|name| !known(name))
}

/// The URL with nothing in it that a log must not have.
fn without_password(url: &str) -> String {
    let place = url.split(['?', '#']).next().unwrap_or_default();
    match place.rsplit_once('@') {
        Some((login, place)) => {
            let scheme = login.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://…@{place}")
        }
        None => place.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_no_password() {
        for url in [
            "postgres://app:se:c@ret@host:notaport/db",
            "postgres://app:secret@[::1/db?password=secret",
            "secret",
        ] {
            let shown = parse(url).expect_err("the URL is none").to_string();
            assert!(url == "secret" || !shown.contains("ret"), "{shown}");
        }
    }

    #[test]
    fn unknown_parameters_are_refused() {
        for (url, parameter) in [
            ("postgres://app:secret@host/app?sslmod=require", "sslmod"),
            (
                "postgres://host/app?sslmode=disable&connect_timeout=3",
                "connect_timeout",
            ),
            ("postgres://host/app?sslMode=require#part", "sslMode"),
            ("postgres://host/app?optionsx[a]=b", "optionsx[a]"),
        ] {
            let error = parse(url).expect_err("the parameter is none");
            assert!(matches!(
                error,
                Error::InvalidArgument {
                    argument: "url",
                    ..
                }
            ));
            assert!(
                error.to_string().contains(&format!("{parameter:?}")),
                "{error}"
            );
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for url in [
            "postgres://host/app?sslmode=disable&options=-c%20jit%3Doff",
            "postgres://host/app?options[jit]=off&options%5Bwork_mem%5D=1MB",
            "postgres:///app?host=/run/postgresql&",
        ] {
            parse(url).expect("the URL is one");
        }
    }

    #[test]
    fn a_parameter_that_makes_no_sense_is_named() {
        let error = parse("postgres://host/app?sslmode=always").expect_err("there is no such mode");
        assert!(error.to_string().contains("always"), "{error}");
    }
}
