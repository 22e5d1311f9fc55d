//! Kernels of AVX2, 32 bytes a step.
//!
//! Memory that others may change is loaded by one instruction of inline assembly a vector, which
//! the compiler can neither repeat nor leave out: matching and looking for FROZEN see the same
//! bytes.

use std::arch::asm;
use std::arch::x86_64::*;

use fpcache_fabric::Words;
use fpcache_index::{ScalarSteps, Steps};

use super::hits::Hits;
use super::kernels::{CallWithKernels, Fingerprints, Kernels, LINE_BYTES, WithKernels, kernels};
use super::nearest::{NearestQuery, NearestSlot, SLOT_WORDS};
use super::stride::{SlotStride, VECTOR_WORDS};
use crate::fingerprint::FingerprintWidth;
use crate::layout::SlotWord;

/// A slot word's state when it is frozen: both low bits.
const FROZEN_STATE: i64 = 3;

/// Words of a vector.
const STEP_WORDS: usize = 4;

kernels!(std::convert::identity; "avx2", "bmi1", "bmi2", "popcnt");

/// See [`Steps::count_not_above`]: vectors of four take no fewer instructions.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn step(items: &[u64; 8], head: u64) -> usize {
    ScalarSteps.count_not_above(items, head)
}

/// See [`Steps::count_of_all`]: likewise.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn block(items: &[u64; 16], head: u64) -> usize {
    ScalarSteps.count_of_all(items, head)
}

/// `wanted` in every lane.
#[inline]
#[target_feature(enable = "avx2")]
fn broadcast<const W: usize>(wanted: u64) -> __m256i {
    match W {
        1 => _mm256_set1_epi8(wanted as i8),
        2 => _mm256_set1_epi16(wanted as i16),
        4 => _mm256_set1_epi32(wanted as i32),
        _ => _mm256_set1_epi64x(wanted as i64),
    }
}

/// Which bytes of a vector of fingerprints of `W` bytes belong to some that match, and which to
/// frozen ones: all ones.
#[inline]
#[target_feature(enable = "avx2")]
fn compare<const W: usize>(v: __m256i, needle: __m256i) -> (__m256i, __m256i) {
    let frozen = _mm256_set1_epi8(-1);
    match W {
        1 => (_mm256_cmpeq_epi8(v, needle), _mm256_cmpeq_epi8(v, frozen)),
        2 => (_mm256_cmpeq_epi16(v, needle), _mm256_cmpeq_epi16(v, frozen)),
        4 => (_mm256_cmpeq_epi32(v, needle), _mm256_cmpeq_epi32(v, frozen)),
        _ => (_mm256_cmpeq_epi64(v, needle), _mm256_cmpeq_epi64(v, frozen)),
    }
}

/// The same, a bit per byte.
#[inline]
#[target_feature(enable = "avx2")]
fn match_vector<const W: usize>(v: __m256i, needle: __m256i) -> (u32, u32) {
    let (equal, frozen) = compare::<W>(v, needle);
    (_mm256_movemask_epi8(equal) as u32, _mm256_movemask_epi8(frozen) as u32)
}

/// Loads four words.
///
/// # Safety
/// They may be loaded.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_whole(at: *const u64) -> __m256i {
    let v;
    // SAFETY: one load of 32 bytes, for which the caller vouches; nothing else is touched. Racing
    // stores are as sound as for relaxed loads of the words: processors do not tear an aligned
    // 8-byte part of a move.
    unsafe {
        asm!("vmovdqu {v}, ymmword ptr [{at}]", v = out(ymm_reg) v, at = in(reg) at,
            options(nostack, readonly, preserves_flags));
    }
    v
}

