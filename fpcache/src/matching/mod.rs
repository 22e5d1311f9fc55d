//! The search for a fingerprint in a window of fingerprints.
//!
//! One pass compares every fingerprint of the window with the wanted one and with FROZEN. The
//! kernel is chosen once, by what the processor offers: AVX-512 (64 bytes a step), AVX2 (32 bytes),
//! or portable code. All give the same answer; each is tested against the portable one.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod hits;
mod kernels;
mod nearest;
mod portable;
mod stride;

pub use hits::Hits;
pub(crate) use hits::Shown;
pub use kernels::Fingerprints;
pub(crate) use kernels::{CallWithKernels, Kernels, LINE_BYTES, WithKernels};
pub(crate) use nearest::{EIGHT, NearestQuery, NearestSlot, SLOT_WORDS, is_changed, nearest};
pub use stride::SlotStride;

use fpcache_fabric::Words;
use fpcache_index::Steps;

use portable::Portable;

/// The vector instructions that look at memory, which others may change; without vectors, its words
/// are copied first.
#[derive(Clone, Copy, Debug)]
enum Vectors {
    None(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Here),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Here),
}

/// A matching kernel for this processor.
#[derive(Clone, Copy, Debug)]
pub struct Matcher(Vectors);

/// Evaluates an expression with a matcher's kernels.
macro_rules! with_kernels {
    ($matcher:expr, $kernels:ident => $result:expr) => {
        match $matcher.0 {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512($kernels) => $result,
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2($kernels) => $result,
            Vectors::None($kernels) => $result,
        }
    };
}

impl Matcher {
    /// The fastest kernel this processor runs.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::PORTABLE)
    }

    /// Portable code, for comparison and for processors without vectors.
    pub const PORTABLE: Self = Self(Vectors::None(Portable));

    /// All kernels this processor runs, slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "only some architectures have more than one")]
        let mut kernels = vec![Self::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            kernels.extend(avx2::Here::detect().map(|here| Self(Vectors::Avx2(here))));
            kernels.extend(avx512::Here::detect().map(|here| Self(Vectors::Avx512(here))));
        }
        kernels
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2(_) => "avx2",
            Vectors::None(_) => "portable",
        }
    }

    /// Runs code compiled for this matcher's kernels.
    #[inline(always)]
    pub(crate) fn run<W: WithKernels>(&self, work: W) -> W::Output {
        with_kernels!(self, kernels => kernels.run(work))
    }

    /// The same, of code that takes arguments.
    #[inline(always)]
    pub(crate) fn call<W: CallWithKernels<A, B, C>, A, B, C>(&self, a: A, b: B, c: C) -> W::Output {
        with_kernels!(self, kernels => kernels.call::<W, A, B, C>(a, b, c))
    }

    /// Appends to `found` the index, counted from `base`, of every fingerprint in `window` that
    /// equals `wanted`, in ascending order. Returns whether any fingerprint was FROZEN. A trailing
    /// part of `window` shorter than one fingerprint is ignored.
    #[inline]
    pub fn find(&self, window: Fingerprints<'_>, wanted: u64, base: u32, found: &mut Vec<u32>) -> bool {
        self.find_in(window, wanted, base, found, &mut Vec::new())
    }
}

impl Steps for Matcher {
    #[inline]
    fn count_not_above(self, items: &[u64; 8], head: u64) -> usize {
        with_kernels!(self, kernels => kernels.count_not_above(items, head))
    }

    #[inline]
    fn count_of_all(self, items: &[u64; 16], head: u64) -> usize {
        with_kernels!(self, kernels => kernels.count_of_all(items, head))
    }
}

impl Kernels for Matcher {
    #[inline]
    fn hits_in(self, window: Fingerprints<'_>, wanted: u64, copy: &mut Vec<u64>) -> Hits {
        with_kernels!(self, kernels => kernels.hits_in(window, wanted, copy))
    }

    #[inline]
    fn find_in(
        self,
        window: Fingerprints<'_>,
        wanted: u64,
        base: u32,
        found: &mut Vec<u32>,
        copy: &mut Vec<u64>,
    ) -> bool {
        with_kernels!(self, kernels => kernels.find_in(window, wanted, base, found, copy))
    }

