//! The log: words that are given memory when they are first needed.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use zerocopy::FromZeros;

type Chunk = Box<[AtomicU32]>;

/// A number of words, in chunks of which each is allocated when a word of it is first needed, all
/// at once.
///
/// A chunk without memory takes [`BESIDE_CHUNK`](Self::BESIDE_CHUNK) bytes, and one that is begun
/// is half empty, on average: both together are least where a chunk has about seven times the
/// square root of all bytes.
#[derive(Debug)]
pub(super) struct LazyWords {
    chunks: Box<[OnceLock<Chunk>]>,
    /// A chunk has two to the power of this many words, but for the last.
    bits: u32,
    len: usize,
}

impl LazyWords {
    /// Bytes of a chunk beside its words.
    const BESIDE_CHUNK: usize = size_of::<OnceLock<Chunk>>();
    const LEAST_BITS: u32 = 6;

    /// Bytes that have room for `words` words.
    pub(super) fn bytes_for(words: u64) -> u64 {
        let bytes = words.saturating_mul(4);
        let chunks = (words >> Self::bits_of(bytes)).saturating_add(1);
        bytes.saturating_add(chunks.saturating_mul(Self::BESIDE_CHUNK as u64))
    }

    fn bits_of(bytes: u64) -> u32 {
        bytes.saturating_mul(2).isqrt().next_power_of_two().ilog2().max(Self::LEAST_BITS)
    }

    /// As many words as have room in `bytes` bytes when all are needed; `None` if there is no room
    /// for one, or the memory for their chunks cannot be had.
    pub(super) fn within(bytes: usize) -> Option<Self> {
        // Positions tell no more apart.
        let bytes = bytes.min(1 << 33);
        let bits = Self::bits_of(bytes as u64);
        let whole = Self::BESIDE_CHUNK + (4 << bits);
        let (count, rest) = (bytes / whole, bytes % whole);
        let last = rest.saturating_sub(Self::BESIDE_CHUNK) / 4;
        Self::of((count << bits) + last, bits)
    }

    fn of(len: usize, bits: u32) -> Option<Self> {
        if len == 0 {
            return None;
        }
        let mut chunks = Vec::new();
        let count = len.div_ceil(1 << bits);
        chunks.try_reserve_exact(count).ok()?;
        chunks.resize_with(count, OnceLock::new);
        Some(Self { chunks: chunks.into_boxed_slice(), bits, len })
    }

    /// An equally long log, of which no word has been needed.
    pub(super) fn emptied(&self) -> Option<Self> {
        Self::of(self.len, self.bits)
    }

    /// How many words there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A word; `None` if it has never been needed, or is none of these.
    #[inline]
    pub(super) fn word(&self, at: usize) -> Option<&AtomicU32> {
        self.chunks.get(at >> self.bits)?.get()?.get(at & ((1 << self.bits) - 1))
    }

    /// Provides memory for `count` words from a place on; `false` if there is none. Not by two
    /// threads at once.
    pub(super) fn need(&self, at: usize, count: usize) -> bool {
        let end = at.saturating_add(count).min(self.len);
        (at >> self.bits..end.div_ceil(1 << self.bits)).all(|number| {
            let Some(chunk) = self.chunks.get(number) else { return false };
            let len = (self.len - (number << self.bits)).min(1 << self.bits);
            chunk.get().is_some() || zeros(len).is_some_and(|words| chunk.set(words).is_ok())
        })
    }

    /// Bytes of the words that have been needed, and of what leads to all.
    pub(super) fn heap_bytes(&self) -> usize {
        let words: usize =
            self.chunks.iter().filter_map(OnceLock::get).map(|chunk| size_of_val(&**chunk)).sum();
        size_of_val(&*self.chunks) + words
    }

    /// The same when all have been needed.
    pub(super) fn most_heap_bytes(&self) -> usize {
        size_of_val(&*self.chunks) + 4 * self.len
    }
}

fn zeros(len: usize) -> Option<Chunk> {
    <[AtomicU32]>::new_box_zeroed_with_elems(len).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn logs_take_what_they_may_and_little_less() {
        assert!(LazyWords::within(0).is_none() && LazyWords::within(LazyWords::BESIDE_CHUNK + 3).is_none());
        for bytes in (28..4000).chain([1 << 16, 1_000_003, 1 << 24]) {
            let log = LazyWords::within(bytes).expect("room for a word");
            assert!(log.need(0, log.len()) && log.heap_bytes() == log.most_heap_bytes(), "{bytes}");
            assert!(
                log.heap_bytes() <= bytes && log.heap_bytes() + 4 + LazyWords::BESIDE_CHUNK > bytes,
                "{bytes}"
            );
            let other = log.emptied().expect("memory");
            assert_eq!((other.len(), other.heap_bytes()), (log.len(), size_of_val(&*log.chunks)));
        }
    }

    #[test]
    fn as_many_words_have_room_as_were_asked_for() {
        for words in (1..3000).chain([1 << 16, 1_000_003, 1 << 24]) {
            let bytes = LazyWords::bytes_for(words);
            let log = LazyWords::within(bytes as usize).expect("room");
            assert!(log.len() as u64 >= words, "{words} words in {bytes} bytes, {log:?}");
            assert!(bytes < 4 * words + words / 2 + 300, "{words} words in {bytes} bytes");
        }
        assert!(LazyWords::bytes_for(u64::MAX) == u64::MAX);
    }

    #[test]
    fn words_are_there_from_when_they_are_needed_and_each_once() {
        let log = LazyWords::within(100_000).expect("room");
        let chunk = 1 << log.bits;
        assert!(log.word(0).is_none());
        let before = log.heap_bytes();
        assert!(log.need(chunk - 1, 2), "across the end of a chunk");
        assert_eq!(log.heap_bytes(), before + 8 * chunk);
        for at in 0..2 * chunk {
            assert_eq!(log.word(at).map(|word| word.swap(at as u32 + 1, Ordering::Relaxed)), Some(0));
        }
        assert!(log.word(2 * chunk).is_none() && log.need(0, chunk));
        assert_eq!(log.word(chunk).map(|word| word.load(Ordering::Relaxed)), Some(chunk as u32 + 1));
        assert_eq!(log.heap_bytes(), before + 8 * chunk);
        assert!(
            log.need(log.len() - 1, 1) && log.word(log.len() - 1).is_some() && log.word(log.len()).is_none()
        );
    }
}
