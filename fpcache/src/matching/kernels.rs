//! Kernels over words that others may change, and running code that is compiled for them.

use fpcache_fabric::Words;

use super::hits::{Hits, KeyHits};
use super::stride::SlotStride;
use crate::fingerprint::FingerprintWidth;

/// A window of fingerprints, in the whole words it lies in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprints<'a> {
    /// The words.
    pub(crate) words: Words<'a>,
    /// Bytes before the first fingerprint: those of whole ones.
    pub(crate) skip: usize,
    /// Bytes of the fingerprints.
    pub(crate) used: usize,
    pub(crate) width: FingerprintWidth,
}

/// What a matcher finds in words that others may change. Each word is loaded once.
pub(crate) trait Kernels: Copy {
    /// See [`Matcher::hits`](super::Matcher::hits).
    fn hits_in(self, window: Fingerprints<'_>, wanted: u64, copy: &mut Vec<u64>) -> Hits;

    /// See [`Matcher::find`](super::Matcher::find).
    fn find_in(
        self,
        window: Fingerprints<'_>,
        wanted: u64,
        base: u32,
        found: &mut Vec<u32>,
        copy: &mut Vec<u64>,
    ) -> bool;

    /// See [`Matcher::key_hits`](super::Matcher::key_hits).
    fn key_hits_in(self, window: Words<'_>, stride: &SlotStride, key: u64, copy: &mut Vec<u64>) -> KeyHits;
}

/// Code over kernels, to be compiled once for each kind of them.
pub(crate) trait WithKernels {
    /// What it comes back with.
    type Output;

    /// Runs it.
    fn run<M: Kernels>(self, kernels: M) -> Self::Output;
}

impl Fingerprints<'_> {
    /// The fingerprints, copied out.
    pub(super) fn copied(self, copy: &mut Vec<u64>) -> &[u8] {
        use zerocopy::IntoBytes;
        self.words.copy_to(copy);
        &copy.as_bytes()[self.skip..][..self.used]
    }
}
