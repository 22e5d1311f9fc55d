//! The longest run of keys that one segment can take, over all skips.
//!
//! The more bytes a segment skips the finer its coordinates, but the fewer keys share them. Of the
//! runs that begin with a key, one of given length is served best by skipping all that its keys
//! share: over keys that share more, the code with a longer skip is the one with a shorter skip,
//! stretched. So a run that can be served can be served so, every part of it can, and taking the
//! longest each time takes the fewest.

use super::KeyEncoder;

/// Ascending keys, and how many bytes each shares with the one before.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) keys: &'a [&'a [u8]],
    pub(super) shared: &'a [u16],
}

impl<'a> Keys<'a> {
    pub(super) fn from(self, first: usize) -> Self {
        Keys { keys: &self.keys[first..], shared: &self.shared[first..] }
    }

    /// Bytes that the first `len` keys share; of one key, those shared with the key before, which
    /// its separator has.
    fn prefix(self, len: usize) -> usize {
        usize::from(self.shared[1..len].iter().copied().min().unwrap_or(self.shared[0]))
    }
}

/// Takes coordinates in order until it cannot serve another.
pub(super) trait Accept {
    /// The result for the coordinates taken.
    type Found;
    /// Forgets all coordinates.
    fn restart(&mut self);
    /// Takes a coordinate, which may equal the one before, or refuses it.
    fn accept(&mut self, x: u64, equals: bool) -> bool;
    /// The result for the coordinates taken since the restart, up to the one refused.
    fn found(&mut self) -> Self::Found;
}

/// A run of keys from the first on.
#[derive(Clone, Debug)]
pub(super) struct SkipRun<F> {
    pub(super) skip: usize,
    /// The coordinates of its keys.
    pub(super) xs: Vec<u64>,
    pub(super) found: F,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    /// There are no more keys.
    Keys,
    /// A key does not share the skipped bytes.
    Prefix,
    /// The coordinate was refused.
    Refused,
}

/// Skips tried for a run. Beyond that it may be shorter than it could be.
const ROUNDS: usize = 8;
/// Bytes that all keys share and that a first segment cannot skip, from which on it pays to put an
/// empty one before it: coding that many takes 30 ns.
const FRONT: usize = 16;

/// Finds runs; keeps what they need between them.
#[derive(Clone, Debug)]
pub(super) struct Finder {
    /// Keys of the run before: the best guess at the next one's.
    expected: usize,
    /// Equal neighbours from which on a longer skip is worth a try.
    ties: usize,
    spare: Vec<u64>,
}

impl Finder {
    /// A finder whose first run is expected to have `expected` keys. Lines serve ε / 2 equal
    /// neighbours well.
    pub(super) fn new(expected: usize, epsilon: u32) -> Self {
        Self { expected, ties: (epsilon as usize / 2).max(1), spare: Vec::new() }
    }

    /// The longest run from the first of at least one keys that skips at most `max_skip` bytes.
    ///
    /// A key is coded once if the run is about as long as the one before, and again each time that
    /// more bytes have to be skipped to tell keys apart, or fewer because the run reaches beyond
    /// the keys that share them.
    pub(super) fn longest<A: Accept>(
        &mut self,
        keys: Keys<'_>,
        max_skip: usize,
        encoder: &KeyEncoder,
        accept: &mut A,
    ) -> SkipRun<A::Found> {
        let all = keys.keys.len();
        let mut skip = keys.prefix(self.expected.max(2).min(all)).min(max_skip);
        let mut best: Option<SkipRun<A::Found>> = None;
        for _ in 0..ROUNDS {
            let mut xs = std::mem::take(&mut self.spare);
            let (end, ties) = code_run(keys, skip, encoder, accept, &mut xs);
            let len = xs.len();
            if best.as_ref().is_none_or(|best| len > best.xs.len()) {
                let found = accept.found();
                self.spare = best.replace(SkipRun { skip, xs, found }).map_or_else(Vec::new, |run| run.xs);
            } else {
                self.spare = xs;
            }
            let next = match end {
                RunEnd::Prefix => keys.prefix((2 * len).max(len + 1).min(all)).min(max_skip),
                RunEnd::Refused if ties >= self.ties => keys.prefix(len + 1).min(max_skip),
                RunEnd::Keys | RunEnd::Refused => skip,
            };
            // A longer skip where one was too short, and the other way round.
            if next == skip || (next > skip) == (end == RunEnd::Prefix) {
                break;
            }
            skip = next;
        }
        let best = best.expect("a first key is always taken");
        self.expected = best.xs.len();
        best
    }

    /// The longest run where a range begins whose separator shares `max_skip` bytes with the first
    /// key, and whether an empty segment should be put before it: the run may then skip more.
    pub(super) fn first<A: Accept>(
        &mut self,
        keys: Keys<'_>,
        max_skip: usize,
        encoder: &KeyEncoder,
        accept: &mut A,
    ) -> (SkipRun<A::Found>, bool) {
        let free = self.longest(keys, usize::MAX, encoder, accept);
        if free.skip <= max_skip {
            return (free, false);
        }
        let bound = self.longest(keys, max_skip, encoder, accept);
        if free.skip >= max_skip + FRONT || free.xs.len() >= 2 * bound.xs.len() {
            return (free, true);
        }
        (bound, false)
    }
}

/// Codes keys until one is refused; says why it ended, and how many coordinates equal the one
/// before.
fn code_run(
    keys: Keys<'_>,
    skip: usize,
    encoder: &KeyEncoder,
    accept: &mut impl Accept,
    xs: &mut Vec<u64>,
) -> (RunEnd, usize) {
    accept.restart();
    xs.clear();
    let mut ties = 0;
    // Above every coordinate.
    let mut last = u64::MAX;
    for (key, shared) in keys.keys.iter().zip(keys.shared) {
        if usize::from(*shared) < skip && !xs.is_empty() {
            return (RunEnd::Prefix, ties);
        }
        let x = encoder.code(key, skip);
        let equals = x == last;
        if !accept.accept(x, equals) {
            return (RunEnd::Refused, ties);
        }
        ties += usize::from(equals);
        last = x;
        xs.push(x);
    }
    (RunEnd::Keys, ties)
}
