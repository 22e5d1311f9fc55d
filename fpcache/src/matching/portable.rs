//! The portable kernels, and the measure of the others.

use fpcache_fabric::Words;
use fpcache_index::{ScalarSteps, Steps};
use zerocopy::IntoBytes;

use super::hits::Hits;
use super::kernels::{CallWithKernels, Fingerprints, Kernels, WithKernels};
use super::nearest::{NearestQuery, NearestSlot, SLOT_WORDS, is_changed, nearest};
use super::stride::{self, SlotStride};
use crate::fingerprint::FingerprintWidth;

/// Kernels of words that do not change: others are copied first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

impl Portable {
    /// Runs code over these kernels.
    pub(super) fn run<W: WithKernels>(self, work: W) -> W::Output {
        work.run(self)
    }

    /// The same, of code that takes arguments. A call, as it is with other kernels: the caller needs
    /// the fewer registers.
    #[inline(never)]
    pub(super) fn call<W: CallWithKernels<A, B, C>, A, B, C>(self, a: A, b: B, c: C) -> W::Output {
        W::call(self, a, b, c)
    }
}

impl Steps for Portable {
    #[inline(always)]
    fn count_not_above(self, items: &[u64; 8], head: u64) -> usize {
        ScalarSteps.count_not_above(items, head)
    }
}

impl Kernels for Portable {
    fn hits_in(self, window: Fingerprints<'_>, wanted: u64, copy: &mut Vec<u64>) -> Hits {
        let bytes = bytes_of(window, copy);
        match window.width {
            FingerprintWidth::Bits8 => count(bytes, u8::from_le_bytes, wanted as u8, u8::MAX),
            FingerprintWidth::Bits16 => count(bytes, u16::from_le_bytes, wanted as u16, u16::MAX),
            FingerprintWidth::Bits32 => count(bytes, u32::from_le_bytes, wanted as u32, u32::MAX),
            FingerprintWidth::Bits64 => count(bytes, u64::from_le_bytes, wanted, u64::MAX),
        }
    }

    fn find_in(
        self,
        window: Fingerprints<'_>,
        wanted: u64,
        base: u32,
        found: &mut Vec<u32>,
        copy: &mut Vec<u64>,
    ) -> bool {
        let bytes = bytes_of(window, copy);
        match window.width {
            FingerprintWidth::Bits8 => scan(bytes, u8::from_le_bytes, wanted as u8, u8::MAX, base, found),
            FingerprintWidth::Bits16 => scan(bytes, u16::from_le_bytes, wanted as u16, u16::MAX, base, found),
            FingerprintWidth::Bits32 => scan(bytes, u32::from_le_bytes, wanted as u32, u32::MAX, base, found),
            FingerprintWidth::Bits64 => scan(bytes, u64::from_le_bytes, wanted, u64::MAX, base, found),
        }
    }

    fn key_hits_in(self, window: Words<'_>, stride: &SlotStride, key: u64, copy: &mut Vec<u64>) -> Hits {
        stride::portable(landed(window, copy), stride, key)
    }

    #[inline(always)]
    fn nearest_in(self, slots: Words<'_>, query: NearestQuery) -> NearestSlot {
        nearest(slots, SLOT_WORDS, query)
    }

    #[inline(always)]
    fn is_changed_in(self, slots: Words<'_>) -> bool {
        is_changed(slots, SLOT_WORDS)
    }
}

/// The fingerprints' bytes.
fn bytes_of<'b>(window: Fingerprints<'b>, copy: &'b mut Vec<u64>) -> &'b [u8] {
    &landed(window.words, copy).as_bytes()[window.skip..][..window.used]
}

/// These words, copied if others may change them.
fn landed<'b>(words: Words<'b>, copy: &'b mut Vec<u64>) -> &'b [u64] {
    words.landed().unwrap_or_else(|| {
        words.copy_to(copy);
        copy
    })
}

/// Without a branch on what the window holds, so that the processor runs ahead while the window is
/// on its way.
#[inline(always)]
fn count<const W: usize, F: Copy + Eq>(
    window: &[u8],
    read: impl Fn([u8; W]) -> F,
    wanted: F,
    frozen: F,
) -> Hits {
    let (mut count, mut first, mut any_frozen) = (0, 0, false);
    let (fingerprints, _) = window.as_chunks::<W>();
    for (index, bytes) in fingerprints.iter().enumerate().rev() {
        let fingerprint = read(*bytes);
        let hit = fingerprint == wanted;
        any_frozen |= fingerprint == frozen;
        count += u32::from(hit);
        first = if hit { index as u32 } else { first };
    }
    Hits::new(count, first, any_frozen)
}

#[inline(always)]
fn scan<const W: usize, F: Copy + Eq>(
    window: &[u8],
    read: impl Fn([u8; W]) -> F,
    wanted: F,
    frozen: F,
    base: u32,
    found: &mut Vec<u32>,
) -> bool {
    let mut any_frozen = false;
    for (index, bytes) in (base..).zip(window.as_chunks::<W>().0) {
        let fingerprint = read(*bytes);
        any_frozen |= fingerprint == frozen;
        if fingerprint == wanted {
            found.push(index);
        }
    }
    any_frozen
}