/// Loads the first `count` words of four, and zeros for the others, which are not accessed.
///
/// # Safety
/// They may be loaded.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(at: *const u64, count: usize) -> __m256i {
    if count >= STEP_WORDS {
        // SAFETY: the caller vouches for four.
        return unsafe { load_whole(at) };
    }
    // Not by a mask: whether words that are masked off may be unmapped depends on the processor.
    let (mut low, mut high) = (_mm_setzero_si128(), _mm_setzero_si128());
    let pairs = count / 2;
    if pairs > 0 {
        // SAFETY: as above, of 16 bytes.
        unsafe {
            asm!("vmovdqu {v}, xmmword ptr [{at}]", v = out(xmm_reg) low, at = in(reg) at,
                options(nostack, readonly, preserves_flags));
        }
    }
    if !count.is_multiple_of(2) {
        let last = if pairs > 0 { &mut high } else { &mut low };
        // SAFETY: as above, of 8 bytes: the words before them are fewer than `count`.
        unsafe {
            asm!("vmovq {v}, qword ptr [{at}]", v = out(xmm_reg) *last, at = in(reg) at.add(2 * pairs),
                options(nostack, readonly, preserves_flags));
        }
    }
    _mm256_set_m128i(high, low)
}

/// Hands every vector of a window's fingerprints to `take`, as the bytes that match, those that are
/// frozen, and where the vector begins, in bytes from the window's start, which may be before it.
/// No branch depends on what the window holds.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn for_each_vector<const W: usize>(
    window: Fingerprints<'_>,
    wanted: u64,
    mut take: impl FnMut(u32, u32, i32),
) {
    // Fingerprints are lanes of the words they lie in.
    debug_assert!(window.skip.is_multiple_of(W));
    let (words, needle) = (window.words, broadcast::<W>(wanted));
    let first = (window.skip / 8).min(words.len());
    // Less than 8: the window begins in the first word.
    let skip = window.skip % 8;
    let room = ((words.len() - first) * 8).saturating_sub(skip);
    let end = skip + window.used.min(room) / W * W;
    let (mut done, mut before) = (0, u32::MAX << skip);
    while skip < end && done < end {
        let left = end - done;
        // SAFETY: `left` bytes are there, and so are the whole words that they lie in.
        let v = unsafe { load(words.as_ptr().add(first + done / 8), left.div_ceil(8)) };
        let (equal, frozen) = match_vector::<W>(v, needle);
        let inside = _bzhi_u32(before, left.min(32) as u32);
        take(equal & inside, frozen & inside, done as i32 - skip as i32);
        (done, before) = (done + 32, u32::MAX);
    }
}

/// Bytes of a vector.
const STEP_BYTES: usize = 8 * STEP_WORDS;

/// Zeros and then ones, as many as two vectors have bytes: a vector of it from byte `n` on has its
/// first `32 - n` bytes 0.
static EDGE: [u8; 2 * STEP_BYTES] = {
    let mut edge = [0; 2 * STEP_BYTES];
    let mut byte = STEP_BYTES;
    while byte < edge.len() {
        edge[byte] = u8::MAX;
        byte += 1;
    }
    edge
};

/// A vector of ones, but for its first `count` bytes, which are zeros; 32 at most.
#[inline]
#[target_feature(enable = "avx2")]
fn all_but_first(count: usize) -> __m256i {
    let from = STEP_BYTES - count.min(STEP_BYTES);
    // SAFETY: 32 bytes from byte 32 of 64 on, or an earlier one.
    unsafe { _mm256_loadu_si256(EDGE.as_ptr().add(from).cast()) }
}

/// The state of a scan over a window.
struct MatchState {
    /// Bytes that match.
    bytes: u32,
    /// Those of the first vector that had any, a bit each.
    hit: u32,
    /// Its first word.
    at: usize,
    /// Bytes that were frozen in any vector.
    frozen: __m256i,
}

impl MatchState {
    /// Looks at a vector of fingerprints of `W` bytes, from the word at `at` on, and there at the
    /// bytes `inside`.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn look<const W: usize>(&mut self, v: __m256i, needle: __m256i, inside: __m256i, at: usize) {
        let (equal, frozen) = compare::<W>(v, needle);
        self.frozen = _mm256_or_si256(self.frozen, _mm256_and_si256(frozen, inside));
        let hit = _mm256_movemask_epi8(_mm256_and_si256(equal, inside)) as u32;
        self.bytes += hit.count_ones();
        // By conditional moves: where a key lies is unpredictable.
        (self.hit, self.at) = if self.hit == 0 { (hit, at) } else { (self.hit, self.at) };
    }
}

