//! Memory as the memory node that owns it sees it.

use std::fmt::Debug;
use std::sync::atomic::{Ordering, fence};

use crate::memory::{AccessError, SharedMemory};

/// What a memory node does with its own memory, mapped or simulated: loads, stores, and the order
/// between stores.
///
/// Stores take effect for readers in any order, per aligned word, except where
/// [`store_release`](Self::store_release) or [`release`](Self::release) orders them. All offsets
/// are bytes from the start.
#[allow(clippy::len_without_is_empty, reason = "memory of no bytes cannot be made")]
pub trait NodeMemory: Debug + Send + Sync + 'static {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Copies bytes out.
    ///
    /// # Errors
    /// If they reach past the end.
    fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError>;

    /// Copies bytes in, whole aligned words as such.
    ///
    /// # Errors
    /// If they reach past the end or the memory is read-only.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError>;

    /// Merges 1 to 8 bytes into the one aligned word they lie in, by a load and a store: only for
    /// the word's only writer, because another writer's simultaneous store to it would be lost.
    /// [`write_bytes`](Self::write_bytes) merges by compare-and-swap, several times as dear, which
    /// matters for single fingerprints.
    ///
    /// # Errors
    /// As for [`write_bytes`](Self::write_bytes), or [`Misaligned`](AccessError::Misaligned) if
    /// they span two words.
    #[inline]
    fn merge_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let skew = (offset % 8) as usize;
        if skew + bytes.len() > 8 {
            return Err(AccessError::Misaligned { offset });
        }
        let word = offset - skew as u64;
        let mut merged = self.load_relaxed(word)?.to_le_bytes();
        merged[skew..skew + bytes.len()].copy_from_slice(bytes);
        self.store_relaxed(word, u64::from_le_bytes(merged))
    }

    /// Stores `value` in `count` words from the 8-aligned `offset` on.
    ///
    /// # Errors
    /// As for [`write_bytes`](Self::write_bytes), or if the offset is not aligned.
    fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError>;

    /// Loads the word at the 8-aligned `offset`.
    ///
    /// # Errors
    /// If it lies past the end or is not aligned.
    fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError>;

    /// Loads the word at the 8-aligned `offset`; what its writer stored before it is visible after.
    ///
    /// # Errors
    /// If it lies past the end or is not aligned.
    fn load_acquire(&self, offset: u64) -> Result<u64, AccessError>;

    /// Stores the word at the 8-aligned `offset`.
    ///
    /// # Errors
    /// As for [`fill_words`](Self::fill_words).
    fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError>;

    /// Stores the word at the 8-aligned `offset`; a reader that sees it sees everything stored
    /// before.
    ///
    /// # Errors
    /// As for [`fill_words`](Self::fill_words).
    fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError>;

    /// A reader that sees anything stored after it sees everything stored before it.
    fn release(&self);

    /// Makes what was stored before visible to all, before anything that this thread stores or
    /// loads after. On x86 they can when this returns; elsewhere a moment later perhaps, which a
    /// caller that measures time from here must allow for, as [leases](crate::backend::LeasedWord)
    /// do.
    fn flush(&self) {
        fence(Ordering::SeqCst);
    }

    /// A hint that `len` bytes at `offset` are needed soon.
    fn prefetch(&self, offset: u64, len: usize) {
        let _ = (offset, len);
    }
}

impl NodeMemory for SharedMemory {
    #[inline]
    fn len(&self) -> u64 {
        SharedMemory::len(self) as u64
    }

