//! Ordered queries of clients and readers.
#![allow(private_bounds, reason = "programs name none but readers of their own")]

use std::borrow::Borrow;

use fpcache::key_space::{BuildKeys, ByteKeys};
use fpcache::read::{Cost, Neighbour, Side, Wanted};

#[cfg(doc)]
use crate::client::Client;
use crate::client::{ByteClient, Record, TableClient};
use crate::core::Section;
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::key::AsKey;
use crate::one_node::Holds;
use crate::reader::{Reader, with_held};
use crate::span::Span;

impl<K: BuildKeys> TableClient<K> {
    /// The record with the greatest key not above `key`, or `None`. If keys are the starts of
    /// ranges, it is the range that contains `key`. Linearizable: the record was the nearest at one
    /// instant during the call. Over several memory nodes that holds within each node's range; a
    /// range that was found empty may have had records since.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// # client.put(10, b"10 to 19")?;
    /// # client.put(20, b"20 to 99")?;
    /// let range = client.floor(25)?;
    /// assert_eq!(range, Some((20, b"20 to 99".to_vec())));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
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
        self.here(|mut reader| reader.floor(key))
    }

    /// The record with the least key not below `key`, or `None`. See [`floor`](Self::floor).
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn ceiling(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.here(|mut reader| reader.ceiling(key))
    }

    /// The record with the least key, or `None` if the table is empty. See [`floor`](Self::floor);
    /// takes some more round trips if the first keys were deleted.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn first(&self) -> Result<Option<Record<K>>, ClientError> {
        self.here(|mut reader| reader.first())
    }

    /// The record with the greatest key, or `None` if the table is empty. See
    /// [`floor`](Self::floor); takes some more round trips if the last keys were deleted, or if
    /// keys are written in ascending order.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor).
    pub fn last(&self) -> Result<Option<Record<K>>, ClientError> {
        self.here(|mut reader| reader.last())
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
        self.here(|mut reader| reader.floor_with(key, take))
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
        self.here(|mut reader| reader.ceiling_with(key, take))
    }

    /// [`floor`](Self::floor) for each of `keys`, in the same order. Each 4,096 keys share round
    /// trips: as many as the slowest of them needs; in a table over several memory nodes those of
    /// each node, one node after the other. The deadline is that of all keys together. Each answer
    /// is linearizable on its own, as that of [`floor`](Self::floor) is.
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_floor(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.here(|mut reader| reader.multi_floor(keys))
    }

    /// [`ceiling`](Self::ceiling) for each of `keys`, in the same order. See
    /// [`multi_floor`](Self::multi_floor).
    ///
    /// # Errors
    /// As for [`floor`](Self::floor); the group fails as a whole.
    pub fn multi_ceiling(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.here(|mut reader| reader.multi_ceiling(keys))
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
        self.here(|mut reader| reader.multi_floor_with(keys, take))
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
        self.here(|mut reader| reader.multi_ceiling_with(keys, take))
    }

    /// The exact number of keys from `start` to `end`, exclusive. Each key is counted as of some
    /// instant during the call, as in a [`scan`](Self::scan), so the count need not be of any
    /// single instant.
    ///
    /// # Cost
    /// Reads every slot of the range, 256 KiB per round trip: per key about the bytes of a slot
    /// divided by the table's fill, 29 with values of 8 bytes. External values are not read.
    pub fn count(&self, start: impl AsKey<K>, end: impl AsKey<K>) -> Result<u64, ClientError> {
        self.here(|mut reader| reader.count(start, end))
    }

    /// The number of keys not below `start`. See [`count`](Self::count).
    pub fn count_from(&self, start: impl AsKey<K>) -> Result<u64, ClientError> {
        self.here(|mut reader| reader.count_from(start))
    }

    /// As [`count`](Self::count), up to `end` if given, with the cost.
    pub fn count_with_cost(
        &self,
        start: impl AsKey<K>,
        end: Option<impl AsKey<K>>,
    ) -> Result<(u64, Cost), ClientError> {
        self.here(|mut reader| reader.count_with_cost(start, end))
    }

    /// Up to `limit` records in descending key order, beginning with the greatest key not above
    /// `start`, at the cost of a [`scan`](Self::scan).
    pub fn scan_back(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        self.here(|mut reader| reader.scan_back(start, limit))
    }

    /// As [`scan_back`](Self::scan_back), but passes each record to `take`, which may use this
    /// client.
    pub fn scan_back_with<F: ScanFlow>(
        &self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.here(|mut reader| reader.scan_back_with(start, limit, take))
    }

    /// As [`scan_range`](Self::scan_range), in descending key order.
    pub fn scan_range_back<F: ScanFlow>(
        &self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.here(|mut reader| reader.scan_range_back(start, end, limit, take))
    }

    /// Passes up to `limit` records with keys not below `start` to `take`, in descending key order,
    /// beginning with the greatest of the table.
    pub fn scan_back_to<F: ScanFlow>(
        &self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.here(|mut reader| reader.scan_back_to(start, limit, take))
    }
}