/// See [`Kernels::hits_in`]. No branch depends on what the window holds.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn count<const W: usize>(window: Fingerprints<'_>, wanted: u64) -> Hits {
    // Fingerprints are lanes of the words they lie in.
    debug_assert!(window.skip.is_multiple_of(W));
    let (words, needle) = (window.words, broadcast::<W>(wanted));
    let first = (window.skip / 8).min(words.len());
    let (start, count) = (words.as_ptr().wrapping_add(first), words.len() - first);
    // Less than 8: the window begins in the first word.
    let skip = window.skip % 8;
    let used = window.used.min((8 * count).saturating_sub(skip)) / W * W;
    if used == 0 {
        return Hits::default();
    }
    let end = skip + used;
    // The words that the window ends in, and the last vector with them; it has words of the one
    // before it once more.
    let count = end.div_ceil(8);
    let last = count.saturating_sub(STEP_WORDS);
    let mut seen = MatchState { bytes: 0, hit: 0, at: 0, frozen: _mm256_setzero_si256() };
    let (mut at, mut inside) = (0, all_but_first(skip));
    while at < last {
        // SAFETY: four words from `last` on are there, and so are those before.
        let v = unsafe { load_whole(start.add(at)) };
        seen.look::<W>(v, needle, inside, at);
        (at, inside) = (at + STEP_WORDS, _mm256_set1_epi8(-1));
    }
    // SAFETY: as many words as are there, or the last four.
    let v = unsafe { load(start.wrapping_add(last), count.min(STEP_WORDS)) };
    let ends = _mm256_andnot_si256(all_but_first(end - 8 * last), all_but_first(8 * (at - last)));
    seen.look::<W>(v, needle, _mm256_and_si256(inside, ends), last);
    let first = ((8 * seen.at) as u32 + seen.hit.trailing_zeros()).wrapping_sub(skip as u32) / W as u32;
    Hits::new(seen.bytes / W as u32, first, _mm256_testz_si256(seen.frozen, seen.frozen) == 0)
}

/// See [`Kernels::find_in`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn scan<const W: usize>(window: Fingerprints<'_>, wanted: u64, base: u32, found: &mut Vec<u32>) -> bool {
    let mut any_frozen = 0;
    for_each_vector::<W>(window, wanted, |mut equal, frozen, at| {
        any_frozen |= frozen;
        while equal != 0 {
            let byte = equal.trailing_zeros();
            found.push(base + (at + byte as i32) as u32 / W as u32);
            // The mask has one bit per byte: clear all of this fingerprint's.
            equal &= !(((1u64 << W) - 1) as u32).wrapping_shl(byte);
        }
    });
    any_frozen != 0
}

/// See [`Kernels::line_hits_in`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn line_hits(line: Words<'_>, wanted: u64) -> Hits {
    count::<2>(
        Fingerprints { words: line, skip: 0, used: LINE_BYTES, width: FingerprintWidth::Bits16 },
        wanted,
    )
}

/// See [`Kernels::key_hits_in`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn scan_slots(window: Words<'_>, stride: &SlotStride, key: u64) -> Hits {
    let (needle, frozen) = (_mm256_set1_epi64x(key as i64), _mm256_set1_epi64x(FROZEN_STATE));
    let (mut count, mut first) = (0, u32::MAX);
    let (mut base, mut any_frozen) = (0, 0);
    for &(firsts, seconds) in stride.masks() {
        if base >= window.len() {
            break;
        }
        let (mut shows, mut frozen_words) = (0, 0);
        for half in [0, STEP_WORDS] {
            let left = window.len().saturating_sub(base + half);
            // SAFETY: `left` words follow; without one, none is accessed.
            let v = unsafe { load(window.as_ptr().wrapping_add(base + half), left) };
            let equal = _mm256_cmpeq_epi64(v, needle);
            let is_frozen = _mm256_cmpeq_epi64(_mm256_and_si256(v, frozen), frozen);
            shows |= _mm256_movemask_pd(_mm256_castsi256_pd(equal)) << half;
            frozen_words |= _mm256_movemask_pd(_mm256_castsi256_pd(is_frozen)) << half;
        }
        // Words that are not there are zeros, which may be the key.
        let inside = _bzhi_u32(u32::MAX, (window.len() - base).min(VECTOR_WORDS) as u32);
        let shows = shows as u32 & u32::from(seconds) & inside;
        any_frozen |= frozen_words as u32 & u32::from(firsts);
        count += shows.count_ones();
        // The slot begins one word before its key.
        let word = if shows == 0 { u32::MAX } else { base as u32 + shows.trailing_zeros() - 1 };
        first = first.min(word);
        base += VECTOR_WORDS;
    }
    Hits::new(count, first, count == 0 && any_frozen != 0)
}

