//! Copies of records that a guard proves whole.
//!
//! A record begins with its *guard*, an aligned word that its writer changes before it changes
//! anything after it, with a release between, and to another value after, with a release before. A
//! reader loads the guard, copies the rest, and loads the guard again. If both loads agree, the
//! copy is of one moment:
//!
//! - The first load has acquire order. What it saw was stored after the rest of that record, so the
//!   copy is not older.
//! - An acquire fence stands between the copy and the second load. Had the copy seen one word of a
//!   later record, the release before that word and this fence would synchronise (C11, 7.17.4), and
//!   the second load would see the guard that was stored before the word, or a later one.
//!
//! A guard must not have an earlier value again while a copy is under way.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, fence};

use zerocopy::IntoBytes;

use super::copy;
use super::{OutOfBounds, SharedMemory};

/// The word that lands in the place of a guard if its record kept changing while it was copied.
pub const CHANGED: u64 = 1;

/// Copies of one record before it counts as changed. Its reader may try again.
const ATTEMPTS: usize = 4;
/// Records whose guards are loaded before they are copied together.
const TOGETHER: usize = 32;

impl SharedMemory {
    /// Copies records of `stride` words, each of which begins with its guard; [`CHANGED`] lands in
    /// the place of a guard whose record was not the same throughout. That is what all of them are
    /// whose guards are not aligned, or which are cut short; what was not copied of these is zeros.
    /// Costs two loads more per record than copying does.
    ///
    /// # Errors
    /// If the words reach past the end.
    #[inline(always)]
    pub fn read_records(&self, offset: u64, out: &mut [u64], stride: usize) -> Result<(), OutOfBounds> {
        let src: *const u64 = self.at(offset, size_of_val(out))?.cast_const().cast();
        if stride == out.len() && offset.is_multiple_of(8) && stride > 0 {
            // SAFETY: `src` has as many mapped words as `out`, which are only accessed atomically;
            // it is aligned, because mappings begin on pages; there is at least one.
            unsafe { copy_record(src, out) };
            return Ok(());
        }
        self.read_many(offset, out, stride)
    }

    /// One such record of `N` words, in registers.
    ///
    /// # Errors
    /// If the words reach past the end.
    #[inline(always)]
    pub fn read_record<const N: usize>(&self, offset: u64) -> Result<[u64; N], OutOfBounds> {
        let mut out = [0; N];
        let src: *const u64 = self.at(offset, size_of_val(&out))?.cast_const().cast();
        // SAFETY: as in `read_records`.
        if N > 0 && offset.is_multiple_of(8) && unsafe { try_record(src, &mut out) } {
            return Ok(out);
        }
        // Other memory than that above, which would be no registers if this had its address.
        let mut again = [0; N];
        self.read_records(offset, &mut again, N)?;
        Ok(again)
    }

    /// Copies what a READ of `len` bytes lands, in the words that these take: records of `stride`
    /// words, or none if that is 0, and zeros after the last byte.
    #[inline(always)]
    pub(crate) fn read_landing(
        &self,
        offset: u64,
        len: usize,
        stride: usize,
        out: &mut [u64],
    ) -> Result<(), OutOfBounds> {
        match len % 8 {
            0 if stride > 0 => self.read_records(offset, out, stride),
            0 => self.read_words(offset, out),
            _ => {
                if let Some(last) = out.last_mut() {
                    *last = 0;
                }
                self.read_bytes(offset, &mut out.as_mut_bytes()[..len])
            }
        }
    }

    fn read_many(&self, offset: u64, out: &mut [u64], stride: usize) -> Result<(), OutOfBounds> {
        let src: *const u64 = self.at(offset, size_of_val(out))?.cast_const().cast();
        let mut done = 0;
        while done < out.len() && stride > 0 && offset.is_multiple_of(8) {
            let end = done.saturating_add(stride.saturating_mul(TOGETHER)).min(out.len());
            // SAFETY: `src` has as many mapped and aligned words as `out`, of which these are a
            // part.
            if !unsafe { copy_records(src.add(done), &mut out[done..end], stride) } {
                break;
            }
            done = end;
        }
        if done < out.len() {
            // What lay there before may be another client's.
            out[done..].fill(0);
            out.iter_mut().step_by(stride.max(1)).for_each(|guard| *guard = CHANGED);
        }
        Ok(())
    }
}

/// # Safety
/// `word` is aligned, mapped and only accessed atomically.
#[inline(always)]
unsafe fn guard<'a>(word: *const u64) -> &'a AtomicU64 {
    // SAFETY: by contract; loads do not need write permission.
    unsafe { AtomicU64::from_ptr(word.cast_mut()) }
}

/// Copies one record.
///
/// # Safety
/// `src` is 8-aligned with `out.len()` mapped words that are only accessed atomically; `out` is not
/// empty.
#[inline(always)]
unsafe fn copy_record(src: *const u64, out: &mut [u64]) {
    // SAFETY: the caller vouches for this function's contract.
    if unsafe { !try_record(src, out) } {
        // SAFETY: likewise.
        unsafe { copy_again(src, out) };
    }
}

