//! Calls that go by the order of keys.

use std::borrow::Borrow;
use std::ops::Bound;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, NearestScratch, Neighbour, Side};

#[cfg(doc)]
use crate::client::Client;
use crate::client::{ByteClient, Record, TableClient, Transport, with_core, with_direct};
use crate::error::ClientError;
use crate::key::AsKey;
use crate::read::end_of_prefix;
use crate::reader::{Reader, with_place};

impl<K: BuildKeys> TableClient<K> {
    /// The record with the greatest key not above `key`, `None` if there is none: of ranges that are stored under their first
    /// keys, the one that `key` lies in. The record was the nearest at one instant of the call, as a [`get`](Self::get) is of one.
    ///
    /// # Cost
    /// One round trip and the slots of the key's window, with eight more; [`get`](Self::get) reads their fingerprints and one
    /// slot. Where one of them was written to since its segment was loaded, one more round trip with the same bytes, and more
    /// for as long as they change; over mapped memory that is some tens of nanoseconds. One more where the nearest record lies further off, or its
    /// external value.
    ///
    /// # Errors
    /// As for [`get`](Self::get). Slots that never stop changing between two READs end in
    /// [`Deadline`](ClientError::Deadline).
    pub fn floor(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, key.as_key())
    }

    /// The record with the least key not below `key`, `None` if there is none. As [`floor`](Self::floor).
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn ceiling(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, key.as_key())
    }

    /// The record with the least key, `None` if the table is empty. As [`floor`](Self::floor), with some round trips more
    /// where the first keys were deleted.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn first(&self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, K::lowest())
    }

    /// The record with the greatest key, `None` if the table is empty. As [`floor`](Self::floor), with some round trips more
    /// where the last keys were deleted.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn last(&self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, K::highest())
    }

    /// [`floor`](Self::floor) without an allocation: hands the record to `take`, and says what it cost.
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

    /// [`ceiling`](Self::ceiling) without an allocation: hands the record to `take`, and says what it cost.
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

    /// [`floor`](Self::floor) for each of `keys`, in their order. All keys share their round trips: as many as the slowest of them
    /// needs. Each answer is of an instant of its own.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_floor(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.multi_nearest(Side::Floor, keys)
    }

    /// [`ceiling`](Self::ceiling) for each of `keys`, in their order. As [`multi_floor`](Self::multi_floor).
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_ceiling(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.multi_nearest(Side::Ceiling, keys)
    }

    /// [`multi_floor`](Self::multi_floor), handing each record to `take`, in the order of `keys`, with what it cost.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_floor_with(
        &self,
        keys: &[impl AsKey<K>],
        take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        self.multi_nearest_with(Side::Floor, keys, take)
    }

    /// [`multi_ceiling`](Self::multi_ceiling), handing each record to `take`, in the order of `keys`, with what it cost.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_ceiling_with(
        &self,
        keys: &[impl AsKey<K>],
        take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        self.multi_nearest_with(Side::Ceiling, keys, take)
    }

    /// Whether each of `keys` is there, in their order, without their values. As [`multi_get`](Self::multi_get); external values
    /// are not read.
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_contains(&self, keys: &[impl AsKey<K>]) -> Result<Vec<bool>, ClientError> {
        let mut found = vec![false; keys.len()];
        let keys = keys.iter().map(AsKey::as_key);
        with_core!(self, core => core.here(|held| {
            core.multi_contains(held, keys, &mut found, self.deadline())
        }))?;
        Ok(found)
    }

    /// How many keys there are from `start` up to `end`, exclusive; exact. Each key counts that was there at one instant of the
    /// call, as in a [`scan`](Self::scan): the count need not have been true of all of them at once.
    ///
    /// # Cost
    /// Every slot of the range is READ, 256 KiB with each round trip: about the bytes of a slot divided by the table's fill for each key, 29 with
    /// values of 8 bytes. External values are not READ.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn count(&self, start: impl AsKey<K>, end: impl AsKey<K>) -> Result<u64, ClientError> {
        let range = (start.as_key(), Some(end.as_key()));
        Ok(with_core!(self, core => core.here(|held| core.count(held, range, self.deadline())))?.0)
    }

    /// How many keys there are that are not below `start`. As [`count`](Self::count).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn count_from(&self, start: impl AsKey<K>) -> Result<u64, ClientError> {
        Ok(with_core!(self, core => core.here(|held| core.count(held, (start.as_key(), None), self.deadline())))?.0)
    }

    /// As [`count`](Self::count), up to `end` if there is one, with what it cost.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn count_with_cost(
        &self,
        start: impl AsKey<K>,
        end: Option<impl AsKey<K>>,
    ) -> Result<(u64, Cost), ClientError> {
        let range = (start.as_key(), end.as_ref().map(AsKey::as_key));
        with_core!(self, core => core.here(|held| core.count(held, range, self.deadline())))
    }

    /// Up to `limit` records in descending order of their keys, from the greatest not above `start`. Costs what
    /// [`scan`](Self::scan) does.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_back(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.push((key.borrow().to_owned(), value.to_vec()));
        self.scan_back_with(start, limit, take)?;
        Ok(records)
    }

    /// As [`scan_back`](Self::scan_back), handing each record to `take`, which must not use this client.
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

    /// Hands up to `limit` records with keys from `start` up to `end`, exclusive, to `take`, in descending order of their keys: those
    /// of [`scan_range`](Self::scan_range), the last first.
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

    /// Hands up to `limit` records with keys that are not below `start` to `take`, in descending order of their keys: from the
    /// greatest of all on.
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

    fn scan_down(
        &self,
        range: (&K::Key, Bound<&K::Key>),
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        with_core!(self, core => core.here(|held| core.scan_back(held, range, limit, self.deadline(), take)))
    }

    fn nearest(&self, side: Side, key: &K::Key) -> Result<Option<Record<K>>, ClientError> {
        let own = |found: Option<(K::View<'_>, &[u8])>| {
            found.map(|(key, value)| (key.borrow().to_owned(), value.to_vec()))
        };
        Ok(self.nearest_with(side, key, own)?.0)
    }

    #[inline]
    fn nearest_with<R>(
        &self,
        side: Side,
        key: &K::Key,
        mut take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        let take = |found: Option<Neighbour<'_, K>>| take(record::<K>(found));
        with_core!(self, core => core.here(|held| core.nearest_to(held, (side, key), self.deadline(), take)))
    }

    fn multi_nearest(
        &self,
        side: Side,
        keys: &[impl AsKey<K>],
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let mut records = Vec::with_capacity(keys.len());
        self.multi_nearest_with(side, keys, |found, _| {
            records.push(found.map(|(key, value)| (key.borrow().to_owned(), value.to_vec())));
        })?;
        Ok(records)
    }

    fn multi_nearest_with(
        &self,
        side: Side,
        keys: &[impl AsKey<K>],
        mut take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        if let Transport::Pool(pool) = &self.transport {
            // The ranges of the answers show only as they are found.
            return keys.iter().try_for_each(|key| {
                let found = pool.here(|held| {
                    let own = |found: Option<Neighbour<'_, K>>| {
                        found.map(|found| (found.key.to_owned(), found.value.to_vec()))
                    };
                    pool.nearest_to(held, (side, key.as_key()), self.deadline(), own)
                });
                let (found, cost) = found?;
                take(found.as_ref().map(|(key, value)| (K::as_view(key.borrow()), &value[..])), cost);
                Ok(())
            });
        }
        let take = |scratch: &NearestScratch<K>| {
            let answers = scratch.answers();
            if answers.len() == 0 {
                keys.iter().for_each(|_| take(None, Cost::default()));
            }
            answers.for_each(|(found, cost)| {
                take(record::<K>(found), cost);
            });
        };
        let all = keys.iter().map(AsKey::as_key);
        with_direct!(
            self,
            core => core.here(|held| core.nearest(held, side, all, self.deadline(), take)),
            _pool => Ok(())
        )
    }
}

impl ByteClient {
    /// Hands up to `limit` records whose keys begin with `prefix` to `take`, in descending order of their keys.
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

    /// How many keys begin with `prefix`. As [`count`](Client::count).
    ///
    /// # Errors
    /// As for [`get`](Client::get).
    pub fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        let prefix = prefix.as_ref();
        let end = end_of_prefix(prefix);
        Ok(with_core!(self, core => core.here(|held| core.count(held, (prefix, end.as_deref()), self.deadline())))?.0)
    }
}

impl<K: BuildKeys> Reader<K> {
    /// The record with the greatest key not above `key`, handed to `take`, and what it cost; see
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

    /// The record with the least key not below `key`, handed to `take`, and what it cost; see
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
        with_place!(self, (core, held) => core.nearest_to(held, (side, key), within, take))
    }
}

/// A record as callers are shown it.
#[inline]
fn record<K: BuildKeys>(found: Option<Neighbour<'_, K>>) -> Option<(K::View<'_>, &[u8])> {
    found.map(|found| (K::as_view(found.key), found.value))
}
