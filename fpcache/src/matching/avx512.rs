//! Kernels of AVX-512, 64 bytes a step, the last step masked.
//!
//! Memory that others may change is loaded by one instruction of inline assembly a vector, which
//! the compiler can neither repeat nor leave out: matching and looking for FROZEN see the same
//! bytes.

use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::select_unpredictable;

use fpcache_fabric::Words;
use fpcache_index::Steps;

use super::hits::Hits;
use super::kernels::{CallWithKernels, Fingerprints, Kernels, LINE_BYTES, WithKernels, kernels};
use super::nearest::{EIGHT, NearestQuery, NearestSlot, SLOT_WORDS};
use super::stride::SlotStride;
use crate::fingerprint::FingerprintWidth;
use crate::layout::SlotWord;

/// A slot word's state when it is frozen: both low bits.
const FROZEN_STATE: i64 = 3;

kernels!(Bytes::from; "avx512f", "avx512bw", "avx512dq", "bmi1", "bmi2", "popcnt");

/// `wanted` in every lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn broadcast<const W: usize>(wanted: u64) -> __m512i {
    match W {
        1 => _mm512_set1_epi8(wanted as i8),
        2 => _mm512_set1_epi16(wanted as i16),
        4 => _mm512_set1_epi32(wanted as i32),
        _ => _mm512_set1_epi64(wanted as i64),
    }
}

/// One bit per lane of `W` bytes in which `a` and `b` agree.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn equal_lanes<const W: usize>(a: __m512i, b: __m512i) -> u64 {
    match W {
        1 => _mm512_cmpeq_epi8_mask(a, b),
        2 => u64::from(_mm512_cmpeq_epi16_mask(a, b)),
        4 => u64::from(_mm512_cmpeq_epi32_mask(a, b)),
        _ => u64::from(_mm512_cmpeq_epi64_mask(a, b)),
    }
}

/// Bytes that may be loaded, and may change.
#[derive(Clone, Copy)]
struct Bytes {
    at: *const u8,
    len: usize,
}

impl From<Fingerprints<'_>> for Bytes {
    /// The bytes of a window; none if its words have fewer.
    #[inline(always)]
    fn from(window: Fingerprints<'_>) -> Self {
        let Fingerprints { words, skip, used, .. } = window;
        debug_assert!(skip.saturating_add(used) <= words.len() * 8, "a window lies in its words");
        let len = if skip.saturating_add(used) <= words.len() * 8 { used } else { 0 };
        Self { at: words.as_ptr().cast::<u8>().wrapping_add(skip), len }
    }
}

/// Loads 64 bytes.
///
/// # Safety
/// They may be loaded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn load(at: *const u8) -> __m512i {
    let v;
    // SAFETY: one load of 64 bytes, for which the caller vouches; nothing else is touched. Racing
    // stores are as sound as for relaxed loads of the words: processors do not tear an aligned
    // 8-byte part of a move.
    unsafe {
        asm!("vmovdqu64 {v}, zmmword ptr [{at}]", v = out(zmm_reg) v, at = in(reg) at,
            options(nostack, readonly, preserves_flags));
    }
    v
}

/// Loads the first `len` bytes of 64, of which there is one at least, and zeros for the others,
/// which are not accessed.
///
/// # Safety
/// They may be loaded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn load_first(at: *const u8, len: usize) -> __m512i {
    debug_assert!((1..=64).contains(&len));
    // SAFETY: the caller vouches.
    unsafe { load_masked(at, _bzhi_u64(u64::MAX, len as u32)) }
}

/// Loads those of 64 bytes that have a bit in `bytes`, and zeros for the others, which are not
/// accessed.
///
/// # Safety
/// They may be loaded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn load_masked(at: *const u8, bytes: u64) -> __m512i {
    let v;
    // SAFETY: as for `load`; bytes that are masked off are not accessed.
    unsafe {
        asm!("vmovdqu8 {v}{{{bytes}}}{{z}}, zmmword ptr [{at}]", v = out(zmm_reg) v, at = in(reg) at,
            bytes = in(kreg) bytes, options(nostack, readonly, preserves_flags));
    }
    v
}

/// Bytes of a vector, which is a cache line.
const LINE: usize = LINE_BYTES;

/// See [`Steps::count_not_above`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn step(items: &[u64; 8], head: u64) -> usize {
    // SAFETY: these are the 64 bytes of an array.
    let items = unsafe { _mm512_loadu_si512(items.as_ptr().cast()) };
    let head = _mm512_set1_epi64(head as i64);
    // The first is not above.
    _mm512_cmple_epu64_mask(items, head).count_ones() as usize - 1
}

