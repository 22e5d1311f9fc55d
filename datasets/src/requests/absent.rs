//! Keys that no data set holds: between two of its keys, and outside their range.

use crate::random::Random;

/// Draws absent keys.
pub(super) struct Absent<'a> {
    keys: &'a [u64],
    gaps: Gaps,
    /// Absent keys below the first and above the last.
    below: u64,
    above: u64,
}

/// Which neighbours leave room between them.
enum Gaps {
    None,
    /// These, after the keys of these numbers: few among all.
    Few(Vec<usize>),
    /// Enough for drawing pairs to find one soon.
    Many,
}

impl Gaps {
    /// One pair in this many, or fewer, are few.
    const FEW: usize = 16;

    fn of(keys: &[u64]) -> Self {
        let pairs = || keys.windows(2).enumerate().filter(|(_, pair)| pair[1] - pair[0] > 1);
        match pairs().count() {
            0 => Self::None,
            gaps if gaps > keys.len() / Self::FEW => Self::Many,
            _ => Self::Few(pairs().map(|(at, _)| at).collect()),
        }
    }
}

impl<'a> Absent<'a> {
    pub(super) fn new(keys: &'a [u64], notes: &mut Vec<String>) -> Option<Self> {
        let gaps = Gaps::of(keys);
        let (below, above) = match (keys.first(), keys.last()) {
            (Some(&first), Some(&last)) => (first, u64::MAX - last),
            _ => (0, u64::MAX),
        };
        match (!matches!(gaps, Gaps::None), below > 0 || above > 0) {
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
        let is_between = !matches!(self.gaps, Gaps::None) && (!outside || random.below(2) == 0);
        is_between.then(|| self.draw_between(random)).flatten().unwrap_or_else(|| self.outside(random))
    }

    /// Draws only between the first key and the last one, each pair of neighbours that leaves room
    /// equally likely; `None` where none do.
    pub(super) fn draw_between(&self, random: &mut Random) -> Option<u64> {
        let room = |at: usize| self.keys[at + 1] - self.keys[at] - 1;
        let at = match &self.gaps {
            Gaps::None => return None,
            Gaps::Few(pairs) => pairs[random.below(pairs.len() as u64) as usize],
            Gaps::Many => loop {
                let at = random.below(self.keys.len() as u64 - 1) as usize;
                if room(at) > 0 {
                    break at;
                }
            },
        };
        Some(self.keys[at] + 1 + random.below(room(at)))
    }

    /// Below the first or above the last key, each side equally likely where both have room.
    fn outside(&self, random: &mut Random) -> u64 {
        let low = self.below > 0 && (self.above == 0 || random.below(2) == 0);
        if low { random.below(self.below) } else { u64::MAX - random.below(self.above) }
    }
}
