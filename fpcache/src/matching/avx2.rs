//! Matching 32 bytes a step.

use std::arch::x86_64::*;

use super::portable;
use crate::fingerprint::FingerprintWidth;

/// Whether this processor runs the kernel.
pub(super) fn supported() -> bool {
    is_x86_feature_detected!("avx2")
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
    // SAFETY: `Matcher::available` offers this kernel only where `supported` has seen AVX2.
    unsafe { find_avx2(width, window, wanted, base, found) }
}

#[target_feature(enable = "avx2")]
fn find_avx2(width: FingerprintWidth, window: &[u8], wanted: u64, base: u32, found: &mut Vec<u32>) -> bool {
    let needle = match width {
        FingerprintWidth::Bits8 => _mm256_set1_epi8(wanted as i8),
        FingerprintWidth::Bits16 => _mm256_set1_epi16(wanted as i16),
        FingerprintWidth::Bits32 => _mm256_set1_epi32(wanted as i32),
        FingerprintWidth::Bits64 => _mm256_set1_epi64x(wanted as i64),
    };
    let frozen = _mm256_set1_epi8(-1);
    let w = width.bytes();
    let (chunks, rest) = window.as_chunks::<32>();
    let mut any_frozen = 0;
    let mut index = base;
    for chunk in chunks {
        // SAFETY: `chunk` is 32 readable bytes, and the load asks for no alignment.
        let v = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) };
        let (eq, fr) = match width {
            FingerprintWidth::Bits8 => (_mm256_cmpeq_epi8(v, needle), _mm256_cmpeq_epi8(v, frozen)),
            FingerprintWidth::Bits16 => (_mm256_cmpeq_epi16(v, needle), _mm256_cmpeq_epi16(v, frozen)),
            FingerprintWidth::Bits32 => (_mm256_cmpeq_epi32(v, needle), _mm256_cmpeq_epi32(v, frozen)),
            FingerprintWidth::Bits64 => (_mm256_cmpeq_epi64(v, needle), _mm256_cmpeq_epi64(v, frozen)),
        };
        any_frozen |= _mm256_movemask_epi8(fr);
        let mut hits = _mm256_movemask_epi8(eq) as u32;
        while hits != 0 {
            let byte = hits.trailing_zeros();
            found.push(index + byte / w as u32);
            // The mask has one bit per byte: clear all of this fingerprint's.
            hits &= !(((1u64 << w) - 1) as u32).wrapping_shl(byte);
        }
        index += (32 / w) as u32;
    }
    portable::find(width, rest, wanted, index, found) || any_frozen != 0
}
