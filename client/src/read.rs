//! Lookups and scans of clients.

use fpcache::key_space::BuildKeys;
use fpcache::read::Cost;

use crate::answers::{Answers, Found};
#[cfg(doc)]
use crate::client::Client;
use crate::client::{ByteClient, Record, TableClient};
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::key::AsKey;

impl<K: BuildKeys> TableClient<K> {
    /// The value of `key`, or `None` if it is absent. One or two dependent round trips, depending
    /// on the [`Plan`](crate::Plan), and one more for an external value; see the
    /// [crate](crate#cost) for rarer costs. [`get_into`](Self::get_into) avoids the allocation.
    ///
    /// # Errors
    /// The memory node is down, which is not waited for; it says nothing, or the record is being
    /// written, until the deadline; it has no such table.
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        self.here(|mut reader| reader.get(key))
    }

    /// Reads the value of `key` into `value`, whose content is replaced, and returns version, plan
    /// and cost. Does not allocate if `value` has the capacity. An absent key leaves `value` empty.
    #[inline]
    pub fn get_into(&self, key: impl AsKey<K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
        self.here(|mut reader| reader.get_into(key, value))
    }

    /// Whether `key` exists. An external value is not read.
    pub fn contains(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        self.here(|mut reader| reader.contains(key))
    }

    /// The values of `keys`, in the same order. Each 4,096 keys share round trips: as many as the
    /// slowest of them needs, and one more per 64 MiB that they read. The deadline is that of all
    /// keys together; where memory is mapped, the clock is looked at after each 1,024 of them. Each
    /// answer is linearizable on its own.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// # client.put(10, &[1; 8])?;
    /// # client.put(20, &[2; 8])?;
    /// let values = client.multi_get(&[10u64, 15, 20])?;
    /// assert_eq!(values, [Some(vec![1; 8]), None, Some(vec![2; 8])]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_get(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        self.here(|mut reader| reader.multi_get(keys))
    }

    /// As [`multi_get`](Self::multi_get), into reusable buffers: does not allocate once they are
    /// large enough.
    #[inline]
    pub fn multi_get_into(&self, keys: &[impl AsKey<K>], answers: &mut Answers) -> Result<(), ClientError> {
        self.here(|mut reader| reader.multi_get_into(keys, answers))
    }

    /// Whether each of `keys` exists, in the same order. See [`multi_get`](Self::multi_get);
    /// external values are not read.
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_contains(&self, keys: &[impl AsKey<K>]) -> Result<Vec<bool>, ClientError> {
        self.here(|mut reader| reader.multi_contains(keys))
    }

    /// Up to `limit` records in key order, beginning with the least key not below `start`. One
    /// round trip per 256 KiB of slots and of external values; [`scan_with`](Self::scan_with) holds
    /// at most 32 MiB of these at a time.
    pub fn scan(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        self.here(|mut reader| reader.scan(start, limit))
    }

    /// Up to `limit` keys in their order, beginning with the least not below `start`: a
    /// [`scan`](Self::scan) that returns no values, and READs none that are external.
    pub fn scan_keys(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<K::Owned>, ClientError> {
        self.here(|mut reader| reader.scan_keys(start, limit))
    }

    /// Up to `limit` keys from `start` to `end`, exclusive. As [`scan_keys`](Self::scan_keys), and
    /// of a table over several memory nodes those alone are read that have keys of the range.
    pub fn scan_range_keys(
        &self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
    ) -> Result<Vec<K::Owned>, ClientError> {
        self.here(|mut reader| reader.scan_range_keys(start, end, limit))
    }

    /// As [`scan`](Self::scan), but passes each record to `take`, until that returns
    /// [`ControlFlow::Break`](std::ops::ControlFlow::Break), if it returns [such](ScanFlow). It may
    /// use this client: it then reads with buffers that are made for that call.
    pub fn scan_with<F: ScanFlow>(
        &self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.here(|mut reader| reader.scan_with(start, limit, take))
    }

    /// Passes up to `limit` records with keys from `start` to `end`, exclusive, to `take`, in key
    /// order.
    pub fn scan_range<F: ScanFlow>(
        &self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.here(|mut reader| reader.scan_range(start, end, limit, take))
    }
}

impl ByteClient {
    /// Passes up to `limit` records whose keys begin with `prefix` to `take`, in key order.
    pub fn scan_prefix<F: ScanFlow>(
        &self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.here(|mut reader| reader.scan_prefix(prefix, limit, take))
    }

    /// Passes up to `limit` records whose keys begin with `prefix` to `take`, in descending key
    /// order.
    pub fn scan_prefix_back<F: ScanFlow>(
        &self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.here(|mut reader| reader.scan_prefix_back(prefix, limit, take))
    }
}