/// See [`Steps::count_of_all`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn block(items: &[u64; 16], head: u64) -> usize {
    let head = _mm512_set1_epi64(head as i64);
    let (eights, _) = items.as_chunks::<8>();
    let not_above = |eight: &[u64; 8]| {
        // SAFETY: these are the 64 bytes of an array.
        _mm512_cmple_epu64_mask(unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) }, head)
    };
    let [first, second] = eights else { return 0 };
    (u16::from(not_above(first)) | u16::from(not_above(second)) << 8).count_ones() as usize
}

/// See [`Kernels::hits_in`]. Most windows have three cache lines at most.
///
/// # Safety
/// The window's bytes may be loaded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn count<const W: usize>(window: Bytes, wanted: u64) -> Hits {
    // Fingerprints are lanes of the lines they lie in.
    debug_assert!(window.at.addr().is_multiple_of(W));
    // Zeros stand for what is not the window's.
    debug_assert!(wanted << (64 - 8 * W) != 0);
    if window.at.addr() % LINE + window.len > 3 * LINE {
        // SAFETY: the caller vouches.
        return unsafe { count_long::<W>(window, wanted) };
    }
    // SAFETY: the caller vouches.
    let (count, first, frozen) = unsafe { count_lines::<W>(window, wanted) };
    Hits::new(count, first, frozen)
}

/// See [`Kernels::line_hits_in`]. Nothing if it is not a line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn line_hits(line: Words<'_>, wanted: u64) -> Hits {
    if line.len() * 8 < LINE {
        return Hits::default();
    }
    // SAFETY: so many of the words may be loaded.
    let lanes = equal_lanes::<2>(unsafe { load(line.as_ptr().cast()) }, broadcast::<2>(wanted));
    Hits::new(lanes.count_ones(), lanes.trailing_zeros(), false)
}

/// [`count`] of any number of cache lines.
///
/// # Safety
/// The window's bytes may be loaded.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn count_long<const W: usize>(mut window: Bytes, wanted: u64) -> Hits {
    let (mut all, mut at, mut any_frozen, mut before) = (0, 0, false, 0);
    while window.len > 0 {
        let len = window.len.min(3 * LINE - window.at.addr() % LINE);
        // SAFETY: these are the first of the window's bytes that are left.
        let (count, first, frozen) = unsafe { count_lines::<W>(Bytes { at: window.at, len }, wanted) };
        if all == 0 {
            at = before + first;
        }
        all += count;
        any_frozen |= frozen;
        before += (len / W) as u32;
        window = Bytes { at: window.at.wrapping_add(len), len: window.len - len };
    }
    Hits::new(all, at, any_frozen)
}

/// Of a window that lies in three cache lines, how many fingerprints are the wanted one, where the
/// first of them is, and whether any is FROZEN. No jump depends on how long the window is, or on
/// what it holds, so that the processor runs ahead while it is on its way. Each vector is one
/// line's, masked where the window begins and ends: a load that reaches into the next line waits
/// for that, too, though what it wants of it be masked off.
///
/// # Safety
/// The window's bytes may be loaded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn count_lines<const W: usize>(window: Bytes, wanted: u64) -> (u32, u32, bool) {
    let skip = window.at.addr() % LINE;
    let (line, end) = (window.at.wrapping_sub(skip), skip + window.len / W * W);
    // Past the end, nothing of the last line.
    let last = line.wrapping_add(end.wrapping_sub(1) / LINE * LINE);
    let needle = broadcast::<W>(wanted);
    let masked = |ahead: usize, from| _bzhi_u64(from, end.saturating_sub(ahead) as u32);
    let (a, b, c);
    // SAFETY: as for `load_masked`, of bytes that are the window's.
    unsafe {
        asm!("vmovdqu8 {a}{{{in_a}}}{{z}}, zmmword ptr [{line}]",
            "vmovdqu8 {b}{{{in_b}}}{{z}}, zmmword ptr [{second}]",
            "vmovdqu8 {c}{{{in_c}}}{{z}}, zmmword ptr [{third}]",
            a = out(zmm_reg) a, b = out(zmm_reg) b, c = out(zmm_reg) c,
            line = in(reg) line,
            second = in(reg) line.wrapping_add(LINE).min(last),
            third = in(reg) line.wrapping_add(2 * LINE).min(last),
            in_a = in(kreg) masked(0, u64::MAX << skip),
            in_b = in(kreg) masked(LINE, u64::MAX),
            in_c = in(kreg) masked(2 * LINE, u64::MAX),
            options(nostack, readonly, preserves_flags));
    }
    let lanes = [a, b, c].map(|v| equal_lanes::<W>(v, needle));
    let greatest = greatest_of::<W>(greatest_of::<W>(a, b), c);
    // Where the first one lies is unpredictable.
    let in_line = (LINE / W) as u32;
    let (count, first) = if W == 1 {
        let [a, b, c] = lanes.map(u64::trailing_zeros);
        let first = select_unpredictable(lanes[1] != 0, in_line + b, 2 * in_line + c);
        (lanes.map(u64::count_ones).iter().sum(), select_unpredictable(lanes[0] != 0, a, first))
    } else {
        let two = lanes[0] | lanes[1] << (in_line % 64);
        let third = 2 * in_line + lanes[2].trailing_zeros();
        let first = select_unpredictable(two != 0, two.trailing_zeros(), third);
        (two.count_ones() + lanes[2].count_ones(), first)
    };
    // Bytes before the window do not match.
    (count, first.wrapping_sub((skip / W) as u32), is_frozen::<W>(greatest))
}

