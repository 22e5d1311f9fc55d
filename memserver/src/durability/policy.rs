//! The policy of when the log is synced.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When what was written to the log's files is synced to the disk.
///
/// A process crash loses nothing under any of them: the staging ring survives the process. They
/// differ in what a crash of the machine may take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SyncPolicy {
    /// At once. Records that arrive during one sync share the next (group commit). A machine crash
    /// takes nothing that was reported synced, and callers wait for that before they acknowledge.
    Always,
    /// At the latest so long after a record was staged and noticed. A machine crash takes at most
    /// what came since.
    Interval(Duration),
    /// Only when a file is complete, or when asked. A machine crash takes what the operating system
    /// had not written.
    Never,
}

impl Default for SyncPolicy {
    /// Every 10 ms.
    fn default() -> Self {
        Self::Interval(Duration::from_millis(10))
    }
}

/// Text that names no sync policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not a sync policy ({why}); write `always`, `never` or a time such as `10ms` or `1s`")]
pub struct BadSyncPolicy {
    text: String,
    why: &'static str,
}

impl FromStr for SyncPolicy {
    type Err = BadSyncPolicy;

    /// Takes `always`, `never`, or a whole number of `us`, `ms` or `s`.
    fn from_str(text: &str) -> Result<Self, BadSyncPolicy> {
        let bad = |why| BadSyncPolicy { text: text.to_owned(), why };
        match text {
            "always" => return Ok(Self::Always),
            "never" => return Ok(Self::Never),
            _ => {}
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(bad("it is neither a word nor a number"));
        }
        let number: u64 = number.parse().map_err(|_| bad("the number is too large"))?;
        let interval = match unit {
            "us" => Duration::from_micros(number),
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "" => return Err(bad("the unit is missing")),
            _ => return Err(bad("the unit is not us, ms or s")),
        };
        if interval.is_zero() {
            return Err(bad("no time at all is `always`"));
        }
        if interval > Duration::from_secs(24 * 60 * 60) {
            return Err(bad("it is more than a day"));
        }
        Ok(Self::Interval(interval))
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Never => f.write_str("never"),
            Self::Interval(interval) => match interval.as_micros() {
                us if us.is_multiple_of(1_000_000) => write!(f, "{}s", us / 1_000_000),
                us if us.is_multiple_of(1000) => write!(f, "{}ms", us / 1000),
                us => write!(f, "{us}us"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for text in ["always", "never", "10ms", "1s", "250us", "1500ms", "86400s"] {
            let policy: SyncPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!("1000ms".parse::<SyncPolicy>().unwrap().to_string(), "1s");
        assert_eq!(SyncPolicy::default().to_string(), "10ms");
    }

    #[test]
    fn everything_else_is_refused_with_the_reason() {
        let cases = [
            ("", "neither a word"),
            ("Always", "neither a word"),
            ("-1s", "neither a word"),
            ("10", "unit is missing"),
            ("10m", "not us, ms or s"),
            ("10 ms", "not us, ms or s"),
            ("1.5s", "not us, ms or s"),
            ("0ms", "`always`"),
            ("86401s", "a day"),
            ("99999999999999999999s", "too large"),
        ];
        for (text, why) in cases {
            let error = text.parse::<SyncPolicy>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("`10ms`"), "{text}: {error}");
        }
    }
}
