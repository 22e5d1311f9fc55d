//! Memory that another process, another thread or a network card may change at any time.
//!
//! Beside verbs this is the only module of the crate with `unsafe` code. Nothing here ever makes a
//! `&[u8]` into the mapping: bytes are loaded by relaxed atomic loads of aligned 8-byte words, or
//! by vector loads that stand for these ([`Words`]), into private memory or a register, and only
//! then looked at. A racing writer can therefore make a copy a mixture of old and new words (it
//! *tears*), never undefined behaviour; checksums and versions, the business of the layers above,
//! detect that.
//!
//! **One access size.** Rust leaves racing atomic accesses of different sizes undefined, so every
//! access is of whole, aligned 8-byte words. A read of odd bytes loads the words they lie in; a
//! write of odd bytes merges them into their word by compare-and-swap, so that a neighbour's
//! simultaneous write is not lost. Mappings end on page boundaries, so the last bytes' word is
//! always mapped.
//!
//! On x86-64 long copies go through 16-byte vector moves in inline assembly (atomics are not
//! vectorised by the compiler). Assembly is outside the language's memory model; processors do not
//! tear an aligned 8-byte half of a vector move, so it acts as the relaxed word loads it stands
//! for.

mod backing;
mod copy;
mod copy_prefetch;
mod file;
mod fork;
mod guarded;
mod huge;
mod kinds;
mod mapping;
mod own_pages;
mod registrations;
mod words;

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use copy_prefetch::{PREFETCH_PER_READ, read_ahead};
pub use file::{FileAt, FileIdentity};
pub use fork::ForkFlag;
pub(crate) use fork::detach_inherited;
pub use guarded::CHANGED;
pub use huge::advise_huge_pages;
pub use kinds::{Access, AccessError, HugePages, MemoryError, OutOfBounds, Pages};
pub(crate) use mapping::{cannot_shrink, reopen_read_only, reopen_writable};
pub use own_pages::{OwnPages, merge_own_memory};
#[cfg(feature = "rdma")]
pub(crate) use registrations::Registered;
pub(crate) use registrations::Registrations;
pub use words::Words;

const HUGE_PAGE: usize = 2 << 20;
/// `f_type` of hugetlbfs, from statfs(2).
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// A mapped region of memory, unmapped on drop.
///
/// All accesses are bounds-checked. Offsets and lengths are in bytes.
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    /// `len` rounded up to whole pages: what is mapped.
    mapped: usize,
    access: Access,
    pages: Pages,
    /// Whether it lies in no file, named or not: what is unmapped then is lost.
    is_anonymous: bool,
    /// The named file it lies in, if it was made from one: to sync it.
    file: Option<OwnedFd>,
    /// See [`set_backed_end`](Self::set_backed_end).
    backed_end: Arc<AtomicU64>,
    /// The devices that it is registered with.
    registrations: Arc<Registrations>,
}

// SAFETY: the mapping belongs to this value alone until drop, is not tied to a thread, and is only
// accessed through atomic words (or assembly that stands for them), which any number of threads may
// do at once.
unsafe impl Send for SharedMemory {}
// SAFETY: as above: `&SharedMemory` offers no non-atomic access and no reference into the mapping.
unsafe impl Sync for SharedMemory {}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, access, pages, .. } = self;
        f.debug_struct("SharedMemory")
            .field("len", len)
            .field("access", access)
            .field("pages", pages)
            .finish()
    }
}

impl SharedMemory {
    /// Length in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "memory of no bytes cannot be made")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The access rights to it.
    #[inline]
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Which pages it got.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The address of `len` accessible bytes at `offset`.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, OutOfBounds> {
        let memory_len = self.len as u64;
        // Where `len` is a constant, one comparison waits for the offset.
        let last = memory_len.checked_sub(len as u64);
        if last.is_none_or(|last| offset > last) {
            return Err(OutOfBounds { offset, len: len as u64, memory_len });
        }
        // SAFETY: `offset <= self.len - len`, so the result lies in the mapping or one past its end.
        Ok(unsafe { self.base.as_ptr().add(offset as usize) })
    }

    #[inline]
    fn at_mut(&self, offset: u64, len: usize) -> Result<*mut u8, AccessError> {
        if self.access == Access::ReadOnly {
            return Err(AccessError::ReadOnly);
        }
        Ok(self.at(offset, len)?)
    }