impl ByteClient {
    /// The number of keys that begin with `prefix`. See [`count`](Client::count).
    pub fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        self.here(|mut reader| reader.count_prefix(prefix))
    }
}

impl<K: BuildKeys, H: Holds> Reader<K, H> {
    /// Up to `limit` records from `start` down. As [`Client::scan_back`](crate::Client::scan_back).
    pub fn scan_back(&mut self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        self.scan_back_with(start, limit, |key, value| records.push(owned::<K>((key, value))))?;
        Ok(records)
    }

    /// As [`scan_back`](Self::scan_back), but passes each record to `take`.
    pub fn scan_back_with<F: ScanFlow>(
        &mut self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.scan_section(Section::down(Span::not_above(start), limit), Wanted::Value, take)
    }

    /// As [`scan_range`](Self::scan_range), in descending key order.
    pub fn scan_range_back<F: ScanFlow>(
        &mut self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.scan_section(Section::down(Span::between(start, end), limit), Wanted::Value, take)
    }

    /// Passes up to `limit` records not below `start` to `take`, beginning with the greatest.
    pub fn scan_back_to<F: ScanFlow>(
        &mut self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.scan_section(Section::down(Span::not_below(start), limit), Wanted::Value, take)
    }

    /// The number of keys from `start` to `end`. As [`Client::count`](crate::Client::count).
    pub fn count(&mut self, start: impl AsKey<K>, end: impl AsKey<K>) -> Result<u64, ClientError> {
        Ok(self.count_of(Span::between(start, end))?.0)
    }

    /// The number of keys not below `start`. See [`count`](Self::count).
    pub fn count_from(&mut self, start: impl AsKey<K>) -> Result<u64, ClientError> {
        Ok(self.count_of(Span::not_below(start))?.0)
    }

    /// As [`count`](Self::count), up to `end` if given, with the cost.
    pub fn count_with_cost(
        &mut self,
        start: impl AsKey<K>,
        end: Option<impl AsKey<K>>,
    ) -> Result<(u64, Cost), ClientError> {
        let end = end.map(|end| end.as_key().to_owned());
        self.count_of(Span { end, ..Span::not_below(start) })
    }

