//! Provenance of a row of results: the command, time, place and build. Every row of JSON has it
//! after its own fields, so that rows of several runs can be in one file.

use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::machine::{COMMIT, Machine};

/// What made a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// The command, as a shell takes it.
    pub command: String,
    /// When the row was written, in UTC, as RFC 3339 has it.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// The commit this program was built from, where the build knew it; followed by `-dirty` if its
    /// code was changed since.
    pub commit: Option<String>,
    /// The version of this program.
    pub version: String,
    /// The compiler's.
    pub rustc: Option<String>,
    /// `release`, or `debug` with the assertions of a debug build.
    pub build: String,
}

impl Made {
    /// By this process, now.
    pub fn now() -> Self {
        Self::by(std::env::args_os().skip(1), SystemTime::now())
    }

    /// By a command with these words after the program's name, at this time.
    pub fn by(words: impl IntoIterator<Item = OsString>, at: SystemTime) -> Self {
        let mut command = "fpcache-eval".to_owned();
        for word in words {
            command.push(' ');
            command.push_str(&quoted(&word.to_string_lossy()));
        }
        Self {
            command,
            date: rfc_3339(at),
            machine: Machine::detect(),
            commit: COMMIT.map(str::to_owned),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: option_env!("FPCACHE_RUSTC").map(str::to_owned),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        }
    }
}

/// A row and what made it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded<T> {
    /// The row, whose fields stand beside `made`.
    #[serde(flatten)]
    pub row: T,
    /// What made it; null in files of releases that did not say.
    #[serde(default)]
    pub made: Option<Made>,
}

impl<T> Recorded<T> {
    /// Rows that this process makes now.
    pub fn now(rows: impl IntoIterator<Item = T>) -> Vec<Self> {
        let made = Made::now();
        rows.into_iter().map(|row| Self { row, made: Some(made.clone()) }).collect()
    }
}

/// A word as a POSIX shell takes it for itself.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Seconds of a day.
const DAY: u64 = 86_400;

/// An instant as `2026-05-04T03:02:01Z`; before 1970 it is 1970.
fn rfc_3339(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day `days` days after the first of January 1970, in the Gregorian calendar
/// (`civil_from_days` of Hinnant: chrono-Compatible Low-Level Date Algorithms, 2013, without its
/// negative days).
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the day a leap year has more is the last one.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn instants_are_written_as_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc_3339(UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
        assert_eq!(rfc_3339(UNIX_EPOCH - Duration::from_secs(9)), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn commands_are_written_as_a_shell_takes_them() {
        let words = ["run", "--dataset", "fb:16M", "--data", "it's here", ""].map(OsString::from);
        let made = Made::by(words, UNIX_EPOCH);
        assert_eq!(made.command, r"fpcache-eval run --dataset fb:16M --data 'it'\''s here' ''");
    }

    #[test]
    fn a_row_keeps_its_fields_and_one_without_origin_is_read() {
        #[derive(Serialize, Deserialize)]
        struct Row {
            keys: u64,
            rate: Option<f64>,
        }
        let json = serde_json::to_string(&Recorded::now([Row { keys: 7, rate: Some(0.1) }])).unwrap();
        assert!(json.starts_with(r#"[{"keys":7,"rate":0.1,"made":{"command":"fpcache-eval"#), "{json}");
        let back: Vec<Recorded<Row>> = serde_json::from_str(&json).unwrap();
        assert_eq!((back[0].row.keys, back[0].row.rate), (7, Some(0.1)));
        let old: Recorded<Row> = serde_json::from_str(r#"{"keys": 8}"#).unwrap();
        assert!(old.made.is_none() && old.row.rate.is_none());
    }
}