/// See [`Kernels::find_in`].
///
/// # Safety
/// The window's bytes may be loaded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn scan<const W: usize>(window: Bytes, wanted: u64, base: u32, found: &mut Vec<u32>) -> bool {
    let needle = broadcast::<W>(wanted);
    let mut greatest = _mm512_setzero_si512();
    let (mut index, mut group) = (base, window);
    while group.len > 0 {
        let len = group.len.min(64 * W);
        // SAFETY: these are the first of the window's bytes that are left.
        let mut lanes = unsafe { match_group::<W>(Bytes { at: group.at, len }, needle, &mut greatest) };
        while lanes != 0 {
            found.push(index + lanes.trailing_zeros());
            lanes &= lanes - 1;
        }
        index += 64;
        group = Bytes { at: group.at.wrapping_add(len), len: group.len - len };
    }
    is_frozen::<W>(greatest)
}

/// See [`Kernels::key_hits_in`]. Each vector is loaded once, so that a slot's key and state are of
/// one moment as far as they lie in one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn scan_slots(window: Words<'_>, stride: &SlotStride, key: u64) -> Hits {
    let (needle, frozen) = (_mm512_set1_epi64(key as i64), _mm512_set1_epi64(FROZEN_STATE));
    let (mut count, mut first) = (0, u32::MAX);
    let (mut base, mut any_frozen) = (0u32, 0);
    for (firsts, seconds) in stride.masks() {
        let done = base as usize;
        if done >= window.len() {
            break;
        }
        let words = (window.len() - done).min(8);
        // SAFETY: `done` is less than the words there are, of which `words` are left.
        let v = unsafe { load_first(window.as_ptr().add(done).cast(), 8 * words) };
        let inside = u8::MAX >> (8 - words);
        let shows = _mm512_mask_cmpeq_epi64_mask(seconds & inside, v, needle);
        any_frozen |= _mm512_mask_cmpeq_epi64_mask(firsts & inside, _mm512_and_si512(v, frozen), frozen);
        count += shows.count_ones();
        // The slot begins one word before its key.
        let word = if shows == 0 { u32::MAX } else { base + shows.trailing_zeros() - 1 };
        first = first.min(word);
        base += 8;
    }
    Hits::new(count, first, count == 0 && any_frozen != 0)
}

/// The lanes of first words in each of the three vectors that eight slots are; those of second
/// words are the next vector's of these. So all first words can be in one vector, and all second
/// ones.
const FIRSTS: [u8; SLOT_WORDS] = [0b0100_1001, 0b1001_0010, 0b0010_0100];
/// Which slot's second word each lane holds then.
const SLOTS_OF_SECONDS: [i64; EIGHT] = [5, 0, 3, 6, 1, 4, 7, 2];

/// Where each eight of the slots begin.
#[inline(always)]
fn eights(slots: Words<'_>) -> impl Iterator<Item = *const u64> {
    let eight = EIGHT * SLOT_WORDS;
    (0..slots.len() / eight).map(move |at| slots.as_ptr().wrapping_add(at * eight))
}

