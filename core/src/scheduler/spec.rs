//! Specs of schedules.

use crate::{Error, Result};

/// The seconds of a spec.
pub(super) fn interval(spec: &str) -> Result<i64> {
    let invalid = |reason| Error::InvalidSpec {
        spec: spec.to_owned(),
        reason,
    };
    let shape = "it must be `@every <n><unit>`, with s, m, h or d as unit";
    let rest = spec.strip_prefix("@every ").ok_or_else(|| invalid(shape))?;
    let unit = match rest.bytes().next_back() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 60 * 60,
        Some(b'd') => 24 * 60 * 60,
        _ => return Err(invalid(shape)),
    };
    let digits = &rest[..rest.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(shape));
    }
    let seconds = digits.parse::<i64>().ok().and_then(|n| n.checked_mul(unit));
    match seconds {
        None => Err(invalid(
            "its interval overflows: it must fit in 63 bits of seconds",
        )),
        Some(0) => Err(invalid("its interval must be at least 1")),
        Some(seconds) => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("@every 1s", 1)]
    #[case("@every 90s", 90)]
    #[case("@every 5m", 300)]
    #[case("@every 2h", 7200)]
    #[case("@every 1d", 86_400)]
    #[case("@every 9223372036854775807s", i64::MAX)]
    fn accepted(#[case] spec: &str, #[case] seconds: i64) {
        assert_eq!(interval(spec).ok(), Some(seconds));
    }

    #[rstest]
    fn refused(
        #[values(
            "",
            "@every",
            "@every ",
            "@every s",
            "@every 0s",
            "@every -1s",
            "@every +1s",
            "@every 1",
            "@every 1w",
            "@every 1S",
            "@every 1.5s",
            "@every 9e9d",
            "@every  1s",
            "@every 1s ",
            " @every 1s",
            "@Every 1s",
            "*/5 * * * *",
            "@daily",
            "@every \u{661}s",
            "@every 9223372036854775807m",
            "@every 9223372036854775808s",
            "@every 1\u{e9}"
        )]
        spec: &str,
    ) {
        assert!(matches!(interval(spec), Err(Error::InvalidSpec { .. })));
    }
}
