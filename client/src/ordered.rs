//! Ordered queries of clients.

use std::borrow::Borrow;
use std::ops::Bound;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, Neighbour, Side, Wanted};

#[cfg(doc)]
use crate::client::Client;
use crate::client::{ByteClient, Record, TableClient, Transport, with_core};
use crate::core::Rest;
use crate::direct::with_direct;
use crate::error::ClientError;
use crate::key::AsKey;
use crate::reader::Reader;
use crate::span::end_of_prefix;

impl<K: BuildKeys> TableClient<K> {
    /// The record with the greatest key not above `key`, or `None`. If keys are the starts of
    /// ranges, it is the range that contains `key`. Linearizable: the record was the nearest at one
    /// instant during the call. Over several memory nodes that holds within each node's range; a
    /// range that was found empty may have had records since.
    ///
    /// # Cost
    /// One round trip that reads the slots of the key's window and eight more ([`get`](Self::get)
    /// reads their fingerprints and one slot). If any of them was written to since its segment was
    /// loaded, a second round trip with the same bytes, and more while they keep changing; over
    /// mapped memory that takes tens of nanoseconds. One more each for a nearest record further
    /// away and for an external value. Above the newest key of a table that is written in ascending
    /// order, whose last slots are free, up to five in all.
    ///
    /// # Errors
    /// As for [`get`](Self::get); [`Deadline`](ClientError::Deadline) if the slots kept changing.
    pub fn floor(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, key.as_key())
    }

    /// The record with the least key not below `key`, or `None`. See [`floor`](Self::floor).
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn ceiling(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, key.as_key())
    }

    /// The record with the least key, or `None` if the table is empty. See [`floor`](Self::floor);
    /// takes some more round trips if the first keys were deleted.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn first(&self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, K::lowest())
    }

    /// The record with the greatest key, or `None` if the table is empty. See
    /// [`floor`](Self::floor); takes some more round trips if the last keys were deleted, or if
    /// keys are written in ascending order.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn last(&self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, K::highest())
    }

    /// [`floor`](Self::floor) without an allocation: passes the record to `take`, and returns the
    /// cost.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    #[inline]
    pub fn floor_with<R>(
        &self,
        key: impl AsKey<K>,
        take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        self.nearest_with(Side::Floor, key.as_key(), take)
    }

    /// [`ceiling`](Self::ceiling) without an allocation: passes the record to `take`, and returns
    /// the cost.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    #[inline]
    pub fn ceiling_with<R>(
        &self,
        key: impl AsKey<K>,
        take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        self.nearest_with(Side::Ceiling, key.as_key(), take)
    }

    /// [`floor`](Self::floor) for each of `keys`, in the same order. Each 4,096 keys share round
    /// trips: as many as the slowest of them needs; in a table over several memory nodes those of
    /// each node, one node after the other. The deadline is that of all keys together. Each answer
    /// is linearizable on its own, as that of [`floor`](Self::floor) is.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_floor(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.multi_nearest(Side::Floor, keys)
    }

    /// [`ceiling`](Self::ceiling) for each of `keys`, in the same order. See
    /// [`multi_floor`](Self::multi_floor).
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_ceiling(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.multi_nearest(Side::Ceiling, keys)
    }

    /// [`multi_floor`](Self::multi_floor), which passes each record and its cost to `take`, in the
    /// order of `keys`.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the first records may have been passed on then.
    pub fn multi_floor_with(
        &self,
        keys: &[impl AsKey<K>],
        take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        self.multi_nearest_with(Side::Floor, keys, take)
    }

    /// [`multi_ceiling`](Self::multi_ceiling), which passes each record and its cost to `take`, in
    /// the order of `keys`.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the first records may have been passed on then.
    pub fn multi_ceiling_with(
        &self,
        keys: &[impl AsKey<K>],
        take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        self.multi_nearest_with(Side::Ceiling, keys, take)
    }

    /// Whether each of `keys` exists, in the same order. See [`multi_get`](Self::multi_get);
    /// external values are not read.
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_contains(&self, keys: &[impl AsKey<K>]) -> Result<Vec<bool>, ClientError> {
        let mut found = vec![false; keys.len()];
        let keys = keys.iter().map(AsKey::as_key);
        with_core!(&self.transport, core => core.here(|held| {
            core.multi_contains(held, keys, &mut found, self.deadline)
        }))?;
        Ok(found)
    }

    /// The exact number of keys from `start` to `end`, exclusive. Each key is counted as of some
    /// instant during the call, as in a [`scan`](Self::scan), so the count need not be of any
    /// single instant.
    ///
    /// # Cost
    /// Reads every slot of the range, 256 KiB per round trip: per key about the bytes of a slot
    /// divided by the table's fill, 29 with values of 8 bytes. External values are not read.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn count(&self, start: impl AsKey<K>, end: impl AsKey<K>) -> Result<u64, ClientError> {
        Ok(self.count_up((start.as_key(), Some(end.as_key())))?.0)
    }

    /// The number of keys not below `start`. See [`count`](Self::count).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn count_from(&self, start: impl AsKey<K>) -> Result<u64, ClientError> {
        Ok(self.count_up((start.as_key(), None))?.0)
    }

    /// As [`count`](Self::count), up to `end` if given, with the cost.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn count_with_cost(
        &self,
        start: impl AsKey<K>,
        end: Option<impl AsKey<K>>,
    ) -> Result<(u64, Cost), ClientError> {
        self.count_up((start.as_key(), end.as_ref().map(AsKey::as_key)))
    }

    fn count_up(&self, (start, end): (&K::Key, Option<&K::Key>)) -> Result<(u64, Cost), ClientError> {
        let (mut rest, mut count) = (Rest::new(start.to_owned(), usize::MAX), 0);
        let (part, take) = ((end, Wanted::Presence), |_: K::View<'_>, _: &[u8]| count += 1);
        let cost = with_core!(&self.transport, core => core.here(|held| {
            core.scan(held, &mut rest, part, self.deadline, take)
        }))?;
        Ok((count, cost))
    }

    /// Up to `limit` records in descending key order, beginning with the greatest key not above
    /// `start`, at the cost of a [`scan`](Self::scan).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_back(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.push((key.borrow().to_owned(), value.to_vec()));
        self.scan_back_with(start, limit, take)?;
        Ok(records)
    }

    /// As [`scan_back`](Self::scan_back), but passes each record to `take`, which may use this
    /// client.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_back_with(
        &self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.scan_down((K::lowest(), Bound::Included(start.as_key())), limit, take)
    }

    /// As [`scan_range`](Self::scan_range), in descending key order.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_range_back(
        &self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.scan_down((start.as_key(), Bound::Excluded(end.as_key())), limit, take)
    }

    /// Passes up to `limit` records with keys not below `start` to `take`, in descending key order,
    /// beginning with the greatest of the table.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_back_to(
        &self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.scan_down((start.as_key(), Bound::Unbounded), limit, take)
    }

    /// Scans from the greatest key within a bound down to a key.
    pub(crate) fn scan_down(
        &self,
        (from, to): (&K::Key, Bound<&K::Key>),
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        let mut rest = Rest::new(to.map(ToOwned::to_owned), limit);
        with_core!(&self.transport, core => core.here(|held| core.scan_back(held, &mut rest, from, self.deadline, take)))
    }

    fn nearest(&self, side: Side, key: &K::Key) -> Result<Option<Record<K>>, ClientError> {
        Ok(self.nearest_with(side, key, |found| owned::<K>(found))?.0)
    }

    #[inline]
    fn nearest_with<R>(
        &self,
        side: Side,
        key: &K::Key,
        mut take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        let take = |found: Option<Neighbour<'_, K>>| take(record::<K>(found));
        with_core!(&self.transport, core => core.here(|held| core.nearest_to(held, (side, key), self.deadline, take)))
    }

    fn multi_nearest(
        &self,
        side: Side,
        keys: &[impl AsKey<K>],
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let mut records = Vec::with_capacity(keys.len());
        self.multi_nearest_with(side, keys, |found, _| {
            records.push(owned::<K>(found));
        })?;
        Ok(records)
    }

    fn multi_nearest_with(
        &self,
        side: Side,
        keys: &[impl AsKey<K>],
        mut take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        let all = keys.iter().map(AsKey::as_key);
        let direct = match &self.transport {
            Transport::One(direct) => direct,
            Transport::Pool(pool) => {
                let found = pool.here(|held| pool.nearest_to_each(held, side, all, self.deadline))?;
                for (found, cost) in &found {
                    take(found.as_ref().map(|(key, value)| (K::as_view(key.borrow()), &value[..])), *cost);
                }
                return Ok(());
            }
        };
        let take = |found: Option<Neighbour<'_, K>>, cost| take(record::<K>(found), cost);
        with_direct!(direct, core => core.here(|held| core.nearest(held, side, all, self.deadline, take)))
    }
}

