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
mod hits;
mod kernels;
mod portable;
mod stride;

pub use hits::{Hits, KeyHits};
pub(crate) use kernels::{Fingerprints, Kernels, WithKernels};
pub use stride::SlotStride;

use fpcache_fabric::Words;

use crate::fingerprint::FingerprintWidth;

/// See [`Matcher::key_hits`].
type KeyKernel = fn(window: &[u64], stride: &SlotStride, key: u64) -> KeyHits;
/// See [`Matcher::hits`].
type HitsKernel = fn(width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits;
/// See [`Matcher::find`].
type FindKernel =
    fn(width: FingerprintWidth, window: &[u8], wanted: u64, base: u32, found: &mut Vec<u32>) -> bool;

/// Vectors that memory others may change is looked at by; without any, its words are copied first.
#[derive(Clone, Copy, Debug)]
enum Vectors {
    None,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// A matching kernel for this processor.
#[derive(Clone, Copy, Debug)]
pub struct Matcher {
    hits: HitsKernel,
    find: FindKernel,
    keys: KeyKernel,
    /// What looks at memory in place.
    in_place: Vectors,
    name: &'static str,
}

impl Matcher {
    /// The fastest kernel this processor runs.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::PORTABLE)
    }

    /// Portable code, for comparison and for processors without vectors.
    pub const PORTABLE: Self = Self {
        hits: portable::hits,
        find: portable::find,
        keys: stride::portable,
        in_place: Vectors::None,
        name: "portable",
    };

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
                    keys: avx2::keys,
                    in_place: Vectors::Avx2,
                    name: "avx2",
                });
            }
            if avx512::supported() {
                kernels.push(Self {
                    hits: avx512::hits,
                    find: avx512::find,
                    keys: avx512::keys,
                    in_place: Vectors::Avx512,
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

    /// Runs code compiled for this matcher's kernels.
    #[inline(always)]
    pub(crate) fn run<W: WithKernels>(&self, work: W) -> W::Output {
        match self.in_place {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => avx512::run(work),
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => avx2::run(work),
            Vectors::None => work.run(*self),
        }
    }

    /// How many fingerprints in `window` equal `wanted`, and where the first one is. Nearly always there is one at most,
    /// and this is the short way to it. A trailing part of `window` shorter than one fingerprint is ignored.
    #[inline]
    pub fn hits(&self, width: FingerprintWidth, window: &[u8], wanted: u64) -> Hits {
        (self.hits)(width, window, wanted)
    }

    /// How many of the slots in `window`, which is whole ones, show `key` in the word after their first, and where the
    /// first of them is. Without a branch on what the window holds.
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

/// Kernels of private memory: words are copied out first.
impl Kernels for Matcher {
    fn hits_in(self, window: Fingerprints<'_>, wanted: u64, copy: &mut Vec<u64>) -> Hits {
        Matcher::hits(&self, window.width, window.copied(copy), wanted)
    }

    fn find_in(
        self,
        window: Fingerprints<'_>,
        wanted: u64,
        base: u32,
        found: &mut Vec<u32>,
        copy: &mut Vec<u64>,
    ) -> bool {
        Matcher::find(&self, window.width, window.copied(copy), wanted, base, found)
    }

    fn key_hits_in(self, window: Words<'_>, stride: &SlotStride, key: u64, copy: &mut Vec<u64>) -> KeyHits {
        window.copy_to(copy);
        Matcher::key_hits(&self, copy, stride, key)
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
    use zerocopy::IntoBytes;

    fn oracle(width: FingerprintWidth, window: &[u8], wanted: u64, base: u32) -> (Vec<u32>, bool) {
        let all: Vec<u64> = (0..).map_while(|i| width.get(window, i)).collect();
        let hits = all.iter().zip(base..).filter(|(f, _)| **f == wanted).map(|(_, i)| i).collect();
        (hits, all.contains(&width.frozen()))
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

    struct InSlots<'a>(&'a [u64], &'a SlotStride, u64);

    impl WithKernels for InSlots<'_> {
        type Output = KeyHits;

        fn run<M: Kernels>(self, kernels: M) -> KeyHits {
            kernels.key_hits_in(self.0.into(), self.1, self.2, &mut vec![7; 3])
        }
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
                let in_place = matcher.run(InSlots(window, &stride, key));
                prop_assert_eq!((in_place.count, in_place.frozen), (hits.count, hits.frozen), "{}", matcher.name());
                prop_assert!(in_place.count == 0 || in_place.word == hits.word);
            }
        }

        #[test]
        fn every_kernel_finds_what_a_plain_search_finds(
            mut window in prop::collection::vec(prop_oneof![4 => 0u8..6, 1 => Just(0xff), 1 => any::<u8>()], 0..700),
            repeat in prop::bool::ANY,
            at in any::<prop::sample::Index>(),
            base in 0u32..5000,
            skip in 0usize..8,
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
                    // The same window among other bytes of its words.
                    let (skip, used) = (skip / w * w, count * w);
                    let mut words = vec![u64::MAX; (skip + used).div_ceil(8)];
                    words.as_mut_bytes()[skip..skip + used].copy_from_slice(&window[..used]);
                    let window = Fingerprints { words: words[..].into(), skip, used, width };
                    let (in_place, found, frozen) = matcher.run(InWords { window, wanted, base });
                    prop_assert_eq!((in_place.count, in_place.frozen), (hits.count, hits.frozen));
                    prop_assert!(in_place.count == 0 || in_place.first == hits.first);
                    prop_assert_eq!((&found, frozen), (&expected.0, expected.1), "{} {}", matcher.name(), width);
                }
            }
        }
    }
}