    #[inline]
    fn key_hits_in(self, window: Words<'_>, stride: &SlotStride, key: u64, copy: &mut Vec<u64>) -> Hits {
        with_kernels!(self, kernels => kernels.key_hits_in(window, stride, key, copy))
    }

    #[inline]
    fn nearest_in(self, slots: Words<'_>, query: NearestQuery) -> NearestSlot {
        with_kernels!(self, kernels => kernels.nearest_in(slots, query))
    }

    #[inline]
    fn is_changed_in(self, slots: Words<'_>) -> bool {
        with_kernels!(self, kernels => kernels.is_changed_in(slots))
    }
}

impl Default for Matcher {
    fn default() -> Self {
        Self::detect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintWidth;
    use crate::layout::SlotWord;
    use fpcache_fabric::SharedMemory;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn oracle(width: FingerprintWidth, window: &[u8], wanted: u64, base: u32) -> (Vec<u32>, bool) {
        let all: Vec<u64> = (0..).map_while(|i| width.get(window, i)).collect();
        let hits = all.iter().zip(base..).filter(|(f, _)| **f == wanted).map(|(_, i)| i).collect();
        (hits, all.contains(&width.frozen()))
    }

    /// Bytes of memory, and where in it a cache line begins, with others before it.
    const ALL: usize = 4096;
    const LINE: usize = 1024;

    /// These bytes from `at` on, with others on both sides, and the same where others may change
    /// them.
    fn among(other: u64, bytes: &[u8], at: usize) -> (Vec<u64>, SharedMemory) {
        let mut all = vec![other; ALL / 8];
        all.as_mut_bytes()[at..at + bytes.len()].copy_from_slice(bytes);
        let memory = SharedMemory::anonymous(ALL).expect("memory");
        memory.write_words(0, &all).expect("there is room");
        (all, memory)
    }

    /// All kernels, each with each of these words.
    fn each_with(others: [u64; 2]) -> impl Iterator<Item = (Matcher, u64)> {
        Matcher::available().into_iter().flat_map(move |matcher| others.map(|other| (matcher, other)))
    }

    /// Everything kernels find in words that others may change.
    struct InWords<'a> {
        window: Fingerprints<'a>,
        wanted: u64,
        base: u32,
    }

    impl WithKernels for InWords<'_> {
        type Output = (Hits, Vec<u32>, bool);

