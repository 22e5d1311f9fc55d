//! Lookups and scans of clients.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, Wanted};

use crate::answers::{Answers, Found, into_buffer};
#[cfg(doc)]
use crate::client::Client;
use crate::client::{ByteClient, Record, TableClient, with_core};
use crate::core::Rest;
use crate::error::ClientError;
use crate::key::AsKey;
use crate::span::end_of_prefix;

impl<K: BuildKeys> TableClient<K> {
    /// The value of `key`, or `None` if it is absent. One or two dependent round trips, depending
    /// on the [`Plan`](crate::Plan), and one more for an external value; see the
    /// [crate](crate#cost) for rarer costs. [`get_into`](Self::get_into) avoids the allocation.
    ///
    /// # Errors
    /// The memory node is down, which is not waited for; it says nothing, or the record is being
    /// written, until the deadline; it has no such table.
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.version.map(|_| value))
    }

    /// Reads the value of `key` into `value`, whose content is replaced, and returns version, plan
    /// and cost. Does not allocate if `value` has the capacity. An absent key leaves `value` empty.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn get_into(&self, key: impl AsKey<K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
        let take = into_buffer(value);
        with_core!(&self.transport, core => core.here(|held| core.look_up(held, key.as_key(), self.deadline, take)))
    }

    /// Whether `key` exists. An external value is not read.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn contains(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        with_core!(&self.transport, core => core.here(|held| core.contains(held, key.as_key(), self.deadline)))
    }

    /// The values of `keys`, in the same order. Each 4,096 keys share round trips: as many as the
    /// slowest of them needs, and one more per 64 MiB that they read. The deadline is that of all
    /// keys together; where memory is mapped, the clock is looked at after each 1,024 of them. Each
    /// answer is linearizable on its own.
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_get(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut answers = Answers::new();
        self.multi_get_into(keys, &mut answers)?;
        Ok(answers.values().map(|value| value.map(<[u8]>::to_vec)).collect())
    }

    /// As [`multi_get`](Self::multi_get), into reusable buffers: does not allocate once they are
    /// large enough.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn multi_get_into(&self, keys: &[impl AsKey<K>], answers: &mut Answers) -> Result<(), ClientError> {
        let keys = (keys.iter().map(AsKey::as_key), Wanted::Value);
        with_core!(&self.transport, core => core.here(|held| core.lookup_into(held, keys, self.deadline, &mut answers.outcomes)))
    }

    /// Up to `limit` records in key order, beginning with the least key not below `start`. One
    /// round trip per 256 KiB of slots and of external values; [`scan_with`](Self::scan_with) holds
    /// at most 32 MiB of these at a time.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.push((key.borrow().to_owned(), value.to_vec()));
        self.scan_with(start, limit, take)?;
        Ok(records)
    }

    /// As [`scan`](Self::scan), but passes each record to `take`, which may use this client: it
    /// then reads with buffers that are made for that call.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_with(
        &self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.scan_up((start.as_key(), None), limit, take)
    }

    /// Passes up to `limit` records with keys from `start` to `end`, exclusive, to `take`, in key
    /// order.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn scan_range(
        &self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.scan_up((start.as_key(), Some(end.as_key())), limit, take)
    }

    /// Scans from a key up to an end.
    pub(crate) fn scan_up(
        &self,
        (start, end): (&K::Key, Option<&K::Key>),
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        let (mut rest, part) = (Rest::new(start.to_owned(), limit), (end, Wanted::Value));
        with_core!(&self.transport, core => core.here(|held| core.scan(held, &mut rest, part, self.deadline, take)))
    }
}

impl ByteClient {
    /// Passes up to `limit` records whose keys begin with `prefix` to `take`, in key order.
    ///
    /// # Errors
    /// As for [`scan`](Client::scan).
    pub fn scan_prefix(
        &self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]),
    ) -> Result<Cost, ClientError> {
        let prefix = prefix.as_ref();
        let end = end_of_prefix(prefix);
        self.scan_up((prefix, end.as_deref()), limit, take)
    }
}
