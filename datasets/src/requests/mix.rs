//! Mixes of operations, and their notation: `read=0.95,update=0.05`.

use std::fmt;
use std::str::FromStr;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// Looks a record up.
    Read,
    /// Replaces a record's value.
    Update,
    /// Makes a record that is not there.
    Insert,
    /// Reads records in key order.
    Scan,
    /// Looks a record up, then replaces its value.
    ReadModifyWrite,
}

impl OperationKind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 5] = [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    /// As mixes and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Shares of the kinds of operation, which sum to 1.
///
/// Reads and shows as `read=0.5,update=0.5`; what is not named has no share. `rmw` is short for
/// `read-modify-write`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    shares: [f64; OperationKind::ALL.len()],
}

/// A text that names no mix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a mix of operations: {cause}; write shares of read, update, insert, scan and read-modify-write that \
     sum to 1, as in read=0.9,update=0.1"
)]
pub struct ParseMixError {
    text: String,
    cause: &'static str,
}

/// How far a sum of shares may be from 1: they are written in decimals.
const TOLERANCE: f64 = 1e-6;

impl Mix {
    /// A mix of these kinds; shares below 0 count as 0, and the others are scaled to sum to 1.
    /// Reads alone if nothing has a share.
    pub fn new(parts: &[(OperationKind, f64)]) -> Self {
        let mut shares = [0.0; OperationKind::ALL.len()];
        for &(kind, share) in parts {
            shares[kind.index()] += if share.is_finite() { share.max(0.0) } else { 0.0 };
        }
        let sum: f64 = shares.iter().sum();
        if sum <= 0.0 {
            shares[OperationKind::Read.index()] = 1.0;
        } else if (sum - 1.0).abs() > TOLERANCE {
            shares.iter_mut().for_each(|share| *share /= sum);
        }
        Self { shares }
    }

    /// The share of a kind, from 0 to 1.
    pub fn share(&self, kind: OperationKind) -> f64 {
        self.shares[kind.index()]
    }

    /// The kind that a uniform number in [0, 1) stands for.
    #[inline]
    pub(super) fn kind(&self, fraction: f64) -> OperationKind {
        let mut left = fraction;
        for kind in OperationKind::ALL {
            left -= self.share(kind);
            if left < 0.0 {
                return kind;
            }
        }
        // Rounding may leave a crumb after the last share: it goes to a kind that has one.
        let has_share = |kind: &&OperationKind| self.share(**kind) > 0.0;
        OperationKind::ALL.iter().rev().find(has_share).copied().unwrap_or(OperationKind::Read)
    }
}

impl FromStr for Mix {
    type Err = ParseMixError;

    fn from_str(text: &str) -> Result<Self, ParseMixError> {
        let fail = |cause| ParseMixError { text: text.to_owned(), cause };
        let mut parts = Vec::new();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or_else(|| fail("a share is written NAME=SHARE"))?;
            let kind = match name.trim() {
                "rmw" => Some(OperationKind::ReadModifyWrite),
                name => OperationKind::ALL.into_iter().find(|kind| kind.name() == name),
            };
            let kind = kind.ok_or_else(|| fail("no operation has this name"))?;
            if parts.iter().any(|(other, _)| *other == kind) {
                return Err(fail("an operation comes twice"));
            }
            let share = share.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
            parts.push((kind, share.ok_or_else(|| fail("a share is a number from 0 to 1"))?));
        }
        let sum: f64 = parts.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > TOLERANCE {
            return Err(fail("the shares do not sum to 1"));
        }
        Ok(Self::new(&parts))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for kind in OperationKind::ALL.into_iter().filter(|kind| self.share(*kind) > 0.0) {
            write!(f, "{separator}{}={}", kind.name(), self.share(kind))?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_read_and_show_the_same() {
        for text in ["read=1", "read=0.5,update=0.5", "update=0.57,scan=0.02,read-modify-write=0.41"] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        let short: Mix = "rmw=0.25, read=0.75".parse().unwrap();
        assert_eq!(short.to_string(), "read=0.75,read-modify-write=0.25");
    }

    #[test]
    fn what_is_no_mix_is_told_why_and_how_one_is_written() {
        for (text, cause) in [
            ("", "NAME=SHARE"),
            ("read", "NAME=SHARE"),
            ("reads=1", "no operation"),
            ("read=0.9", "sum to 1"),
            ("read=0.9,update=0.2", "sum to 1"),
            ("read=0.5,read=0.5", "twice"),
            ("read=nan", "from 0 to 1"),
            ("read=-1,update=2", "from 0 to 1"),
            ("read=x", "from 0 to 1"),
        ] {
            let error = text.parse::<Mix>().unwrap_err().to_string();
            assert!(error.contains(cause) && error.contains("read=0.9,update=0.1"), "{text}: {error}");
        }
    }

    #[test]
    fn every_fraction_stands_for_a_kind_with_a_share() {
        let mix: Mix = "read=0.2,insert=0.3,scan=0.5".parse().unwrap();
        let kinds = [0.0, 0.19, 0.21, 0.49, 0.51, 0.999_999_999, 1.0].map(|fraction| mix.kind(fraction));
        use OperationKind::{Insert, Read, Scan};
        assert_eq!(kinds, [Read, Read, Insert, Insert, Scan, Scan, Scan]);
        assert_eq!(Mix::new(&[]).kind(0.7), Read);
        assert_eq!(Mix::new(&[(Scan, f64::NAN), (Insert, -1.0)]).to_string(), "read=1");
        assert_eq!(Mix::new(&[(Scan, 3.0), (Insert, 1.0)]).to_string(), "insert=0.25,scan=0.75");
    }
}
