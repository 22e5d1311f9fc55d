//! Matching 64 bytes a step, the last step masked.

use std::arch::x86_64::*;

use super::{Hits, KeyHits, SlotStride};
use crate::fingerprint::FingerprintWidth;

/// A slot word's state when it is frozen: both low bits.
const FROZEN_STATE: i64 = 3;

/// Whether this processor runs the kernel.
pub(super) fn supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
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
    // SAFETY: `Matcher::available` offers this kernel only where `supported` has seen AVX-512 F and BW.
    unsafe {
        match width {
            FingerprintWidth::Bits8 => scan::<1>(window, _mm512_set1_epi8(wanted as i8), base, found),
            FingerprintWidth::Bits16 => scan::<2>(window, _mm512_set1_epi16(wanted as i16), base, found),
            FingerprintWidth::Bits32 => scan::<4>(window, _mm512_set1_epi32(wanted as i32), base, found),
            FingerprintWidth::Bits64 => scan::<8>(window, _mm512_set1_epi64(wanted as i64), base, found),
        }
    }
}

/// One bit per lane of `W` bytes in which `a` and `b` agree.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn equal_lanes<const W: usize>(a: __m512i, b: __m512i) -> u64 {
    match W {
        1 => _mm512_cmpeq_epi8_mask(a, b),
        2 => u64::from(_mm512_cmpeq_epi16_mask(a, b)),
        4 => u64::from(_mm512_cmpeq_epi32_mask(a, b)),
        _ => u64::from(_mm512_cmpeq_epi64_mask(a, b)),
    }
}

