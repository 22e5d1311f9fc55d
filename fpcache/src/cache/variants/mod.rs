//! Hot caches that are there to be compared with (FPCache, §4.3.2): larger entries, and LRU. No
//! lookup of a cache of the usual kind comes here. Compare their hit rates: their times include a call
//! through a trait for each probe, which those of the usual kind do without.

mod lru;
mod packings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;

use self::lru::Lru;
use self::packings::{D, F, Full};
use super::entries::{CachedSlot, Entries};
use super::fd::Fd;
use super::packing::Packing;
use super::probe::CacheProbe;
use super::replacement::{ByHeat, Replacement};
use super::{Policy, Variant};

/// What depends on the packing of a cache's entries and its policy: the methods of [`Entries`].
pub(super) trait Comparison: fmt::Debug + Send + Sync {
    fn find(&self, entries: &Entries, probe: &CacheProbe) -> Option<CachedSlot>;
    fn raise(&self, entries: &Entries, probe: &CacheProbe, cached: CachedSlot, chance: u64);
    fn remove(&self, entries: &Entries, probe: &CacheProbe, cached: CachedSlot);
    fn insert(&self, entries: &Entries, at: (&CacheProbe, u32), warmth: i64, chance: u64);
    fn per_bucket(&self) -> usize;
    fn live(&self, entries: &Entries) -> u64;
}

/// The comparison of a variant and a policy; `None` of those that are used. Without counters of
/// segments, as `frequency` is, no segment is cold.
pub(super) fn comparison(variant: Variant, policy: Policy) -> Option<&'static dyn Comparison> {
    use Policy::{Frequency, Heat, Lru as LeastRecent};
    Some(match (variant, policy) {
        (Variant::Fd, Heat | Frequency) => return None,
        (Variant::Fd, LeastRecent) => &By::<Fd, Lru>(PhantomData),
        (Variant::F, Heat | Frequency) => &By::<F, ByHeat>(PhantomData),
        (Variant::F, LeastRecent) => &By::<F, Lru>(PhantomData),
        (Variant::D, Heat | Frequency) => &By::<D, ByHeat>(PhantomData),
        (Variant::D, LeastRecent) => &By::<D, Lru>(PhantomData),
        (Variant::Full, Heat | Frequency) => &By::<Full, ByHeat>(PhantomData),
        (Variant::Full, LeastRecent) => &By::<Full, Lru>(PhantomData),
    })
}

/// Entries of this packing, which stay by this policy.
#[derive(Debug)]
struct By<P, R>(PhantomData<(P, R)>);

impl<P, R> Comparison for By<P, R>
where
    P: Packing + fmt::Debug + Send + Sync,
    R: Replacement + fmt::Debug + Send + Sync,
{
    fn find(&self, entries: &Entries, probe: &CacheProbe) -> Option<CachedSlot> {
        entries.find::<P>(probe)
    }

    fn raise(&self, entries: &Entries, probe: &CacheProbe, cached: CachedSlot, chance: u64) {
        entries.raise::<P, R>(probe, cached, chance);
    }

    fn remove(&self, entries: &Entries, probe: &CacheProbe, cached: CachedSlot) {
        entries.remove::<P>(probe, cached);
    }

    fn insert(&self, entries: &Entries, at: (&CacheProbe, u32), warmth: i64, chance: u64) {
        entries.insert::<P, R>(at, warmth, chance);
    }

    fn per_bucket(&self) -> usize {
        P::ENTRIES
    }

    fn live(&self, entries: &Entries) -> u64 {
        entries.live::<P>()
    }
}