impl ByteClient {
    /// Passes up to `limit` records whose keys begin with `prefix` to `take`, in descending key
    /// order.
    ///
    /// # Errors
    /// As for [`scan`](Client::scan).
    pub fn scan_prefix_back(
        &self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]),
    ) -> Result<Cost, ClientError> {
        let prefix = prefix.as_ref();
        let end = end_of_prefix(prefix);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.scan_down((prefix, to), limit, take)
    }

    /// The number of keys that begin with `prefix`. See [`count`](Client::count).
    ///
    /// # Errors
    /// As for [`get`](Client::get).
    pub fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        let prefix = prefix.as_ref();
        let end = end_of_prefix(prefix);
        Ok(self.count_up((prefix, end.as_deref()))?.0)
    }
}

impl<K: BuildKeys> Reader<K> {
    /// The record with the greatest key not above `key`, or `None`; see
    /// [`Client::floor`](crate::Client::floor).
    ///
    /// # Errors
    /// As for [`Client::floor`](crate::Client::floor).
    pub fn floor(&mut self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        Ok(self.nearest_with(Side::Floor, key.as_key(), |found| owned::<K>(found))?.0)
    }

    /// The record with the least key not below `key`, or `None`; see
    /// [`Client::ceiling`](crate::Client::ceiling).
    ///
    /// # Errors
    /// As for [`Client::floor`](crate::Client::floor).
    pub fn ceiling(&mut self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        Ok(self.nearest_with(Side::Ceiling, key.as_key(), |found| owned::<K>(found))?.0)
    }