/// Copies one record that changed while it was copied.
///
/// # Safety
/// As for [`copy_record`].
#[cold]
#[inline(never)]
unsafe fn copy_again(src: *const u64, out: &mut [u64]) {
    for _ in 1..ATTEMPTS {
        std::hint::spin_loop();
        // SAFETY: the caller vouches for this function's contract.
        if unsafe { try_record(src, out) } {
            return;
        }
    }
    out[0] = CHANGED;
}

/// Copies one record; whether it was the same throughout.
///
/// # Safety
/// As for [`copy_record`].
#[inline(always)]
unsafe fn try_record(src: *const u64, out: &mut [u64]) -> bool {
    // SAFETY: `src` has at least one word.
    let guard = unsafe { guard(src) };
    // Of memory that is mapped read-only nothing but relaxed loads is promised.
    let before = guard.load(Relaxed);
    fence(Acquire);
    if out.len() < copy::CHUNK_WORDS {
        // SAFETY: `src` has as many words as `out`, so both have as many after the first.
        unsafe { copy::load_few_words(src.add(1), &mut out[1..]) };
    } else {
        // SAFETY: `src` has as many words as `out`.
        unsafe { copy::load_bytes(src.cast(), out.as_mut_ptr().cast(), size_of_val(out)) };
    }
    fence(Acquire);
    // The word that was copied with the rest, if it was, may be older or newer than the rest.
    out[0] = before;
    guard.load(Relaxed) == before
}

/// Copies at most [`TOGETHER`] records: all guards, all records, all guards again. `false` if these
/// are no whole records. Nothing is divided by the stride, which takes longer than some records do.
///
/// # Safety
/// `src` is 8-aligned with `out.len()` mapped words that are only accessed atomically.
#[inline]
unsafe fn copy_records(src: *const u64, out: &mut [u64], stride: usize) -> bool {
    let mut guards = [0u64; TOGETHER];
    let mut at = 0;
    for kept in &mut guards {
        if at >= out.len() {
            break;
        }
        // SAFETY: `at` is less than the words there are.
        *kept = unsafe { guard(src.add(at)) }.load(Relaxed);
        at += stride;
    }
    if at != out.len() {
        return false;
    }
    fence(Acquire);
    // SAFETY: `src` has as many words as `out`.
    unsafe { copy::load_bytes(src.cast(), out.as_mut_ptr().cast(), size_of_val(out)) };
    fence(Acquire);
    let mut differ = 0;
    at = 0;
    for kept in &guards {
        if at >= out.len() {
            break;
        }
        // SAFETY: `at` is less than the words there are.
        let after = unsafe { guard(src.add(at)) }.load(Relaxed);
        differ |= (after ^ kept) | (out[at] ^ kept);
        at += stride;
    }
    if differ != 0 {
        // SAFETY: the caller vouches for this function's contract, and these are whole records.
        unsafe { copy_each(src, out, stride) };
    }
    true
}

/// # Safety
/// As for [`copy_records`], of whole records.
#[cold]
#[inline(never)]
unsafe fn copy_each(src: *const u64, out: &mut [u64], stride: usize) {
    for (index, record) in out.chunks_exact_mut(stride).enumerate() {
        // SAFETY: `src` has as many words as `out`, so this record has `stride`.
        unsafe { copy_record(src.add(index * stride), record) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_at_rest_are_copied_as_they_are() {
        let memory = SharedMemory::anonymous(8192).unwrap();
        let words: Vec<u64> = (100..1124).collect();
        memory.write_words(0, &words).unwrap();
        for (stride, count) in [(1, 1), (3, 1), (5, 1), (9, 1), (130, 1), (1, 70), (3, 33), (5, 100), (9, 7)]
        {
            let mut out = vec![0; stride * count];
            memory.read_records(24, &mut out, stride).unwrap();
            assert_eq!(out, &words[3..][..stride * count], "{count} of {stride}");
        }
        assert_eq!(memory.read_record(24).unwrap(), [103, 104, 105]);
        assert!(memory.read_record::<3>(8192 - 16).is_err());
        assert!(memory.read_records(8192, &mut [0; 3], 3).is_err());
        assert!(memory.read_records(8192 - 16, &mut [0; 6], 3).is_err());
    }

    #[test]
    fn what_no_guard_can_prove_counts_as_changed() {
        let memory = SharedMemory::anonymous(4096).unwrap();
        for (offset, stride) in [(4, 3), (0, 4), (0, 0), (4, 6)] {
            let mut out = [7; 6];
            memory.read_records(offset, &mut out, stride).unwrap();
            assert_eq!(out[0], CHANGED, "{stride} at {offset}");
            assert!(!out.contains(&7), "{out:?} was not written as a whole, {stride} at {offset}");
        }
        memory.read_records(0, &mut [], 0).unwrap();
        assert_eq!(memory.read_record(4).unwrap(), [CHANGED, 0, 0], "no guard is aligned");
        assert_eq!(memory.read_record(0).unwrap(), [0; 0]);
    }
}
