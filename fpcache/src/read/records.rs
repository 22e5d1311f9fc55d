//! Records on the compute node: slots are copied here before anything believes them.

use std::ops::Range;

use zerocopy::IntoBytes;

/// Bytes that are kept from one long value to the next.
const KEPT_BYTES: usize = 1 << 20;

/// Slots and values that were found, one after the other; keys of a group may leave words unused.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    words: Vec<u64>,
    /// Words of those that are kept.
    used: usize,
}

impl Records {
    /// Bytes of memory that they keep.
    pub(super) fn kept_bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    /// Forgets all of them.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.used = 0;
        if self.words.len() > KEPT_BYTES / 8 {
            self.words = Vec::new();
        }
    }

    /// Room for the next one, which holds anything.
    #[inline(always)]
    pub(super) fn room(&mut self, words: usize) -> &mut [u64] {
        let end = self.used + words;
        if end > self.words.len() {
            self.grow(end);
        }
        &mut self.words[self.used..end]
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        self.words.resize(words.max(self.words.len() * 2), 0);
    }

    /// Keeps the words that [`room`](Self::room) gave, and says where bytes of them lie.
    #[inline(always)]
    pub(super) fn keep(&mut self, words: usize, bytes: Range<usize>) -> Range<usize> {
        let start = self.used * 8;
        self.used += words;
        start + bytes.start..start + bytes.end
    }

    /// Keeps this many words, into which values may be [`put`](Self::put), and says which is the
    /// first.
    pub(super) fn keep_words(&mut self, words: usize) -> usize {
        self.room(words);
        let first = self.used;
        self.used += words;
        first
    }

    /// Puts a value of `bytes` bytes, eight at most, into a word that is kept, and says where it
    /// lies.
    #[inline(always)]
    pub(super) fn put(&mut self, word: usize, value: u64, bytes: usize) -> Range<usize> {
        self.words[word] = value.to_le();
        8 * word..8 * word + bytes
    }

    /// Keeps a value that came otherwise.
    pub(super) fn push(&mut self, value: &[u8]) -> Range<usize> {
        let words = value.len().div_ceil(8);
        self.room(words).as_mut_bytes()[..value.len()].copy_from_slice(value);
        self.keep(words, 0..value.len())
    }

    /// Bytes that [`keep`](Self::keep) or [`put`](Self::put) has told of.
    #[inline(always)]
    pub(super) fn bytes(&self, at: Range<usize>) -> &[u8] {
        &self.words.as_bytes()[at]
    }
}