    /// The number of keys from `start` to `end`, exclusive; see
    /// [`Client::count`](crate::Client::count).
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn count(&mut self, start: impl AsKey<K>, end: impl AsKey<K>) -> Result<u64, ClientError> {
        let (mut rest, mut count) = (Rest::new(start.as_key().to_owned(), usize::MAX), 0);
        let (part, within) = ((Some(end.as_key()), Wanted::Presence), self.deadline());
        let take = |_: K::View<'_>, _: &[u8]| count += 1;
        with_core!(&mut self.places, (core, held) => core.scan(held, &mut rest, part, within, take))?;
        Ok(count)
    }

    /// Up to `limit` records in descending key order, beginning with the greatest key not above
    /// `start`; see [`Client::scan_back`](crate::Client::scan_back).
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn scan_back(&mut self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.extend(owned::<K>(Some((key, value))));
        self.scan_back_with(start, limit, take)?;
        Ok(records)
    }

    /// As [`scan_back`](Self::scan_back), but passes each record to `take`.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn scan_back_with(
        &mut self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        let mut rest = Rest::new(Bound::Included(start.as_key().to_owned()), limit);
        let within = self.deadline();
        with_core!(&mut self.places, (core, held) => core.scan_back(held, &mut rest, K::lowest(), within, take))
    }

    /// Passes the record with the greatest key not above `key` to `take`, and returns the cost; see
    /// [`Client::floor`](crate::Client::floor).
    ///
    /// # Errors
    /// As for [`Client::floor`](crate::Client::floor).
    #[inline]
    pub fn floor_with<R>(
        &mut self,
        key: impl AsKey<K>,
        take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        self.nearest_with(Side::Floor, key.as_key(), take)
    }

    /// Passes the record with the least key not below `key` to `take`, and returns the cost; see
    /// [`Client::ceiling`](crate::Client::ceiling).
    ///
    /// # Errors
    /// As for [`Client::floor`](crate::Client::floor).
    #[inline]
    pub fn ceiling_with<R>(
        &mut self,
        key: impl AsKey<K>,
        take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        self.nearest_with(Side::Ceiling, key.as_key(), take)
    }

    #[inline]
    fn nearest_with<R>(
        &mut self,
        side: Side,
        key: &K::Key,
        mut take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        let within = self.deadline();
        let take = |found: Option<Neighbour<'_, K>>| take(record::<K>(found));
        with_core!(&mut self.places, (core, held) => core.nearest_to(held, (side, key), within, take))
    }
}

/// A record that outlives the call.
fn owned<K: BuildKeys>(found: Option<(K::View<'_>, &[u8])>) -> Option<Record<K>> {
    found.map(|(key, value)| (key.borrow().to_owned(), value.to_vec()))
}

/// A record as it is passed to callers.
#[inline]
fn record<K: BuildKeys>(found: Option<Neighbour<'_, K>>) -> Option<(K::View<'_>, &[u8])> {
    found.map(|found| (K::as_view(found.key), found.value))
}