/// Where each four of the slots begin.
#[inline(always)]
fn fours(slots: Words<'_>) -> impl Iterator<Item = *const u64> {
    let four = STEP_WORDS * SLOT_WORDS;
    (0..slots.len() / four).map(move |at| slots.as_ptr().wrapping_add(at * four))
}

/// Three vectors, four slots, from the one at `at` on.
///
/// # Safety
/// They may be loaded.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_three(at: *const u64) -> [__m256i; SLOT_WORDS] {
    // SAFETY: the caller vouches.
    unsafe { [load_whole(at), load_whole(at.add(STEP_WORDS)), load_whole(at.add(2 * STEP_WORDS))] }
}

/// See [`Kernels::nearest_in`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn nearest(slots: Words<'_>, query: NearestQuery) -> NearestSlot {
    // Comparisons are of signed numbers.
    let wanted = _mm256_set1_epi64x((query.wanted ^ 1 << 63) as i64);
    let flip = _mm256_set1_epi64x(query.flip as i64);
    let (mut least, mut slot) = (_mm256_set1_epi64x(i64::MAX), _mm256_setzero_si256());
    let mut numbers = _mm256_setr_epi64x(1, 0, 3, 2);
    for at in fours(slots) {
        // SAFETY: twelve words of the slots.
        let [a, b, c] = unsafe { load_three(at) };
        // The second words, of slots 1, 0, 3 and 2.
        let keys = _mm256_blend_epi32::<0b00_11_00_00>(_mm256_blend_epi32::<0b11_00_00_11>(a, b), c);
        let distance = _mm256_sub_epi64(wanted, _mm256_xor_si256(keys, flip));
        let is_nearer = _mm256_cmpgt_epi64(least, distance);
        least = _mm256_blendv_epi8(least, distance, is_nearer);
        slot = _mm256_blendv_epi8(slot, numbers, is_nearer);
        numbers = _mm256_add_epi64(numbers, _mm256_set1_epi64x(STEP_WORDS as i64));
    }
    let (mut distances, mut found) = ([0u64; STEP_WORDS], [0u64; STEP_WORDS]);
    // SAFETY: there is room for 32 bytes in each.
    unsafe {
        _mm256_storeu_si256(distances.as_mut_ptr().cast(), least);
        _mm256_storeu_si256(found.as_mut_ptr().cast(), slot);
    }
    distances.iter().zip(found).fold(NearestSlot::NONE, |nearest, (distance, slot)| {
        nearest.or_nearer(NearestSlot { distance: distance ^ 1 << 63, slot: slot as u32 })
    })
}

/// See [`Kernels::is_changed_in`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn is_changed(slots: Words<'_>) -> bool {
    let mut all = _mm256_setzero_si256();
    for at in fours(slots) {
        // SAFETY: twelve words of the slots.
        let [a, b, c] = unsafe { load_three(at) };
        // The first words.
        let words = _mm256_blend_epi32::<0b00_00_11_00>(_mm256_blend_epi32::<0b00_11_00_00>(a, b), c);
        all = _mm256_or_si256(all, words);
    }
    _mm256_testz_si256(all, _mm256_set1_epi64x(SlotWord::CHANGED as i64)) == 0
}
