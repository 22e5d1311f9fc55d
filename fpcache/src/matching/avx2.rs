//! Matching 32 bytes a step.

use std::arch::x86_64::*;

use super::{Hits, portable};
use crate::fingerprint::FingerprintWidth;

/// Whether this processor runs the kernel.
pub(super) fn supported() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") && is_x86_feature_detected!("bmi1")
}

/// See [`Matcher::find`](super::Matcher::find).
pub(super) fn find(
    width: FingerprintWidth,
    window: &[u8],
    wanted: u64,
    base: u32,
    found: &mut Vec<u32>,
) -> bool {
    debug_assert!(supported());
    // SAFETY: `Matcher::available` offers this kernel only where `supported` has seen its features.
    unsafe { scan(width, window, wanted, base, found) }
}

/// See [`Matcher::hits`](super::Matcher::hits).
pub(super) fn hits(width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits {
    debug_assert!(supported());
    // SAFETY: `Matcher::available` offers this kernel only where `supported` has seen its features.
    unsafe { count(width, window, wanted) }
}

#[target_feature(enable = "avx2,popcnt,bmi1")]
fn scan(width: FingerprintWidth, window: &[u8], wanted: u64, base: u32, found: &mut Vec<u32>) -> bool {
    let needle = broadcast(width, wanted);
    let w = width.bytes() as u32;
    let (chunks, rest) = window.as_chunks::<32>();
    let mut frozen = false;
    let mut index = base;
    for chunk in chunks {
        let (mut equal, any_frozen) = match_chunk(width, chunk, needle);
        frozen |= any_frozen != 0;
        while equal != 0 {
            let byte = equal.trailing_zeros();
            found.push(index + byte / w);
            // The mask has one bit per byte: clear all of this fingerprint's.
            equal &= !(((1u64 << w) - 1) as u32).wrapping_shl(byte);
        }
        index += 32 / w;
    }
    portable::find(width, rest, wanted, index, found) || frozen
}

/// Without a branch on what the window holds, so that the processor runs ahead while it is on its way.
#[target_feature(enable = "avx2,popcnt,bmi1")]
fn count(width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits {
    let needle = broadcast(width, wanted);
    let w = width.bytes() as u32;
    let (chunks, rest) = window.as_chunks::<32>();
    let (mut bytes, mut first, mut frozen, mut base) = (0, u32::MAX, 0, 0);
    for chunk in chunks {
        let (equal, any_frozen) = match_chunk(width, chunk, needle);
        frozen |= any_frozen;
        bytes += equal.count_ones();
        first = first.min(if equal == 0 { u32::MAX } else { base + equal.trailing_zeros() });
        base += 32;
    }
    let tail = portable::hits(width, rest, wanted);
    // In bytes so far: one bit per byte.
    first = first.min(if tail.count == 0 { u32::MAX } else { base + tail.first * w });
    Hits { count: bytes / w + tail.count, first: first / w, frozen: frozen != 0 || tail.frozen }
}

/// `wanted` in every lane.
#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(width: FingerprintWidth, wanted: u64) -> __m256i {
    match width {
        FingerprintWidth::Bits8 => _mm256_set1_epi8(wanted as i8),
        FingerprintWidth::Bits16 => _mm256_set1_epi16(wanted as i16),
        FingerprintWidth::Bits32 => _mm256_set1_epi32(wanted as i32),
        FingerprintWidth::Bits64 => _mm256_set1_epi64x(wanted as i64),
    }
}

/// Which bytes of the chunk belong to fingerprints that match, and which to frozen ones: a bit per byte.
#[inline]
#[target_feature(enable = "avx2")]
fn match_chunk(width: FingerprintWidth, chunk: &[u8; 32], needle: __m256i) -> (u32, u32) {
    // SAFETY: `chunk` is 32 readable bytes, and the load asks for no alignment.
    let v = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) };
    let frozen = _mm256_set1_epi8(-1);
    let (equal, frozen) = match width {
        FingerprintWidth::Bits8 => (_mm256_cmpeq_epi8(v, needle), _mm256_cmpeq_epi8(v, frozen)),
        FingerprintWidth::Bits16 => (_mm256_cmpeq_epi16(v, needle), _mm256_cmpeq_epi16(v, frozen)),
        FingerprintWidth::Bits32 => (_mm256_cmpeq_epi32(v, needle), _mm256_cmpeq_epi32(v, frozen)),
        FingerprintWidth::Bits64 => (_mm256_cmpeq_epi64(v, needle), _mm256_cmpeq_epi64(v, frozen)),
    };
    (_mm256_movemask_epi8(equal) as u32, _mm256_movemask_epi8(frozen) as u32)
}
