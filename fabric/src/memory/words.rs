//! Words that other processes may change, looked at where they lie.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::{OutOfBounds, SharedMemory};

/// A stretch of whole words that others may change while they are looked at, or that have landed.
///
/// Every load is of one aligned word, relaxed: two loads of one word may differ, and the words of a
/// stretch may be of different moments. For code that loads vectors there is the address: a vector
/// load stands for relaxed loads of its aligned words, in no order, and must be one instruction the
/// compiler can neither repeat nor leave out (inline assembly).
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    start: *const u64,
    len: usize,
    /// Whether they do not change any more.
    landed: bool,
    memory: PhantomData<&'a AtomicU64>,
}

impl<'a> Words<'a> {
    /// How many there are.
    #[inline(always)]
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there is no word.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Where they lie: [`len`](Self::len) aligned words that may be loaded, as the type says, while
    /// what they were taken from is borrowed.
    #[inline(always)]
    #[must_use]
    pub const fn as_ptr(self) -> *const u64 {
        self.start
    }

    /// Every `stride`-th of them, from the one at `first` on: `count` words, or none if there are
    /// fewer.
    #[inline(always)]
    #[must_use]
    pub fn every(self, first: usize, stride: usize, count: usize) -> Every<'a> {
        let last = (count.max(1) - 1).saturating_mul(stride).saturating_add(first);
        let left = if last < self.len { count } else { 0 };
        Every { at: self.start.wrapping_add(first), left, stride, landed: self.landed, memory: PhantomData }
    }

    /// The words, if they do not change any more.
    #[inline]
    #[must_use]
    pub fn landed(self) -> Option<&'a [u64]> {
        // SAFETY: words that have landed are those of a slice that is borrowed as long.
        self.landed.then(|| unsafe { std::slice::from_raw_parts(self.start, self.len) })
    }

    /// Copies them to `out`, which they replace.
    #[inline]
    pub fn copy_to(self, out: &mut Vec<u64>) {
        out.clear();
        out.extend(self);
    }
}

impl<'a> From<&'a [u64]> for Words<'a> {
    #[inline(always)]
    fn from(landed: &'a [u64]) -> Self {
        Self { start: landed.as_ptr(), len: landed.len(), landed: true, memory: PhantomData }
    }
}

impl Iterator for Words<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: there was a word left, which is aligned and lies in a slice that is borrowed, or
        // in a mapping whose words are only accessed atomically: a relaxed load there needs no
        // permission to write.
        let word = unsafe {
            match self.landed {
                true => self.start.read(),
                false => AtomicU64::from_ptr(self.start.cast_mut()).load(Relaxed),
            }
        };
        // SAFETY: one past a word of the stretch lies in it or at its end.
        self.start = unsafe { self.start.add(1) };
        Some(word)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl ExactSizeIterator for Words<'_> {}

/// Words at equal distances, of [`Words`]; see there. Each is loaded once.
#[derive(Clone, Debug)]
pub struct Every<'a> {
    /// The next one, as long as any are left.
    at: *const u64,
    left: usize,
    stride: usize,
    landed: bool,
    memory: PhantomData<&'a AtomicU64>,
}

impl Every<'_> {
    /// The next four, if there are as many: taken so, each costs a few instructions less.
    #[inline(always)]
    pub fn next_four(&mut self) -> Option<[u64; 4]> {
        self.left = self.left.checked_sub(4)?;
        let at = self.at;
        self.at = at.wrapping_add(4 * self.stride);
        Some([
            self.load(at),
            self.load(at.wrapping_add(self.stride)),
            self.load(at.wrapping_add(2 * self.stride)),
            self.load(at.wrapping_add(3 * self.stride)),
        ])
    }

    /// Loads one of those that were left.
    #[inline(always)]
    fn load(&self, at: *const u64) -> u64 {
        // SAFETY: one of the stretch, from which no more were taken than it has. It is aligned, and
        // in a slice that is borrowed, or in a mapping whose words are only accessed atomically: a
        // relaxed load there needs no permission to write.
        unsafe {
            match self.landed {
                true => at.read(),
                false => AtomicU64::from_ptr(at.cast_mut()).load(Relaxed),
            }
        }
    }
}

impl Iterator for Every<'_> {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = at.wrapping_add(self.stride);
        Some(self.load(at))
    }
}

impl SharedMemory {
    /// The words of `bytes` bytes at `offset`, rounded down to whole words, where they lie.
    /// `offset` is rounded down too.
    ///
    /// # Errors
    /// If they reach past the end.
    #[inline(always)]
    pub fn words(&self, offset: u64, bytes: usize) -> Result<Words<'_>, OutOfBounds> {
        // The base is on a page: a multiple of eight after it is aligned.
        let start = self.at(offset & !7, bytes)?.cast_const().cast();
        Ok(Words { start, len: bytes / 8, landed: false, memory: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_lie_there_and_none_beyond() {
        let memory = SharedMemory::anonymous(4096).unwrap();
        memory.write_words(0, &(0..512).collect::<Vec<u64>>()).unwrap();
        assert!(memory.words(24, 40).unwrap().eq(3..8));
        assert_eq!(memory.words(4096, 0).unwrap().len(), 0);
        assert!(memory.words(4088, 16).is_err());
        let landed = [5u64, 6];
        let mut copied = vec![1, 2, 3];
        Words::from(&landed[..]).copy_to(&mut copied);
        assert_eq!(copied, landed);
        let mut rest = Words::from(&landed[..]);
        assert_eq!((rest.landed(), rest.next(), rest.landed()), (Some(&[5, 6][..]), Some(5), Some(&[6][..])));
        assert_eq!(memory.words(0, 8).unwrap().landed(), None);
    }

    #[test]
    fn words_at_equal_distances_end_with_the_stretch() {
        let memory = SharedMemory::anonymous(4096).unwrap();
        let numbers: Vec<u64> = (0..512).collect();
        memory.write_words(0, &numbers).unwrap();
        for (count, first, stride) in (1..30).flat_map(|count| [(count, 0, 1), (count, 1, 3), (count, 7, 5)])
        {
            let len = first + (count - 1) * stride + 1;
            let expected: Vec<u64> = numbers[..len].iter().copied().skip(first).step_by(stride).collect();
            for words in [memory.words(0, len * 8).unwrap(), Words::from(&numbers[..len])] {
                assert!(words.every(first, stride, count).eq(expected.iter().copied()));
                assert_eq!(words.every(first, stride, count + 1).next(), None, "there are fewer");
                let (mut every, mut found) = (words.every(first, stride, count), Vec::new());
                while let Some(four) = every.next_four() {
                    found.extend(four);
                }
                found.extend(every);
                assert_eq!(found, expected, "{count} words, from {first} on, {stride} apart");
            }
        }
    }
}
