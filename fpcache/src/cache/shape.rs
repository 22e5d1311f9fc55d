//! The size of a hot cache, and why there may be none.

use bytesize::ByteSize;

use super::fd::Fd;
use super::heat::SegmentHeat;
use super::packing::Packing;
use super::variants::{Comparison, comparison};
use super::{Policy, Variant};

/// Counters of segment heat take at most one byte in this many.
const HEAT_SHARE: usize = 64;
/// Entries for each key of the table beyond which room would stay empty. Twice as many, because
/// keys do not spread evenly over buckets.
const ENTRIES_PER_KEY: u64 = 2;

/// The table that a hot cache is made for, and the form of its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheShape {
    /// The content of an entry.
    pub variant: Variant,
    /// The policy by which entries stay.
    pub policy: Policy,
    /// Largest distance between a key's slot and its prediction, in slots; above 16,383, farther
    /// ones are not cached.
    pub epsilon: u32,
    /// Segments of the table: [`Policy::Heat`] keeps a counter for each, if a 64th of the bytes has
    /// room for them.
    pub segments: u64,
    /// Keys of the table: there is room for about twice as many entries, and no more, whatever the
    /// bytes.
    pub keys: u64,
}

impl CacheShape {
    /// Counters of segment heat in a cache of `bytes` bytes.
    pub(super) fn counters(&self, bytes: usize) -> usize {
        match self.policy {
            // No segment is without a key.
            Policy::Heat => {
                let segments = usize::try_from(self.segments.min(self.keys)).unwrap_or(usize::MAX);
                segments.min(bytes / HEAT_SHARE / SegmentHeat::size(1))
            }
            Policy::Frequency | Policy::Lru => 0,
        }
    }

    /// Buckets that the table's keys can fill, at least one.
    pub(super) fn buckets(&self) -> usize {
        let entries = comparison(self.variant, self.policy).map_or(Fd::ENTRIES, Comparison::per_bucket);
        let buckets = self.keys.saturating_mul(ENTRIES_PER_KEY).div_ceil(entries as u64).max(1);
        usize::try_from(buckets).unwrap_or(usize::MAX)
    }
}

/// Why there is no hot cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCache {
    /// Not one bucket fits.
    #[error("{0} bytes have no room for a hot cache: allow some more, or do without")]
    TooSmall(usize),
    /// This process cannot have so much memory.
    #[error(
        "a hot cache of {} cannot be had: this process gets no such amount of memory; lower the cache budget",
        ByteSize(*.0).display().iec()
    )]
    Memory(u64),
}
