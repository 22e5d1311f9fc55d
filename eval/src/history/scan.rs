//! Implications of a scan for each key.

use std::fmt;
use std::ops::RangeInclusive;

use super::operation::Call;

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

/// The keys that a call reads by their order, and how.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The range that was asked for: empty if it begins after its end.
    keys: RangeInclusive<u64>,
    /// The most records it may return.
    limit: u32,
    /// Whether it begins at the range's end.
    pub(super) is_down: bool,
}

impl Section {
    /// Of a scan or of a neighbour, which is a scan for one record; `None` of any other call.
    pub(super) fn of(key: u64, call: Call) -> Option<Self> {
        let (keys, limit, is_down) = match call {
            Call::Scan { limit } => (key..=u64::MAX, limit, false),
            Call::ScanBack { limit } => (0..=key, limit, true),
            Call::ScanRange { end, limit, is_down } => (until(key, end), limit, is_down),
            Call::Floor => (0..=key, 1, true),
            Call::Ceiling => (key..=u64::MAX, 1, false),
            _ => return None,
        };
        Some(Self { keys, limit, is_down })
    }

    /// What is wrong with the keys it returned, if anything: one pass over them.
    pub(super) fn fault(&self, records: &[(u64, u64)]) -> Option<ScanFault> {
        if records.len() > self.limit as usize {
            return Some(ScanFault::TooMany { count: records.len() });
        }
        if let Some(&(key, _)) = records.iter().find(|(key, _)| !self.keys.contains(key)) {
            return Some(ScanFault::Outside { key });
        }
        let is_wrong = |before, key| if self.is_down { before <= key } else { before >= key };
        let pair = records.windows(2).find(|pair| is_wrong(pair[0].0, pair[1].0))?;
        let (before, key) = (pair[0].0, pair[1].0);
        Some(if before == key { ScanFault::Twice { key } } else { ScanFault::OutOfOrder { before, key } })
    }

    /// The keys it speaks about: up to the last one it returned, or to the end if it returned fewer
    /// than it might have.
    pub(super) fn covered(self, records: &[(u64, u64)]) -> Option<RangeInclusive<u64>> {
        if records.len() < self.limit as usize {
            return Some(self.keys);
        }
        let last = records.last()?.0;
        Some(if self.is_down { last..=*self.keys.end() } else { *self.keys.start()..=last })
    }
}

/// The keys from one up to another, exclusive.
fn until(key: u64, end: u64) -> RangeInclusive<u64> {
    end.checked_sub(1).map_or(u64::MAX..=end, |last| key..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(key: u64, limit: u32, records: &[(u64, u64)]) -> Option<ScanFault> {
        Section::of(key, Call::Scan { limit })?.fault(records)
    }

    fn fault_back(key: u64, limit: u32, records: &[(u64, u64)]) -> Option<ScanFault> {
        Section::of(key, Call::ScanBack { limit })?.fault(records)
    }

    fn covered(key: u64, call: Call, records: &[(u64, u64)]) -> Option<RangeInclusive<u64>> {
        Section::of(key, call)?.covered(records)
    }

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
        let call = |limit| Call::ScanBack { limit };
        assert_eq!(covered(9, call(2), &[(8, 0), (5, 0)]), Some(5..=9));
        assert_eq!(covered(9, call(3), &[(8, 0), (5, 0)]), Some(0..=9));
    }

    #[test]
    fn a_full_scan_says_nothing_about_keys_after_its_last() {
        let call = |limit| Call::Scan { limit };
        assert_eq!(covered(5, call(2), &[(6, 0), (9, 0)]), Some(5..=9));
        assert_eq!(covered(5, call(3), &[(6, 0), (9, 0)]), Some(5..=u64::MAX));
        assert_eq!(covered(5, call(1), &[]), Some(5..=u64::MAX));
        assert_eq!(covered(5, call(0), &[]), None);
    }

    #[test]
    fn a_scan_of_a_range_says_nothing_about_keys_outside_it() {
        let call = |end, limit, is_down| Call::ScanRange { end, limit, is_down };
        let outside = |key| Some(ScanFault::Outside { key });
        for is_down in [false, true] {
            let fault = |end, records| Section::of(5, call(end, 3, is_down))?.fault(records);
            assert_eq!(fault(9, &[(8, 0)]), None);
            assert_eq!(fault(9, &[(9, 0)]), outside(9));
            assert_eq!(fault(9, &[(4, 0)]), outside(4));
            assert_eq!(fault(5, &[(5, 0)]), outside(5));
            assert_eq!(fault(0, &[(0, 0)]), outside(0));
            assert_eq!(covered(5, call(9, 3, is_down), &[(6, 0)]), Some(5..=8));
            assert_eq!(covered(5, call(9, 1, is_down), &[(6, 0)]), Some(if is_down { 6..=8 } else { 5..=6 }));
            assert!(covered(5, call(0, 3, is_down), &[]).is_some_and(|covered| covered.is_empty()));
        }
    }
}
