//! Kernels over words that other processes may change, and code that is compiled for each.

use fpcache_fabric::Words;
use fpcache_index::Steps;

use super::hits::Hits;
use super::nearest::{NearestQuery, NearestSlot};
use super::stride::SlotStride;
use crate::fingerprint::FingerprintWidth;

/// A window of fingerprints, in the whole words it lies in.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprints<'a> {
    /// The words.
    pub(crate) words: Words<'a>,
    /// Bytes before the first fingerprint: those of whole ones.
    pub(crate) skip: usize,
    /// Bytes of the fingerprints: all lie in the words.
    pub(crate) used: usize,
    pub(crate) width: FingerprintWidth,
}

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Searches in words that other processes may change, each of which is loaded once, and in
/// directories, which are private.
pub(crate) trait Kernels: Steps {
    /// How many fingerprints in `window` equal `wanted`, which is a key's, so not EMPTY, and where
    /// the first one is. Nearly always there is one at most, and this is the short way to it. A
    /// trailing part of `window` shorter than one fingerprint is ignored.
    fn hits_in(self, window: Fingerprints<'_>, wanted: u64, copy: &mut Vec<u64>) -> Hits;

    /// As [`hits_in`](Self::hits_in), among the fingerprints of 16 bits that fill a cache line.
    /// Kernels may leave it to the slot to say that it is frozen.
    #[inline(always)]
    fn line_hits_in(self, line: Words<'_>, wanted: u64, copy: &mut Vec<u64>) -> Hits {
        let window = Fingerprints { words: line, skip: 0, used: LINE_BYTES, width: FingerprintWidth::Bits16 };
        self.hits_in(window, wanted, copy)
    }

    /// See [`Matcher::find`](super::Matcher::find).
    fn find_in(
        self,
        window: Fingerprints<'_>,
        wanted: u64,
        base: u32,
        found: &mut Vec<u32>,
        copy: &mut Vec<u64>,
    ) -> bool;

    /// How many of the slots in `window`, which is whole ones, show `key` in the word after their
    /// first, and where the first of them is. Without a branch on what the window holds.
    fn key_hits_in(self, window: Words<'_>, stride: &SlotStride, key: u64, copy: &mut Vec<u64>) -> Hits;

    /// Which of `slots`, whole eights of [`SLOT_WORDS`](super::SLOT_WORDS) words each, shows the
    /// key nearest to another in its second word. Without a branch on what the slots hold.
    fn nearest_in(self, slots: Words<'_>, query: NearestQuery) -> NearestSlot;

    /// Whether the first word of any of `slots`, which are as many,
    /// [is changed](crate::layout::SlotWord::is_changed).
    fn is_changed_in(self, slots: Words<'_>) -> bool;
}

/// Code over kernels, to be compiled once for each kind of them.
pub(crate) trait WithKernels {
    /// Its result.
    type Output;

    /// Runs it.
    fn run<M: Kernels>(self, kernels: M) -> Self::Output;
}

/// The same for code that takes three arguments, which stay in registers where each is of two words
/// at most: a value of work would be spilled to be handed over.
pub(crate) trait CallWithKernels<A, B, C> {
    /// Its result.
    type Output;

    /// Runs it.
    fn call<M: Kernels>(kernels: M, first: A, second: B, third: C) -> Self::Output;
}

impl<'a> Fingerprints<'a> {
    /// `count` fingerprints, from the first byte of these words on; fewer if the words end before.
    pub fn new(width: FingerprintWidth, count: usize, words: &'a [u64]) -> Self {
        Self { words: words.into(), skip: 0, used: width.bytes_of(count).min(size_of_val(words)), width }
    }
}

/// A module's kernels as a type. The module has functions `step`, `block`, `count` and `scan`, the last two
/// of what `$of` makes of a window, and `scan_slots`, `nearest` and `is_changed`, compiled for these
/// features.
#[cfg(target_arch = "x86_64")]
macro_rules! kernels {
    ($of:path; $($feature:tt),*) => {
        /// This module's kernels, on a processor that runs them.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Here(());

        impl Here {
            /// The kernels, if this processor runs them.
            pub(super) fn detect() -> Option<Self> {
                (true $(&& is_x86_feature_detected!($feature))*).then_some(Self(()))
            }

            /// Runs code that is compiled for these kernels.
            pub(super) fn run<W: WithKernels>(self, work: W) -> W::Output {
                // SAFETY: values of this type are made where these features were seen.
                unsafe { run(self, work) }
            }

            /// The same, of code that takes arguments.
            #[inline(always)]
            pub(super) fn call<W: CallWithKernels<A, B, C>, A, B, C>(self, a: A, b: B, c: C) -> W::Output {
                // SAFETY: as for `run`.
                unsafe { call::<W, A, B, C>(self, a, b, c) }
            }
        }

        $(#[target_feature(enable = $feature)])*
        fn run<W: WithKernels>(here: Here, work: W) -> W::Output {
            work.run(here)
        }

        $(#[target_feature(enable = $feature)])*
        fn call<W: CallWithKernels<A, B, C>, A, B, C>(here: Here, a: A, b: B, c: C) -> W::Output {
            W::call(here, a, b, c)
        }

        impl Steps for Here {
            #[inline(always)]
            fn count_not_above(self, items: &[u64; 8], head: u64) -> usize {
                // SAFETY: as for `run`.
                unsafe { step(items, head) }
            }

            #[inline(always)]
            fn count_of_all(self, items: &[u64; 16], head: u64) -> usize {
                // SAFETY: as for `run`.
                unsafe { block(items, head) }
            }
        }

        impl Kernels for Here {
            #[inline(always)]
            fn hits_in(self, window: Fingerprints<'_>, wanted: u64, _: &mut Vec<u64>) -> Hits {
                let (width, window) = (window.width, $of(window));
                // SAFETY: as for `run`; a window's words may be loaded.
                unsafe {
                    match width {
                        FingerprintWidth::Bits8 => count::<1>(window, wanted),
                        FingerprintWidth::Bits16 => count::<2>(window, wanted),
                        FingerprintWidth::Bits32 => count::<4>(window, wanted),
                        FingerprintWidth::Bits64 => count::<8>(window, wanted),
                    }
                }
            }

            #[inline(always)]
            fn line_hits_in(self, line: Words<'_>, wanted: u64, _: &mut Vec<u64>) -> Hits {
                // SAFETY: as for `run`.
                unsafe { line_hits(line, wanted) }
            }

            #[inline(never)]
            fn find_in(
                self,
                window: Fingerprints<'_>,
                wanted: u64,
                base: u32,
                found: &mut Vec<u32>,
                _: &mut Vec<u64>,
            ) -> bool {
                let (width, window) = (window.width, $of(window));
                // SAFETY: as for `run`; a window's words may be loaded.
                unsafe {
                    match width {
                        FingerprintWidth::Bits8 => scan::<1>(window, wanted, base, found),
                        FingerprintWidth::Bits16 => scan::<2>(window, wanted, base, found),
                        FingerprintWidth::Bits32 => scan::<4>(window, wanted, base, found),
                        FingerprintWidth::Bits64 => scan::<8>(window, wanted, base, found),
                    }
                }
            }

            #[inline(always)]
            fn key_hits_in(self, window: Words<'_>, stride: &SlotStride, key: u64, _: &mut Vec<u64>) -> Hits {
                // SAFETY: as for `run`.
                unsafe { scan_slots(window, stride, key) }
            }

            #[inline(always)]
            fn nearest_in(self, slots: Words<'_>, query: NearestQuery) -> NearestSlot {
                // SAFETY: as for `run`.
                unsafe { nearest(slots, query) }
            }

            #[inline(always)]
            fn is_changed_in(self, slots: Words<'_>) -> bool {
                // SAFETY: as for `run`.
                unsafe { is_changed(slots) }
            }

        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use kernels;