/// See [`Kernels::nearest_in`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn nearest(slots: Words<'_>, query: NearestQuery) -> NearestSlot {
    let [a, b, c] = FIRSTS;
    let (wanted, flip) = (_mm512_set1_epi64(query.wanted as i64), _mm512_set1_epi64(query.flip as i64));
    let (mut least, mut slot) = (_mm512_set1_epi64(-1), _mm512_setzero_si512());
    // SAFETY: 64 bytes.
    let mut numbers = unsafe { _mm512_loadu_si512(SLOTS_OF_SECONDS.as_ptr().cast()) };
    for at in eights(slots) {
        let mut keys = _mm512_setzero_si512();
        // SAFETY: three loads of 64 bytes of the slots, as for `load`.
        unsafe {
            asm!("vmovdqu64 {keys}{{{b}}}, zmmword ptr [{at}]",
                "vmovdqu64 {keys}{{{c}}}, zmmword ptr [{at} + 64]",
                "vmovdqu64 {keys}{{{a}}}, zmmword ptr [{at} + 128]",
                keys = inout(zmm_reg) keys, at = in(reg) at, a = in(kreg) a, b = in(kreg) b, c = in(kreg) c,
                options(nostack, readonly, preserves_flags));
        }
        let distance = _mm512_sub_epi64(wanted, _mm512_xor_si512(keys, flip));
        let is_nearer = _mm512_cmplt_epu64_mask(distance, least);
        least = _mm512_mask_mov_epi64(least, is_nearer, distance);
        slot = _mm512_mask_mov_epi64(slot, is_nearer, numbers);
        numbers = _mm512_add_epi64(numbers, _mm512_set1_epi64(EIGHT as i64));
    }
    let distance = _mm512_reduce_min_epu64(least);
    let lanes = _mm512_cmpeq_epi64_mask(least, _mm512_set1_epi64(distance as i64));
    let slot = _mm512_castsi512_si128(_mm512_maskz_compress_epi64(lanes, slot));
    NearestSlot { distance, slot: _mm_cvtsi128_si32(slot) as u32 }
}

/// See [`Kernels::is_changed_in`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn is_changed(slots: Words<'_>) -> bool {
    let [a, b, c] = FIRSTS;
    let mut all = _mm512_setzero_si512();
    for at in eights(slots) {
        // SAFETY: three loads of 64 bytes of the slots, as for `load`.
        unsafe {
            asm!("vporq {all}{{{a}}}, {all}, zmmword ptr [{at}]",
                "vporq {all}{{{b}}}, {all}, zmmword ptr [{at} + 64]",
                "vporq {all}{{{c}}}, {all}, zmmword ptr [{at} + 128]",
                all = inout(zmm_reg) all, at = in(reg) at, a = in(kreg) a, b = in(kreg) b, c = in(kreg) c,
                options(nostack, readonly, preserves_flags));
        }
    }
    _mm512_test_epi64_mask(all, _mm512_set1_epi64(SlotWord::CHANGED as i64)) != 0
}

/// Matches up to 64 fingerprints: one bit per match. Raises `greatest` to the greatest of each
/// lane.
///
/// # Safety
/// The bytes may be loaded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
unsafe fn match_group<const W: usize>(group: Bytes, needle: __m512i, greatest: &mut __m512i) -> u64 {
    let (mut lanes, mut done) = (0, 0);
    while done + 64 <= group.len {
        // SAFETY: 64 bytes are left.
        let v = unsafe { load(group.at.add(done)) };
        *greatest = greatest_of::<W>(*greatest, v);
        lanes |= equal_lanes::<W>(v, needle) << (done / W);
        done += 64;
    }
    let tail = (group.len - done) / W;
    if tail > 0 {
        // SAFETY: `tail` whole fingerprints are left.
        let v = unsafe { load_first(group.at.add(done), tail * W) };
        *greatest = greatest_of::<W>(*greatest, v);
        lanes |= (equal_lanes::<W>(v, needle) & ((1 << tail) - 1)) << (done / W);
    }
    lanes
}

/// FROZEN is the greatest fingerprint, so the greatest of all tells.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn is_frozen<const W: usize>(greatest: __m512i) -> bool {
    equal_lanes::<W>(greatest, _mm512_set1_epi8(-1)) != 0
}

/// The greater of each lane of `W` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
fn greatest_of<const W: usize>(a: __m512i, b: __m512i) -> __m512i {
    match W {
        1 => _mm512_max_epu8(a, b),
        2 => _mm512_max_epu16(a, b),
        4 => _mm512_max_epu32(a, b),
        _ => _mm512_max_epu64(a, b),
    }
}
