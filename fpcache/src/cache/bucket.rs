//! Buckets: cache lines of atomic words that threads share.

use std::sync::atomic::Ordering::Relaxed;

use super::sync::AtomicU64;

/// Bytes of a bucket: one cache line.
pub(super) const BUCKET_BYTES: usize = 64;

/// Words of a bucket.
pub(super) const WORDS: usize = BUCKET_BYTES / 8;

/// Highest level an entry can have.
pub(super) const TOP_LEVEL: u32 = 15;

/// One cache line of entries.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Bucket(pub(super) [AtomicU64; WORDS]);

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);

impl Bucket {
    /// A copy of the words, each as it was at some instant.
    #[inline]
    pub(super) fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|word| self.0[word].load(Relaxed))
    }

    /// Replaces the word if no other thread has meanwhile.
    #[inline]
    pub(super) fn swap(&self, word: usize, from: u64, to: u64) -> Result<(), u64> {
        self.0[word].compare_exchange(from, to, Relaxed, Relaxed).map(|_| ())
    }

    pub(super) fn fill(&self, mut word: impl FnMut() -> u64) {
        self.0.iter().for_each(|at| at.store(word(), Relaxed));
    }
}
