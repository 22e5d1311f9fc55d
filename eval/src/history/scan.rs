//! Implications of a scan for each key.

use std::fmt;
use std::ops::RangeInclusive;

/// What is wrong with a scan by itself, whatever else happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFault {
    /// A key stands after a greater one.
    OutOfOrder {
        /// The greater key, which came first.
        before: u64,
        /// The key after it.
        key: u64,
    },
    /// A key was returned twice in a row.
    Twice {
        /// The key.
        key: u64,
    },
    /// A key lies outside the range that was asked for.
    Outside {
        /// The key.
        key: u64,
    },
    /// No instants of the range's keys give this number of them.
    Miscounted {
        /// Keys that were there throughout.
        least: u64,
        /// Keys that were there, or may have been, at one instant at least.
        most: u64,
        /// What the count said.
        count: u64,
    },
    /// More records than asked for.
    TooMany {
        /// Records returned.
        count: usize,
    },
}

impl fmt::Display for ScanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfOrder { before, key } => {
                write!(f, "keys are out of order: {key} came after {before}")
            }
            Self::Twice { key } => write!(f, "key {key} was returned twice"),
            Self::Outside { key } => write!(f, "key {key} lies outside the range"),
            Self::Miscounted { least, most, count } => {
                write!(f, "{count} keys where {least} were there throughout and {most} at most")
            }
            Self::TooMany { count } => write!(f, "{count} records are more than were asked for"),
        }
    }
}

/// What is wrong with the keys of a scan from `start`, if anything: one pass over them.
pub(super) fn fault(start: u64, limit: u32, records: &[(u64, u64)]) -> Option<ScanFault> {
    if records.len() > limit as usize {
        return Some(ScanFault::TooMany { count: records.len() });
    }
    if let Some(&(key, _)) = records.iter().find(|(key, _)| *key < start) {
        return Some(ScanFault::Outside { key });
    }
    let pair = records.windows(2).find(|pair| pair[0].0 >= pair[1].0)?;
    let (before, key) = (pair[0].0, pair[1].0);
    Some(if before == key { ScanFault::Twice { key } } else { ScanFault::OutOfOrder { before, key } })
}

/// The keys a scan speaks about: up to the last one it returned, or to the end if it returned fewer
/// than it might have.
pub(super) fn covered(start: u64, limit: u32, records: &[(u64, u64)]) -> Option<RangeInclusive<u64>> {
    if records.len() < limit as usize {
        return Some(start..=u64::MAX);
    }
    records.last().map(|(last, _)| start..=*last)
}

/// What is wrong with the keys of a scan down from `start`, if anything.
pub(super) fn fault_back(start: u64, limit: u32, records: &[(u64, u64)]) -> Option<ScanFault> {
    if records.len() > limit as usize {
        return Some(ScanFault::TooMany { count: records.len() });
    }
    if let Some(&(key, _)) = records.iter().find(|(key, _)| *key > start) {
        return Some(ScanFault::Outside { key });
    }
    let pair = records.windows(2).find(|pair| pair[0].0 <= pair[1].0)?;
    let (before, key) = (pair[0].0, pair[1].0);
    Some(if before == key { ScanFault::Twice { key } } else { ScanFault::OutOfOrder { before, key } })
}

/// The keys that a scan down speaks about.
pub(super) fn covered_back(start: u64, limit: u32, records: &[(u64, u64)]) -> Option<RangeInclusive<u64>> {
    if records.len() < limit as usize {
        return Some(0..=start);
    }
    records.last().map(|(last, _)| *last..=start)
}

/// What is wrong with the record nearest to `key`, if anything.
pub(super) fn nearest_fault(key: u64, below: bool, records: &[(u64, u64)]) -> Option<ScanFault> {
    let (found, _) = *records.first()?;
    let is_outside = if below { found > key } else { found < key };
    is_outside.then_some(ScanFault::Outside { key: found })
}

/// The keys that an answer speaks about which found this record nearest to `key`, or none: those
/// from one to the other are absent, but for the record's.
pub(super) fn covered_by_nearest(key: u64, below: bool, records: &[(u64, u64)]) -> RangeInclusive<u64> {
    let found = records.first().map(|(found, _)| *found);
    match below {
        true => found.unwrap_or(0)..=key,
        false => key..=found.unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found() {
        assert_eq!(fault(5, 3, &[(5, 0), (6, 0), (9, 0)]), None);
        assert_eq!(fault(5, 3, &[]), None);
        assert_eq!(fault(5, 2, &[(5, 0), (6, 0), (9, 0)]), Some(ScanFault::TooMany { count: 3 }));
        assert_eq!(fault(5, 3, &[(4, 0), (6, 0)]), Some(ScanFault::Outside { key: 4 }));
        assert_eq!(fault(5, 3, &[(6, 0), (6, 1)]), Some(ScanFault::Twice { key: 6 }));
        assert_eq!(fault(5, 3, &[(9, 0), (6, 0)]), Some(ScanFault::OutOfOrder { before: 9, key: 6 }));
    }

    #[test]
    fn faults_of_scans_down_are_found() {
        assert_eq!(fault_back(9, 3, &[(9, 0), (6, 0), (5, 0)]), None);
        assert_eq!(fault_back(9, 2, &[(9, 0), (6, 0), (5, 0)]), Some(ScanFault::TooMany { count: 3 }));
        assert_eq!(fault_back(8, 3, &[(9, 0)]), Some(ScanFault::Outside { key: 9 }));
        assert_eq!(fault_back(9, 3, &[(6, 0), (6, 1)]), Some(ScanFault::Twice { key: 6 }));
        assert_eq!(fault_back(9, 3, &[(6, 0), (9, 0)]), Some(ScanFault::OutOfOrder { before: 6, key: 9 }));
        assert_eq!(covered_back(9, 2, &[(8, 0), (5, 0)]), Some(5..=9));
        assert_eq!(covered_back(9, 3, &[(8, 0), (5, 0)]), Some(0..=9));
    }

    #[test]
    fn a_full_scan_says_nothing_about_keys_after_its_last() {
        assert_eq!(covered(5, 2, &[(6, 0), (9, 0)]), Some(5..=9));
        assert_eq!(covered(5, 3, &[(6, 0), (9, 0)]), Some(5..=u64::MAX));
        assert_eq!(covered(5, 1, &[]), Some(5..=u64::MAX));
        assert_eq!(covered(5, 0, &[]), None);
    }
}