/// See [`Matcher::hits`](super::Matcher::hits).
pub(super) fn hits(width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits {
    debug_assert!(supported());
    // SAFETY: `Matcher::available` offers this kernel only where `supported` has seen AVX-512 F and BW.
    unsafe {
        match width {
            FingerprintWidth::Bits8 => count::<1>(window, _mm512_set1_epi8(wanted as i8)),
            FingerprintWidth::Bits16 => count::<2>(window, _mm512_set1_epi16(wanted as i16)),
            FingerprintWidth::Bits32 => count::<4>(window, _mm512_set1_epi32(wanted as i32)),
            FingerprintWidth::Bits64 => count::<8>(window, _mm512_set1_epi64(wanted as i64)),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn count<const W: usize>(window: &[u8], needle: __m512i) -> Hits {
    let mut hits = Hits { first: u32::MAX, ..Hits::default() };
    let mut base = 0;
    for group in window.chunks(64 * W) {
        let (lanes, frozen) = match_group::<W>(group, needle);
        hits.count += lanes.count_ones();
        // Without a branch on what the window holds, so that the processor runs ahead while it is on its way.
        let first = if lanes == 0 { u32::MAX } else { base + lanes.trailing_zeros() };
        hits.first = hits.first.min(first);
        hits.frozen |= frozen;
        base += 64;
    }
    hits
}

#[target_feature(enable = "avx512f,avx512bw")]
fn scan<const W: usize>(window: &[u8], needle: __m512i, base: u32, found: &mut Vec<u32>) -> bool {
    let mut any_frozen = false;
    let mut index = base;
    for group in window.chunks(64 * W) {
        let (mut lanes, frozen) = match_group::<W>(group, needle);
        any_frozen |= frozen;
        while lanes != 0 {
            found.push(index + lanes.trailing_zeros());
            lanes &= lanes - 1;
        }
        index += 64;
    }
    any_frozen
}

/// See [`Matcher::key_hits`](super::Matcher::key_hits).
pub(super) fn keys(window: &[u64], stride: &SlotStride, key: u64) -> KeyHits {
    debug_assert!(supported());
    // SAFETY: `Matcher::available` offers this kernel only where `supported` has seen AVX-512 F and BW.
    unsafe { scan_slots(window, stride, key) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn scan_slots(window: &[u64], stride: &SlotStride, key: u64) -> KeyHits {
    let needle = _mm512_set1_epi64(key as i64);
    let mut hits = KeyHits { word: u32::MAX, ..KeyHits::default() };
    let mut base = 0u32;
    let mut masks = stride.masks();
    // One bit per word of 64 of them, so that what each vector holds is no work of its own.
    for group in window.chunks(64) {
        let mut shows = 0u64;
        for (part, chunk) in group.chunks(8).enumerate() {
            let Some((_, seconds)) = masks.next() else { break };
            let v = words(chunk);
            let inside = u8::MAX >> (8 - chunk.len());
            shows |= u64::from(_mm512_mask_cmpeq_epi64_mask(seconds & inside, v, needle)) << (8 * part);
        }
        hits.count += shows.count_ones();
        // The slot begins one word before its key.
        let word = if shows == 0 { u32::MAX } else { base + shows.trailing_zeros() - 1 };
        hits.word = hits.word.min(word);
        base += 64;
    }
    hits.frozen = hits.count == 0 && any_frozen(window, stride);
    hits
}

/// Whether any slot is frozen.
#[target_feature(enable = "avx512f,avx512bw")]
fn any_frozen(window: &[u64], stride: &SlotStride) -> bool {
    let frozen = _mm512_set1_epi64(FROZEN_STATE);
    let mut any = 0;
    for (chunk, (firsts, _)) in window.chunks(8).zip(stride.masks()) {
        let v = words(chunk);
        let inside = u8::MAX >> (8 - chunk.len());
        any |= _mm512_mask_cmpeq_epi64_mask(firsts & inside, _mm512_and_si512(v, frozen), frozen);
    }
    any != 0
}

/// Up to eight words, zeros behind them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words(chunk: &[u64]) -> __m512i {
    // SAFETY: eight words are 64 readable bytes; of fewer the mask names only those inside `chunk`, and words that are
    // masked off are not accessed. Neither load asks for alignment.
    unsafe {
        match chunk.len() {
            8 => _mm512_loadu_si512(chunk.as_ptr().cast()),
            n => _mm512_maskz_loadu_epi64(
                u8::MAX.checked_shr(8 - n as u32).unwrap_or(0),
                chunk.as_ptr().cast(),
            ),
        }
    }
}

/// Matches up to 64 fingerprints: one bit per match, and whether one of them is FROZEN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn match_group<const W: usize>(group: &[u8], needle: __m512i) -> (u64, bool) {
    let mut lanes = 0;
    // FROZEN is the greatest fingerprint, so the greatest of all tells.
    let mut greatest = _mm512_setzero_si512();
    let (chunks, rest) = group.as_chunks::<64>();
    let mut part = 0;
    for chunk in chunks {
        // SAFETY: `chunk` is 64 readable bytes, and the load asks for no alignment.
        let v = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
        greatest = greatest_of::<W>(greatest, v);
        lanes |= equal_lanes::<W>(v, needle) << part;
        // With 64 lanes a chunk the group has one chunk.
        part = (part + 64 / W) % 64;
    }
    let tail = rest.len() / W;
    if tail > 0 {
        let bytes = (1u64 << (tail * W)) - 1;
        // SAFETY: the mask names only bytes inside `rest`; bytes that are masked off are not accessed.
        let v = unsafe { _mm512_maskz_loadu_epi8(bytes, rest.as_ptr().cast()) };
        greatest = greatest_of::<W>(greatest, v);
        lanes |= (equal_lanes::<W>(v, needle) & ((1 << tail) - 1)) << part;
    }
    (lanes, equal_lanes::<W>(greatest, _mm512_set1_epi8(-1)) != 0)
}

/// The greater of each lane of `W` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn greatest_of<const W: usize>(a: __m512i, b: __m512i) -> __m512i {
    match W {
        1 => _mm512_max_epu8(a, b),
        2 => _mm512_max_epu16(a, b),
        4 => _mm512_max_epu32(a, b),
        _ => _mm512_max_epu64(a, b),
    }
}
