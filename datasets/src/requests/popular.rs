//! The next key to request: every distribution over the indices of the keys, and how popular keys
//! move.

use super::Distribution;
use super::hot::HotSet;
use super::permutation::Permutation;
use super::sosd::SosdRule;
use super::ycsb::{GrayZipf, fnv64};
use super::zipf::Zipf;
use crate::random::Random;

/// Draws indices of present keys.
pub(super) struct Popular {
    n: u64,
    seed: u64,
    shifts: u64,
    pattern: Pattern,
}

enum Pattern {
    Uniform,
    Zipf(Zipf, Permutation),
    Ycsb {
        zipf: GrayZipf,
        /// What ranks are combined with before they are hashed: 0, as in YCSB, until the first
        /// shift.
        salt: u64,
    },
    Latest {
        zipf: Zipf,
        newest: u64,
    },
    Hotspot(HotSet),
    Hotset(HotSet, Permutation),
    Sosd(SosdRule),
}

/// Every shift has random numbers of its own; the other purposes are small numbers.
const PURPOSE_SHIFTS: u64 = 1 << 48;

impl Popular {
    /// Over `n` keys. `crowded` are the indices that [`Distribution::Sosd`] rejects, ascending.
    pub(super) fn new(
        n: u64,
        distribution: Distribution,
        crowded: Vec<u64>,
        seed: u64,
        random: &mut Random,
    ) -> Self {
        let pattern = match distribution.clamped() {
            Distribution::Uniform => Pattern::Uniform,
            Distribution::Zipf { theta } => Pattern::Zipf(Zipf::new(n, theta), Permutation::new(n, random)),
            Distribution::YcsbZipf { theta } => Pattern::Ycsb { zipf: GrayZipf::new(theta), salt: 0 },
            Distribution::Latest { theta } => {
                Pattern::Latest { zipf: Zipf::new(n, theta), newest: n.saturating_sub(1) }
            }
            Distribution::Hotspot { share, probability } => {
                Pattern::Hotspot(HotSet::new(n, share, probability, random))
            }
            Distribution::Hotset { share, probability } => {
                Pattern::Hotset(HotSet::new(n, share, probability, random), Permutation::new(n, random))
            }
            Distribution::Sosd => Pattern::Sosd(SosdRule::new(n, crowded, seed)),
        };
        Self { n, seed, shifts: 0, pattern }
    }

    /// Why [`shift`](Self::shift) has no effect, if it has none.
    pub(super) fn immovable(&self) -> Option<&'static str> {
        match &self.pattern {
            Pattern::Uniform | Pattern::Sosd(_) => Some("no key is more popular than another"),
            Pattern::Hotspot(set) | Pattern::Hotset(set, _) if !set.can_move() => Some("all keys are hot"),
            _ if self.n < 2 => Some("there is one key only"),
            _ => None,
        }
    }

    /// Makes other keys popular, in the same proportions.
    pub(super) fn shift(&mut self) {
        self.shifts += 1;
        let mut random = Random::new(self.seed, PURPOSE_SHIFTS + self.shifts);
        match &mut self.pattern {
            Pattern::Uniform | Pattern::Sosd(_) => {}
            Pattern::Zipf(_, permutation) => *permutation = Permutation::new(self.n, &mut random),
            Pattern::Ycsb { salt, .. } => *salt = random.bits(),
            Pattern::Latest { newest, .. } => {
                // Any but the one that was.
                let step = 1 + random.below(self.n.saturating_sub(1));
                *newest = (*newest + step) % self.n.max(1);
            }
            // A set of scattered keys moves among the ranks, so that the new set is apart from the
            // old one too.
            Pattern::Hotspot(set) | Pattern::Hotset(set, _) => set.shift(&mut random),
        }
    }

    #[inline]
    pub(super) fn draw(&mut self, random: &mut Random) -> u64 {
        match &mut self.pattern {
            Pattern::Uniform => random.below(self.n),
            Pattern::Zipf(zipf, permutation) => permutation.apply(zipf.rank(random)),
            Pattern::Ycsb { zipf, salt } => fnv64(zipf.rank(random) ^ *salt) % self.n,
            Pattern::Latest { zipf, newest } => {
                let rank = zipf.rank(random);
                if rank <= *newest { *newest - rank } else { self.n - (rank - *newest) }
            }
            Pattern::Hotspot(set) => set.rank(random),
            Pattern::Hotset(set, permutation) => permutation.apply(set.rank(random)),
            Pattern::Sosd(rule) => rule.draw(),
        }
    }
}
