//! Keys that no data set holds: between two of its keys, and outside their range.

use crate::random::Random;

/// Draws absent keys.
pub(super) struct Absent<'a> {
    keys: &'a [u64],
    /// Whether two neighbours leave room between them.
    gaps: bool,
    /// Absent keys below the first and above the last.
    below: u64,
    above: u64,
}

/// Random tries for a pair of neighbours with room between them, before the next such pair is
/// searched for.
const TRIES: usize = 64;

impl<'a> Absent<'a> {
    pub(super) fn new(keys: &'a [u64], notes: &mut Vec<String>) -> Option<Self> {
        let gaps = keys.windows(2).any(|pair| pair[1] - pair[0] > 1);
        let (below, above) = match (keys.first(), keys.last()) {
            (Some(&first), Some(&last)) => (first, u64::MAX - last),
            _ => (0, u64::MAX),
        };
        match (gaps, below > 0 || above > 0) {
            (false, false) => {
                notes.push("no negative requests: every possible key is present".to_owned());
                return None;
            }
            (false, true) => {
                notes.push(
                    "negative requests lie outside the key range only: neighbouring keys leave no room"
                        .to_owned(),
                );
            }
            (true, false) => {
                notes.push(
                    "negative requests lie between keys only: the keys reach both ends of the range"
                        .to_owned(),
                );
            }
            (true, true) => {}
        }
        Some(Self { keys, gaps, below, above })
    }

    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let outside = self.below > 0 || self.above > 0;
        if self.gaps && (!outside || random.below(2) == 0) {
            self.between(random)
        } else {
            self.outside(random)
        }
    }

    /// Draws only between the first key and the last one, where neighbours leave room; `None` where
    /// none do.
    pub(super) fn draw_between(&self, random: &mut Random) -> Option<u64> {
        self.gaps.then(|| self.between(random))
    }

    /// Between two neighbours, each pair with room equally likely (nearly: see [`TRIES`]).
    fn between(&self, random: &mut Random) -> u64 {
        let pairs = self.keys.len() - 1;
        let room = |i: usize| self.keys[i + 1] - self.keys[i] - 1;
        let mut i = random.below(pairs as u64) as usize;
        let mut tries = 0;
        while room(i) == 0 {
            tries += 1;
            i = if tries < TRIES { random.below(pairs as u64) as usize } else { (i + 1) % pairs };
        }
        self.keys[i] + 1 + random.below(room(i))
    }

    /// Below the first or above the last key, each side equally likely where both have room.
    fn outside(&self, random: &mut Random) -> u64 {
        let low = self.below > 0 && (self.above == 0 || random.below(2) == 0);
        if low { random.below(self.below) } else { u64::MAX - random.below(self.above) }
    }
}
