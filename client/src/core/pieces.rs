//! Groups of keys that are read piece by piece: what was found stays found, whatever becomes of the
//! others.

use std::iter::{Take, repeat};

/// Keys of a piece where memory is mapped: the clock is looked at between two pieces, and a tenth
/// of a millisecond is enough for this many.
const MAPPED: usize = 1 << 10;
/// Keys of a piece in doorbell batches: few enough for their buffers to stay small, and enough for
/// round trips to be few.
const BATCHED: usize = 1 << 12;

/// Keys of a piece, in memory that is mapped or in doorbell batches.
pub(super) const fn keys_of_piece(is_mapped: bool) -> usize {
    if is_mapped { MAPPED } else { BATCHED }
}

/// The keys of a group that have no answers yet.
#[derive(Debug)]
pub(super) struct Pieces<'k, Key: ?Sized, I> {
    /// From the first key of the present piece on.
    rest: I,
    most: usize,
    /// Keys of pieces before it.
    pub(super) done: usize,
    /// Those keys of the piece that have no answers, with their places in it, once an attempt has
    /// failed.
    pub(super) left: Option<Vec<(usize, &'k Key)>>,
}

impl<'k, Key: ?Sized, I: Iterator<Item = &'k Key> + Clone> Pieces<'k, Key, I> {
    /// A group in pieces of up to `most` keys.
    #[inline]
    pub(super) fn new(keys: I, most: usize) -> Self {
        Self { rest: keys, most, done: 0, left: None }
    }

    /// Whether the group may have more keys than a piece.
    #[inline]
    pub(super) fn are_several(&self) -> bool {
        self.rest.size_hint().1.is_none_or(|keys| keys > self.most)
    }

    /// The keys of the present piece.
    #[inline]
    pub(super) fn piece(&self) -> Take<I> {
        self.rest.clone().take(self.most)
    }

    /// How many keys have no answers, those of later pieces included.
    #[cold]
    pub(super) fn count(&self) -> usize {
        self.rest.clone().count()
    }

    /// Goes on to the next piece: all keys of this one have their answers.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.left = None;
        // Past the last piece nothing is counted any more.
        self.done = self.done.saturating_add(self.most);
        self.rest.nth(self.most - 1);
    }

    /// Whether all keys have their answers.
    #[inline]
    pub(super) fn are_over(&self) -> bool {
        self.rest.clone().next().is_none()
    }

    /// Leaves those keys that have no answers, as `answered` says of the keys that were tried: the
    /// piece's, or those left of it. Whether some have.
    #[cold]
    pub(super) fn leave(&mut self, answered: impl Iterator<Item = bool>) -> bool {
        let tried = match self.left.take() {
            None => self.piece().enumerate().collect(),
            Some(left) => left,
        };
        let before = tried.len();
        let answered = answered.chain(repeat(false));
        let left: Vec<_> =
            tried.into_iter().zip(answered).filter(|(_, answered)| !answered).map(|(key, _)| key).collect();
        let progressed = left.len() < before;
        self.left = Some(left);
        progressed
    }
}
