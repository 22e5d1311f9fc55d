//! Finding a fingerprint in a window of fingerprints.
//!
//! One pass compares every fingerprint of the window with the wanted one and with FROZEN. The kernel is chosen once, by
//! what the processor offers: AVX-512 (64 bytes a step), AVX2 (32 bytes), or portable code. All give the same answer;
//! each is tested against the portable one.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod portable;
mod stride;

pub use stride::SlotStride;

use crate::fingerprint::FingerprintWidth;

/// What a window holds of a fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// How many fingerprints match.
    pub count: u32,
    /// Position of the first that does, from the window's start; meaningless without one.
    pub first: u32,
    /// Whether any fingerprint is FROZEN.
    pub frozen: bool,
}

/// Where a window of slots shows a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyHits {
    /// How many slots show it.
    pub count: u32,
    /// Position of the first one's first word, from the window's start; meaningless without one.
    pub word: u32,
    /// Whether no slot shows it and any is frozen. A slot that shows it speaks for itself.
    pub frozen: bool,
}

/// See [`Matcher::key_hits`].
type KeyKernel = fn(window: &[u64], stride: &SlotStride, key: u64) -> KeyHits;
/// See [`Matcher::hits`].
type HitsKernel = fn(width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits;
/// See [`Matcher::find`].
type FindKernel =
    fn(width: FingerprintWidth, window: &[u8], wanted: u64, base: u32, found: &mut Vec<u32>) -> bool;

/// A matching kernel for this processor.
#[derive(Clone, Copy, Debug)]
pub struct Matcher {
    hits: HitsKernel,
    find: FindKernel,
    keys: KeyKernel,
    name: &'static str,
}

impl Matcher {
    /// The fastest kernel this processor runs.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::PORTABLE)
    }

    /// Portable code, for comparison and for processors without vectors.
    pub const PORTABLE: Self =
        Self { hits: portable::hits, find: portable::find, keys: stride::portable, name: "portable" };

    /// All kernels this processor runs, slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "only some architectures have more than one")]
        let mut kernels = vec![Self::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            if avx2::supported() {
                kernels.push(Self {
                    hits: avx2::hits,
                    find: avx2::find,
                    keys: stride::portable,
                    name: "avx2",
                });
            }
            if avx512::supported() {
                kernels.push(Self {
                    hits: avx512::hits,
                    find: avx512::find,
                    keys: avx512::keys,
                    name: "avx512",
                });
            }
        }
        kernels
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many fingerprints in `window` equal `wanted`, and where the first one is. Nearly always there is one at most,
    /// and this is the short way to it. A trailing part of `window` shorter than one fingerprint is ignored.
    #[inline]
    pub fn hits(&self, width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits {
        (self.hits)(width, window, wanted)
    }

    /// How many of the slots in `window`, which begins with one, show `key` in the word behind their first, and where the
    /// first of them is. Without a branch on what the window holds. A trailing part shorter than a slot is ignored.
    #[inline]
    pub fn key_hits(&self, window: &[u64], stride: &SlotStride, key: u64) -> KeyHits {
        (self.keys)(window, stride, key)
    }

    /// Appends to `found` the index, counted from `base`, of every fingerprint in `window` that equals `wanted`, in
    /// ascending order. Returns whether any fingerprint was FROZEN. A trailing part of `window` shorter than one
    /// fingerprint is ignored.
    #[inline]
    pub fn find(
        &self,
        width: FingerprintWidth,
        window: &[u8],
        wanted: u64,
        base: u32,
        found: &mut Vec<u32>,
    ) -> bool {
        (self.find)(width, window, wanted, base, found)
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
    use proptest::prelude::*;

    fn oracle(width: FingerprintWidth, window: &[u8], wanted: u64, base: u32) -> (Vec<u32>, bool) {
        let all: Vec<u64> = (0..).map_while(|i| width.get(window, i)).collect();
        let hits = all.iter().zip(base..).filter(|(f, _)| **f == wanted).map(|(_, i)| i).collect();
        (hits, all.contains(&width.frozen()))
    }

    proptest! {
        #[test]
        fn every_kernel_finds_the_slots_that_show_a_key(
            words in prop::collection::vec(prop_oneof![0u64..8, any::<u64>()], 0..300),
            slot_words in 2usize..40,
            key in prop_oneof![4 => 0u64..8, 1 => any::<u64>()],
        ) {
            let stride = SlotStride::new(slot_words);
            let whole = words.len() / slot_words * slot_words;
            let window = &words[..whole];
            let shown: Vec<usize> = (0..whole).step_by(slot_words).filter(|at| window[at + 1] == key).collect();
            let frozen = shown.is_empty() && window.chunks(slot_words).any(|slot| slot[0] & 3 == 3);
            for matcher in Matcher::available() {
                let hits = matcher.key_hits(window, &stride, key);
                prop_assert_eq!((hits.count as usize, hits.frozen), (shown.len(), frozen), "{}", matcher.name());
                if let Some(first) = shown.first() {
                    prop_assert_eq!(hits.word as usize, *first, "{}", matcher.name());
                }
            }
        }

        #[test]
        fn every_kernel_finds_what_a_plain_search_finds(
            mut window in prop::collection::vec(prop_oneof![4 => 0u8..6, 1 => Just(0xff), 1 => any::<u8>()], 0..700),
            repeat in prop::bool::ANY,
            at in any::<prop::sample::Index>(),
            base in 0u32..5000,
        ) {
            for width in FingerprintWidth::ALL {
                let w = width.bytes();
                if repeat {
                    // Whole fingerprints of equal bytes, so that wide ones collide and freeze as often as narrow ones.
                    for chunk in window.chunks_mut(w) {
                        chunk.fill(chunk[0]);
                    }
                }
                let count = window.len() / w;
                let wanted = if count == 0 { 7 } else { width.get(&window, at.index(count)).unwrap_or(7) };
                let expected = oracle(width, &window, wanted, base);
                for matcher in Matcher::available() {
                    let mut found = vec![u32::MAX];
                    let frozen = matcher.find(width, &window, wanted, base, &mut found);
                    prop_assert_eq!(found[0], u32::MAX, "earlier entries stay");
                    let hits = matcher.hits(width, &window, wanted);
                    prop_assert_eq!((hits.count as usize, hits.frozen), (expected.0.len(), expected.1));
                    if let Some(first) = expected.0.first() {
                        prop_assert_eq!(hits.first + base, *first);
                    }
                    prop_assert_eq!((&found[1..], frozen), (&expected.0[..], expected.1), "{} {}", matcher.name(), width);
                }
            }
        }
    }
}
