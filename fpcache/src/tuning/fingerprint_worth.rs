//! The worth of fingerprints beside tables.

use super::{Candidate, Lookups, Split};

/// The worth of a table's fingerprints to its lookups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FingerprintWorth {
    /// The share of the memory node's bytes that they take.
    pub share: f64,
    /// How many times the time a lookup takes without them.
    pub times: f64,
}

impl FingerprintWorth {
    /// Those of a candidate; `None` if it has none.
    #[must_use]
    pub fn of(candidate: &Candidate, asked: &Lookups) -> Option<Self> {
        if candidate.fingerprint_bits == 0 {
            return None;
        }
        let without = Candidate { fingerprint_bits: 0, ..*candidate };
        let share = 1.0 - without.region_bytes_per_key() / candidate.region_bytes_per_key().max(1e-9);
        let times = Split::of(&without, asked).ns / Split::of(candidate, asked).ns.max(1e-9);
        Some(Self { share, times })
    }

    /// Whether lookups are as good as no slower without them.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        const HARDLY: f64 = 1.01;
        self.times <= HARDLY
    }
}

/// Offers to leave them out, with the figures.
impl std::fmt::Display for FingerprintWorth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { share, times } = self;
        write!(
            f,
            "fingerprints take {:.1} % of the memory node's bytes, and without them a lookup takes {times:.3} times the time: \
             --fingerprint-bits none leaves them out",
            100.0 * share
        )
    }
}