    /// The record with the greatest key not above `key`. As
    /// [`Client::floor`](crate::Client::floor).
    pub fn floor(&mut self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, key.as_key())
    }

    /// The record with the least key not below `key`. See [`floor`](Self::floor).
    pub fn ceiling(&mut self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, key.as_key())
    }

    /// The record with the least key. As [`Client::first`](crate::Client::first).
    pub fn first(&mut self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, K::lowest())
    }

    /// The record with the greatest key. As [`Client::last`](crate::Client::last).
    pub fn last(&mut self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, K::highest())
    }

    /// [`floor`](Self::floor) without an allocation: passes the record to `take`.
    #[inline]
    pub fn floor_with<R>(
        &mut self,
        key: impl AsKey<K>,
        take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        self.nearest_with(Side::Floor, key.as_key(), take)
    }

    /// [`ceiling`](Self::ceiling) without an allocation: passes the record to `take`.
    #[inline]
    pub fn ceiling_with<R>(
        &mut self,
        key: impl AsKey<K>,
        take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        self.nearest_with(Side::Ceiling, key.as_key(), take)
    }

    /// [`floor`](Self::floor) of each of `keys`. As
    /// [`Client::multi_floor`](crate::Client::multi_floor).
    pub fn multi_floor(&mut self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.multi_nearest(Side::Floor, keys)
    }

    /// [`ceiling`](Self::ceiling) of each of `keys`. See [`multi_floor`](Self::multi_floor).
    pub fn multi_ceiling(&mut self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.multi_nearest(Side::Ceiling, keys)
    }

    /// As [`multi_floor`](Self::multi_floor), but passes each record and its cost to `take`.
    pub fn multi_floor_with(
        &mut self,
        keys: &[impl AsKey<K>],
        take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        self.multi_nearest_with(Side::Floor, keys, take)
    }

    /// As [`multi_ceiling`](Self::multi_ceiling), but passes each record and its cost to `take`.
    pub fn multi_ceiling_with(
        &mut self,
        keys: &[impl AsKey<K>],
        take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        self.multi_nearest_with(Side::Ceiling, keys, take)
    }

    fn count_of(&mut self, span: Span<K>) -> Result<(u64, Cost), ClientError> {
        let mut count = 0;
        let section = Section::up(span, usize::MAX);
        let cost = self.scan_section(section, Wanted::Presence, |_, _| count += 1)?;
        Ok((count, cost))
    }

    fn nearest(&mut self, side: Side, key: &K::Key) -> Result<Option<Record<K>>, ClientError> {
        Ok(self.nearest_with(side, key, |found| found.map(owned::<K>))?.0)
    }

    #[inline]
    fn nearest_with<R>(
        &mut self,
        side: Side,
        key: &K::Key,
        mut take: impl FnMut(Option<(K::View<'_>, &[u8])>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        let take = |found: Option<Neighbour<'_, K>>| take(found.map(record::<K>));
        with_held!(self, (core, held) => core.nearest_to(held, (side, key), self.deadline, take))
    }

    fn multi_nearest(
        &mut self,
        side: Side,
        keys: &[impl AsKey<K>],
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let mut records = Vec::with_capacity(keys.len());
        self.multi_nearest_with(side, keys, |found, _| records.push(found.map(owned::<K>)))?;
        Ok(records)
    }

    fn multi_nearest_with(
        &mut self,
        side: Side,
        keys: &[impl AsKey<K>],
        mut take: impl FnMut(Option<(K::View<'_>, &[u8])>, Cost),
    ) -> Result<(), ClientError> {
        let keys = keys.iter().map(AsKey::as_key);
        let take = |found: Option<Neighbour<'_, K>>, cost| take(found.map(record::<K>), cost);
        with_held!(self, (core, held) => core.nearest(held, side, keys, self.deadline, take))
    }
}

impl<H: Holds> Reader<ByteKeys, H> {
    /// The number of keys that begin with `prefix`. See [`count`](Self::count).
    pub fn count_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        Ok(self.count_of(Span::of_prefix(prefix.as_ref()))?.0)
    }
}

/// A record that outlives the call.
fn owned<K: BuildKeys>((key, value): (K::View<'_>, &[u8])) -> Record<K> {
    (key.borrow().to_owned(), value.to_vec())
}

/// A record as it is passed to callers.
#[inline]
fn record<'r, K: BuildKeys>(found: Neighbour<'r, K>) -> (K::View<'r>, &'r [u8]) {
    (K::as_view(found.key), found.value)
}