        fn run<M: Kernels>(self, kernels: M) -> Self::Output {
            let (mut found, mut copy) = (Vec::new(), vec![7; 3]);
            let hits = kernels.hits_in(self.window, self.wanted, &mut copy);
            let frozen = kernels.find_in(self.window, self.wanted, self.base, &mut found, &mut copy);
            (hits, found, frozen)
        }
    }

    struct InSlots<'a>(Words<'a>, &'a SlotStride, u64);

    impl WithKernels for InSlots<'_> {
        type Output = Hits;

        fn run<M: Kernels>(self, kernels: M) -> Hits {
            kernels.key_hits_in(self.0, self.1, self.2, &mut vec![7; 3])
        }
    }

    struct InLine<'a>(Words<'a>, u64);

    impl WithKernels for InLine<'_> {
        type Output = Hits;

        fn run<M: Kernels>(self, kernels: M) -> Hits {
            kernels.line_hits_in(self.0, self.1, &mut vec![7; 3])
        }
    }

    proptest! {
        #[test]
        fn every_kernel_takes_a_step_of_a_directory_as_scalars_do(
            mut items in prop_oneof![any::<[u64; 8]>(), prop::array::uniform8(0u64..4), prop::array::uniform8(!3u64..)],
            head in prop_oneof![any::<u64>(), 0u64..4, !3u64..],
        ) {
            items.sort_unstable();
            items[0] = items[0].min(head);
            let expected = items[1..].iter().filter(|item| **item <= head).count();
            for matcher in Matcher::available() {
                prop_assert_eq!(matcher.count_not_above(&items, head), expected, "{}", matcher.name());
            }
        }

        #[test]
        fn every_kernel_searches_a_block_of_a_directory_as_scalars_do(
            mut items in prop_oneof![any::<[u64; 16]>(), prop::array::uniform16(0u64..4), prop::array::uniform16(!3u64..)],
            head in prop_oneof![any::<u64>(), 0u64..4, !3u64..],
        ) {
            items.sort_unstable();
            let expected = items.iter().filter(|item| **item <= head).count();
            for matcher in Matcher::available() {
                prop_assert_eq!(matcher.count_of_all(&items, head), expected, "{}", matcher.name());
            }
        }

        #[test]
        fn every_kernel_finds_in_a_line_what_it_finds_in_a_window(
            line in prop::collection::vec(prop_oneof![8 => 0u16..64, 1 => Just(u16::MAX)], 32),
            wanted in 1u64..64,
        ) {
            let (all, memory) = among(wanted, line.as_bytes(), LINE);
            let changing = memory.words(LINE as u64, LINE_BYTES).expect("they are there");
            for matcher in Matcher::available() {
                for words in [all[LINE / 8..][..LINE_BYTES / 8].into(), changing] {
                    let window = Fingerprints { words, skip: 0, used: LINE_BYTES, width: FingerprintWidth::Bits16 };
                    let expected = matcher.hits_in(window, wanted, &mut Vec::new());
                    let hits = matcher.run(InLine(words, wanted));
                    prop_assert_eq!(hits.count(), expected.count(), "{}", matcher.name());
                    prop_assert!(hits.count() == 0 || hits.first() == expected.first());
                }
            }
        }

        #[test]
        fn every_kernel_finds_the_slots_that_show_a_key(
            words in prop::collection::vec(prop_oneof![0u64..8, any::<u64>()], 0..300),
            slot_words in 2usize..40,
            key in prop_oneof![4 => 0u64..8, 1 => any::<u64>()],
        ) {
            let stride = SlotStride::new(slot_words);
            let whole = words.len() / slot_words * slot_words;
            let (window, (_, memory)) = (&words[..whole], among(key, words.as_bytes(), LINE));
            let changing = memory.words(LINE as u64, 8 * whole).expect("they are there");
            let shown: Vec<usize> = (0..whole).step_by(slot_words).filter(|at| window[at + 1] == key).collect();
            let frozen = shown.is_empty() && window.chunks(slot_words).any(|slot| slot[0] & 3 == 3);
            for matcher in Matcher::available() {
                let hits = matcher.key_hits_in(window.into(), &stride, key, &mut vec![7; 3]);
                prop_assert_eq!((hits.count() as usize, hits.frozen()), (shown.len(), frozen), "{}", matcher.name());
                if let Some(first) = shown.first() {
                    prop_assert_eq!(hits.first() as usize, *first, "{}", matcher.name());
                }
                let in_place = matcher.run(InSlots(changing, &stride, key));
                prop_assert_eq!((in_place.count(), in_place.frozen()), (hits.count(), hits.frozen()), "{}", matcher.name());
                prop_assert!(in_place.count() == 0 || in_place.first() == hits.first());
            }
        }

        #[test]
        fn every_kernel_finds_the_nearest_key_and_whether_a_slot_has_changed(
            words in prop::collection::vec(prop_oneof![0u64..40, any::<u64>()], 0..300),
            key in prop_oneof![4 => 0u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)],
            loaded in prop::bool::ANY,
            // Wherever in a cache line they begin.
            at in (0usize..8).prop_map(|word| LINE + 8 * word),
        ) {
            let stride = SLOT_WORDS;
            let mut words = words[..words.len() / (EIGHT * stride) * EIGHT * stride].to_vec();
            if loaded {
                words.iter_mut().step_by(stride).for_each(|word| *word &= !SlotWord::CHANGED);
            }
            let is_changed = words.iter().step_by(stride).any(|word| SlotWord::from_bits(*word).is_changed());
            let keys = words.iter().skip(1).step_by(stride).copied();
            let below = keys.clone().filter(|shown| *shown <= key).max();
            let above = keys.filter(|shown| *shown >= key).min();
            // Among words that would be found, or be changed ones.
            for (matcher, other) in each_with([key, u64::MAX]) {
                let (all, memory) = among(other, words.as_bytes(), at);
                let changing = memory.words(at as u64, 8 * words.len()).expect("they are there");
                for slots in [all[at / 8..][..words.len()].into(), changing] {
                    prop_assert_eq!(matcher.is_changed_in(slots), is_changed, "{}", matcher.name());
                    for (query, nearest) in
                        [(NearestQuery::at_or_below(key), below), (NearestQuery::at_or_above(key), above)]
                    {
                        let found = matcher.nearest_in(slots, query);
                        let Some(nearest) = nearest.filter(|nearest| nearest.abs_diff(key) < u64::MAX) else {
                            // There is none, but perhaps on the other side.
                            prop_assert!(found.is_none() || query.key_at(found.distance).is_none());
                            continue;
                        };
                        prop_assert_eq!(query.key_at(found.distance), Some(nearest), "{}", matcher.name());
                        prop_assert_eq!(words[found.slot as usize * stride + 1], nearest, "{}", matcher.name());
                    }
                }
            }
        }

        #[test]
        fn every_kernel_sees_each_bit_of_each_slot_that_tells_a_change(
            mut words in prop::collection::vec(any::<u64>(), EIGHT * SLOT_WORDS..300),
            slot in any::<prop::sample::Index>(),
            bit in 0u32..64,
        ) {
            words.truncate(words.len() / (EIGHT * SLOT_WORDS) * EIGHT * SLOT_WORDS);
            words.iter_mut().step_by(SLOT_WORDS).for_each(|word| *word &= !SlotWord::CHANGED);
            let first = slot.index(words.len() / SLOT_WORDS) * SLOT_WORDS;
            words[first] ^= 1 << bit;
            let (_, memory) = among(0, words.as_bytes(), LINE);
            let changing = memory.words(LINE as u64, 8 * words.len()).expect("they are there");
            for matcher in Matcher::available() {
                for slots in [words[..].into(), changing] {
                    let is_changed = SlotWord::CHANGED >> bit & 1 == 1;
                    prop_assert_eq!(matcher.is_changed_in(slots), is_changed, "{}", matcher.name());
                }
            }
        }

        #[test]
        fn every_kernel_finds_what_a_plain_search_finds(
            mut window in prop::collection::vec(prop_oneof![4 => 0u8..6, 1 => Just(0xff), 1 => any::<u8>()], 0..700),
            repeat in prop::bool::ANY,
            at in any::<prop::sample::Index>(),
            base in 0u32..5000,
            // Wherever in a cache line the window begins.
            skip in 0usize..64,
        ) {
            for width in FingerprintWidth::ALL {
                let w = width.bytes();
                if repeat {
                    // Whole fingerprints of equal bytes, so that wide ones collide and freeze as
                    // often as narrow ones.
                    for chunk in window.chunks_mut(w) {
                        chunk.fill(chunk[0]);
                    }
                }
                let count = window.len() / w;
                let wanted = if count == 0 { None } else { width.get(&window, at.index(count)) };
                // No key's fingerprint is the one of free slots.
                let wanted = wanted.filter(|wanted| *wanted != FingerprintWidth::EMPTY).unwrap_or(7);
                let expected = oracle(width, &window, wanted, base);
                // Among bytes that would be found, or be FROZEN.
                let skip = skip / w * w;
                let repeated = (0..8 / w).fold(0, |all, at| all | wanted << (8 * w * at));
                for (matcher, other) in each_with([repeated, u64::MAX]) {
                    let (all, memory) = among(other, &window, LINE + skip);
                    let count = (skip + window.len()).div_ceil(8);
                    let words = all[LINE / 8..][..count].into();
                    let window = Fingerprints { words, skip, used: window.len(), width };
                    let words = memory.words(LINE as u64, 8 * count).expect("they are there");
                    let changing = Fingerprints { words, ..window };
                    let mut found = vec![u32::MAX];
                    let frozen = matcher.find(window, wanted, base, &mut found);
                    prop_assert_eq!(found[0], u32::MAX, "earlier entries stay");
                    let hits = matcher.hits_in(window, wanted, &mut Vec::new());
                    prop_assert_eq!((hits.count() as usize, hits.frozen()), (expected.0.len(), expected.1));
                    if let Some(first) = expected.0.first() {
                        prop_assert_eq!(hits.first() + base, *first);
                    }
                    prop_assert_eq!((&found[1..], frozen), (&expected.0[..], expected.1), "{} {}", matcher.name(), width);
                    let (in_place, found, frozen) = matcher.run(InWords { window: changing, wanted, base });
                    prop_assert_eq!((in_place.count(), in_place.frozen()), (hits.count(), hits.frozen()));
                    prop_assert!(in_place.count() == 0 || in_place.first() == hits.first());
                    prop_assert_eq!((&found, frozen), (&expected.0, expected.1), "{} {}", matcher.name(), width);
                }
            }
        }
    }
}