    /// The word at `offset`; for loads only unless the mapping is writable.
    #[inline]
    fn word(&self, offset: u64) -> Result<&AtomicU64, AccessError> {
        if !offset.is_multiple_of(8) {
            return Err(AccessError::Misaligned { offset });
        }
        let at = self.at(offset, 8)?;
        // SAFETY: `at` is 8-aligned (the base is page-aligned, the offset a multiple of 8), its 8
        // bytes lie in the mapping, which outlives the borrow of `self`, and all accesses to it are
        // atomic words.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    #[inline]
    fn word_mut(&self, offset: u64) -> Result<&AtomicU64, AccessError> {
        if self.access == Access::ReadOnly {
            return Err(AccessError::ReadOnly);
        }
        self.word(offset)
    }

    /// Copies words out, relaxed. Fastest at 8-aligned offsets; others are served all the same.
    ///
    /// # Errors
    /// If the words reach past the end.
    #[inline]
    pub fn read_words(&self, offset: u64, out: &mut [u64]) -> Result<(), OutOfBounds> {
        let bytes = size_of_val(out);
        let src = self.at(offset, bytes)?;
        if out.len() < copy::CHUNK_WORDS && offset.is_multiple_of(8) {
            // SAFETY: `src` has as many mapped words as `out`, and is aligned because mappings
            // begin on pages.
            unsafe { copy::load_few_words(src.cast(), out) };
        } else {
            // SAFETY: `src` has `bytes` mapped bytes, and `out` as many exclusive ones.
            unsafe { copy::load_bytes(src, out.as_mut_ptr().cast(), bytes) };
        }
        Ok(())
    }

    /// Copies bytes out, relaxed, at any alignment.
    ///
    /// # Errors
    /// If the bytes reach past the end.
    #[inline]
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let src = self.at(offset, out.len())?;
        // SAFETY: `src` has `out.len()` mapped bytes, and `out` as many exclusive ones.
        unsafe { copy::load_bytes(src, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies words in, relaxed, at any alignment (8-aligned is fastest).
    ///
    /// # Errors
    /// If the words reach past the end or the mapping is read-only.
    #[inline]
    pub fn write_words(&self, offset: u64, words: &[u64]) -> Result<(), AccessError> {
        let bytes = size_of_val(words);
        let dst = self.at_mut(offset, bytes)?;
        // SAFETY: `dst` has `bytes` mapped and writable bytes, `words` as many readable ones.
        unsafe { copy::store_bytes(dst, words.as_ptr().cast(), bytes) };
        Ok(())
    }

    /// Copies bytes in, relaxed, at any alignment. Whole aligned words are stored as such; odd
    /// bytes at the ends are merged into their words by compare-and-swap (about 10 ns each).
    ///
    /// # Errors
    /// If the bytes reach past the end or the mapping is read-only.
    #[inline]
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let dst = self.at_mut(offset, bytes.len())?;
        // SAFETY: `dst` has `bytes.len()` mapped and writable bytes, `bytes` as many readable ones.
        unsafe { copy::store_bytes(dst, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Stores `value` in `count` words from the 8-aligned `offset` on, relaxed.
    ///
    /// # Errors
    /// If the words reach past the end, the offset is not aligned or the mapping is read-only.
    pub fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError> {
        if !offset.is_multiple_of(8) {
            return Err(AccessError::Misaligned { offset });
        }
        let len = count.saturating_mul(8);
        let dst = self.at_mut(offset, len)?.cast::<u64>();
        for index in 0..count {
            // SAFETY: `dst` is 8-aligned with `count` mapped, writable words (a saturated `len` is
            // out of bounds).
            unsafe { AtomicU64::from_ptr(dst.add(index)) }.store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Loads a word, relaxed.
    ///
    /// # Errors
    /// If the word lies past the end or is not aligned.
    #[inline]
    pub fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        Ok(self.word(offset)?.load(Ordering::Relaxed))
    }

    /// Loads a word; what its writer stored before it is visible after.
    ///
    /// # Errors
    /// If the word lies past the end or is not aligned.
    #[inline]
    pub fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        // Of memory that is mapped read-only nothing but relaxed loads is promised
        // (`std::sync::atomic`).
        let word = self.word(offset)?.load(Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Acquire);
        Ok(word)
    }

    /// Stores a word, relaxed.
    ///
    /// # Errors
    /// If the word lies past the end, is not aligned or the mapping is read-only.
    #[inline]
    pub fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word_mut(offset)?.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Stores a word; everything stored before is visible to a reader that loads it with acquire.
    ///
    /// # Errors
    /// If the word lies past the end, is not aligned or the mapping is read-only.
    #[inline]
    pub fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word_mut(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Stores `new` if the word holds `expected`, and returns the value before. Sequentially
    /// consistent.
    ///
    /// # Errors
    /// If the word lies past the end, is not aligned or the mapping is read-only.
    #[inline]
    pub fn compare_exchange(&self, offset: u64, expected: u64, new: u64) -> Result<u64, AccessError> {
        let word = self.word_mut(offset)?;
        let (Ok(old) | Err(old)) = word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
        Ok(old)
    }

    /// Hints that `len` bytes at `offset` will be read soon, all their cache lines. Out of bounds
    /// is ignored.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: usize) {
        let Ok(start) = self.at(offset, len) else { return };
        if len == 0 {
            return;
        }
        let first = start as usize & !63;
        let last = (start as usize + len - 1) & !63;
        // Most stretches have a line or two, and which is unpredictable: without a branch.
        copy::prefetch_line(first as *const u8);
        copy::prefetch_line(last as *const u8);
        let mut line = first + 64;
        while line < last {
            copy::prefetch_line(line as *const u8);
            line += 64;
        }
    }

    /// Hints that the cache lines of the first and the last of `len` bytes at `offset` will be read
    /// soon. Out of bounds it does nothing that can be seen.
    #[inline(always)]
    pub fn prefetch_short(&self, offset: u64, len: usize) {
        // A prefetch of any address is allowed.
        let first = self.base.as_ptr().wrapping_add(offset as usize);
        copy::prefetch_line(first);
        copy::prefetch_line(first.wrapping_add(len.wrapping_sub(1)));
    }

    /// Hints that the cache line at `offset` will be read soon, and `lines` on either side of it. Out
    /// of bounds it does nothing that can be seen.
    #[inline(always)]
    pub fn prefetch_around(&self, offset: u64, lines: usize) {
        // A prefetch of any address is allowed.
        let middle = self.base.as_ptr().wrapping_add(offset as usize);
        copy::prefetch_line(middle);
        let mut line = 1;
        while line <= lines {
            copy::prefetch_line(middle.wrapping_sub(64 * line));
            copy::prefetch_line(middle.wrapping_add(64 * line));
            line += 1;
        }
    }
}
