//! Reads made for many callers at once: a record that cannot be read keeps its own callers waiting,
//! and no others.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{LookupScratch, Side, Wanted};

use super::{Connector, Core, HeldContext};
use crate::client::Record;
use crate::error::ClientError;

/// How often a record that is being written is read for many callers, before the others get their
/// answers without it. To write one takes less than a round trip.
pub(crate) const FEW_TRIES: u32 = 16;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// As [`lookup`](Self::lookup), but `take` may get answers of some keys alone: see
    /// [`LookupScratch::answered`].
    pub(crate) fn lookup_some<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        group: (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        take: impl FnMut(&LookupScratch<K>),
    ) -> Result<(), ClientError> {
        self.lookup_trying(held, group, (within, FEW_TRIES), take)
    }

    /// As [`nearest`](Self::nearest), but `take` gets all answers at once, and some keys may have
    /// none.
    pub(crate) fn nearest_some<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        side: Side,
        keys: impl Iterator<Item = &'k K::Key> + Clone,
        within: Duration,
        take: impl FnOnce(Vec<Option<Option<Record<K>>>>),
    ) -> Result<(), ClientError> {
        self.nearest_trying(held, (side, keys), (within, FEW_TRIES), take)
    }
}