    #[inline]
    fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        Ok(SharedMemory::read_bytes(self, offset, out)?)
    }

    #[inline]
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        SharedMemory::write_bytes(self, offset, bytes)
    }

    #[inline]
    fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError> {
        SharedMemory::fill_words(self, offset, count, value)
    }

    #[inline]
    fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        SharedMemory::load_relaxed(self, offset)
    }

    #[inline]
    fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        SharedMemory::load_acquire(self, offset)
    }

    #[inline]
    fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        SharedMemory::store_relaxed(self, offset, value)
    }

    #[inline]
    fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        SharedMemory::store_release(self, offset, value)
    }

    #[inline]
    fn release(&self) {
        fence(Ordering::Release);
    }

    #[inline]
    fn prefetch(&self, offset: u64, len: usize) {
        SharedMemory::prefetch(self, offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, HugePages};

    /// The memory by the trait, as a memory node sees it.
    fn memory(len: usize) -> impl NodeMemory {
        SharedMemory::anonymous(len).unwrap()
    }

    #[test]
    fn bytes_are_merged_into_their_word_alone() {
        let memory = memory(64);
        for len in 1..=8 {
            for skew in 0..8u64 {
                memory.fill_words(0, 3, u64::MAX).unwrap();
                let bytes: Vec<u8> = (1..=len as u8).collect();
                let merged = memory.merge_bytes(8 + skew, &bytes);
                if skew + len > 8 {
                    assert_eq!(merged, Err(AccessError::Misaligned { offset: 8 + skew }));
                    continue;
                }
                merged.unwrap();
                let mut expected = [0xff; 24];
                expected[8 + skew as usize..][..len as usize].copy_from_slice(&bytes);
                let mut seen = [0; 24];
                memory.read_bytes(0, &mut seen).unwrap();
                assert_eq!(seen, expected, "{len} bytes at {skew}");
            }
        }
        assert!(matches!(memory.merge_bytes(64, &[1]), Err(AccessError::OutOfBounds(_))));
        let (_, fd) = SharedMemory::create_memfd("test", 64, HugePages::No).unwrap();
        let read_only = SharedMemory::map(fd, 64, Access::ReadOnly).unwrap();
        assert_eq!(read_only.merge_bytes(0, &[1]), Err(AccessError::ReadOnly));
    }

    #[test]
    fn words_need_alignment_and_a_place() {
        let memory = memory(64);
        for offset in [1, 4, 7, 57] {
            let misaligned = AccessError::Misaligned { offset };
            assert_eq!(memory.load_relaxed(offset), Err(misaligned));
            assert_eq!(memory.load_acquire(offset), Err(misaligned));
            assert_eq!(memory.store_relaxed(offset, 1), Err(misaligned));
            assert_eq!(memory.store_release(offset, 1), Err(misaligned));
            assert_eq!(memory.fill_words(offset, 1, 1), Err(misaligned));
        }
        for offset in [64, u64::MAX - 7] {
            assert!(matches!(memory.load_relaxed(offset), Err(AccessError::OutOfBounds(_))));
            assert!(matches!(memory.store_release(offset, 1), Err(AccessError::OutOfBounds(_))));
        }
        assert!(memory.write_bytes(60, &[0; 5]).is_err());
        assert!(memory.fill_words(56, 2, 1).is_err());
        memory.prefetch(u64::MAX, 1);
        assert_eq!(memory.len(), 64);
    }

    /// Message passing, by a releasing store and by a release fence.
    #[test]
    fn who_sees_a_store_after_a_release_sees_those_before_it() {
        const ROUNDS: u64 = 50_000;
        let memory = memory(4096);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    memory.store_relaxed(1024, round).unwrap();
                    memory.merge_bytes(2048, &(round as u32).to_le_bytes()).unwrap();
                    memory.store_release(0, round).unwrap();
                    memory.write_bytes(3072, &round.to_le_bytes()).unwrap();
                    memory.release();
                    memory.store_relaxed(64, round).unwrap();
                }
            });
            let mut seen = 0;
            while seen < ROUNDS {
                let fenced = memory.load_acquire(64).unwrap();
                assert!(memory.load_relaxed(3072).unwrap() >= fenced, "before a fence");
                seen = memory.load_acquire(0).unwrap();
                assert!(memory.load_relaxed(1024).unwrap() >= seen, "before a releasing store");
                assert!(memory.load_relaxed(2048).unwrap() >= seen, "merged bytes");
            }
        });
    }
}
