//! Reads made for many callers at once: a record that cannot be read keeps its own callers waiting, and nobody else.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{
    Lookup, LookupScratch, Nearest, NearestScratch, ReadError, Side, Wanted, drive, drive_while,
};
use fpcache_fabric::Endpoint;

use super::{Connector, Core, Held};
use crate::error::ClientError;
use crate::session::Buffers;

/// How often a record that is being written is read for many callers, before the others get their answers without it. To write
/// one takes less than a round trip.
pub(crate) const FEW_TRIES: u32 = 16;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// As [`lookup`](Self::lookup), but `take` may get answers of some keys alone: see [`LookupScratch::answered`].
    pub(crate) fn lookup_some<'k>(
        &self,
        held: &mut Held<K, T>,
        (keys, wanted): (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        take: impl FnMut(&LookupScratch<K>),
    ) -> Result<(), ClientError> {
        self.read_or_ask(
            (held, within),
            take,
            |take, Buffers { endpoint, lookup, .. }, table| {
                let ways = table.ways(endpoint);
                let looking = Lookup::new(table, lookup, keys.clone()).of(wanted).by(ways);
                or_some(drive(endpoint, &mut looking.trying(FEW_TRIES)))?;
                take(lookup);
                Ok(())
            },
            |take, held, retry| self.lookup_server_side(held, keys.clone(), retry, |found| take(found)),
            |mut take| take(&self.absent(keys.clone().count())),
        )
    }

    /// As [`nearest`](Self::nearest), but `take` may get answers of some keys alone: see [`NearestScratch::answered`].
    pub(crate) fn nearest_some<'k>(
        &self,
        held: &mut Held<K, T>,
        side: Side,
        keys: impl Iterator<Item = &'k K::Key> + Clone,
        within: Duration,
        mut take: impl FnMut(&NearestScratch<K>),
    ) -> Result<(), ClientError> {
        let mut goes_on = self.patience(within);
        let found = self.with_table(held, within, |buffers, table| {
            let Buffers { endpoint, nearest, .. } = buffers;
            let is_guarded = endpoint.guards();
            let searching = Nearest::new(table.view(), nearest, side, keys.clone(), is_guarded);
            or_some(drive_while(endpoint, &mut searching.trying(FEW_TRIES), &mut goes_on))?;
            take(nearest);
            Ok(())
        });
        match found {
            Err(error) if error.is_of_empty_table() => {
                take(&NearestScratch::default());
                Ok(())
            }
            found => found,
        }
    }
}

/// A record that is being written ends nothing: there are the answers of others.
fn or_some(ended: Result<(), ReadError>) -> Result<(), ReadError> {
    match ended {
        Err(ReadError::Contended { .. }) => Ok(()),
        ended => ended,
    }
}
