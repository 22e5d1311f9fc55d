//! The kernel every processor runs, and the measure of the others.

use super::hits::Hits;
use crate::fingerprint::FingerprintWidth;

/// See [`Matcher::find`](super::Matcher::find).
pub(super) fn find(
    width: FingerprintWidth,
    window: &[u8],
    wanted: u64,
    base: u32,
    found: &mut Vec<u32>,
) -> bool {
    match width {
        FingerprintWidth::Bits8 => scan(window, u8::from_le_bytes, wanted as u8, u8::MAX, base, found),
        FingerprintWidth::Bits16 => scan(window, u16::from_le_bytes, wanted as u16, u16::MAX, base, found),
        FingerprintWidth::Bits32 => scan(window, u32::from_le_bytes, wanted as u32, u32::MAX, base, found),
        FingerprintWidth::Bits64 => scan(window, u64::from_le_bytes, wanted, u64::MAX, base, found),
    }
}

/// See [`Matcher::hits`](super::Matcher::hits).
pub(super) fn hits(width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits {
    match width {
        FingerprintWidth::Bits8 => count(window, u8::from_le_bytes, wanted as u8, u8::MAX),
        FingerprintWidth::Bits16 => count(window, u16::from_le_bytes, wanted as u16, u16::MAX),
        FingerprintWidth::Bits32 => count(window, u32::from_le_bytes, wanted as u32, u32::MAX),
        FingerprintWidth::Bits64 => count(window, u64::from_le_bytes, wanted, u64::MAX),
    }
}

/// Without a branch on what the window holds, so that the processor runs ahead while the window is on its way.
#[inline(always)]
fn count<const W: usize, F: Copy + Eq>(
    window: &[u8],
    read: impl Fn([u8; W]) -> F,
    wanted: F,
    frozen: F,
) -> Hits {
    let mut hits = Hits::default();
    let (fingerprints, _) = window.as_chunks::<W>();
    for (index, bytes) in fingerprints.iter().enumerate().rev() {
        let fingerprint = read(*bytes);
        let hit = fingerprint == wanted;
        hits.frozen |= fingerprint == frozen;
        hits.count += u32::from(hit);
        hits.first = if hit { index as u32 } else { hits.first };
    }
    hits
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
