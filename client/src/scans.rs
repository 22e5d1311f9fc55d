//! Scans of clients and readers.
#![allow(private_bounds, reason = "programs name none but readers of their own")]

use std::borrow::Borrow;
use std::ops::RangeBounds;

use fpcache::key_space::{BuildKeys, ByteKeys};
use fpcache::read::{Cost, Wanted};

use crate::client::{ByteClient, Record, TableClient};
use crate::core::Section;
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::key::AsKey;
use crate::one_node::Holds;
use crate::reader::{Reader, with_held};
use crate::span::Span;

impl<K: BuildKeys> TableClient<K> {
    /// Up to `limit` records in key order, beginning with the least key not below `start`. One
    /// round trip per 256 KiB of slots and of external values; [`scan_with`](Self::scan_with) holds
    /// at most 32 MiB of these at a time.
    ///
    /// ```
    /// # fn example(client: &fpcache_client::Client) -> Result<(), fpcache_client::ClientError> {
    /// for (key, value) in client.scan(1000, 10)? {
    ///     println!("{key}: {value:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
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

    /// Up to `limit` keys of a range in descending order, beginning with the greatest. As
    /// [`scan_keys`](Self::scan_keys).
    pub fn scan_keys_back<Q: AsKey<K>>(
        &self,
        keys: impl RangeBounds<Q>,
        limit: usize,
    ) -> Result<Vec<K::Owned>, ClientError> {
        self.here(|mut reader| reader.scan_keys_back(keys, limit))
    }

    /// As [`scan`](Self::scan), but passes each record to `take`, until that returns
    /// [`ControlFlow::Break`](std::ops::ControlFlow::Break), if it returns [such](ScanFlow). It may
    /// use this client: it then reads with buffers that are made for that call.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # fn example(client: &fpcache_client::Client) -> Result<(), fpcache_client::ClientError> {
    /// // To the first long value.
    /// client.scan_with(0, usize::MAX, |key, value| {
    ///     println!("{key}: {} bytes", value.len());
    ///     if value.len() < 1000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
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

impl<K: BuildKeys, H: Holds> Reader<K, H> {
    /// Up to `limit` records from `start` on. As [`Client::scan`](crate::Client::scan).
    pub fn scan(&mut self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        self.scan_with(start, limit, |key, value| records.push((key.borrow().to_owned(), value.to_vec())))?;
        Ok(records)
    }

    /// Up to `limit` keys from `start` on. As [`Client::scan_keys`](crate::Client::scan_keys).
    pub fn scan_keys(&mut self, start: impl AsKey<K>, limit: usize) -> Result<Vec<K::Owned>, ClientError> {
        self.keys_of(Section::up(Span::not_below(start), limit))
    }

    /// Up to `limit` keys from `start` to `end`, exclusive. As [`scan_keys`](Self::scan_keys).
    pub fn scan_range_keys(
        &mut self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
    ) -> Result<Vec<K::Owned>, ClientError> {
        self.keys_of(Section::up(Span::between(start, end), limit))
    }

    /// Up to `limit` keys of a range from its end down. As
    /// [`Client::scan_keys_back`](crate::Client::scan_keys_back).
    pub fn scan_keys_back<Q: AsKey<K>>(
        &mut self,
        keys: impl RangeBounds<Q>,
        limit: usize,
    ) -> Result<Vec<K::Owned>, ClientError> {
        Span::of(&keys).map_or(Ok(Vec::new()), |span| self.keys_of(Section::down(span, limit)))
    }

    fn keys_of(&mut self, section: Section<K>) -> Result<Vec<K::Owned>, ClientError> {
        let mut keys = Vec::new();
        let take = |key: K::View<'_>, _: &[u8]| keys.push(key.borrow().to_owned());
        self.scan_section(section, Wanted::Presence, take)?;
        Ok(keys)
    }

    /// As [`scan`](Self::scan), but passes each record to `take`, until that wants no more.
    pub fn scan_with<F: ScanFlow>(
        &mut self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.scan_section(Section::up(Span::not_below(start), limit), Wanted::Value, take)
    }

    /// Passes up to `limit` records from `start` to `end`, exclusive, to `take`, in key order.
    pub fn scan_range<F: ScanFlow>(
        &mut self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.scan_section(Section::up(Span::between(start, end), limit), Wanted::Value, take)
    }

    /// Scans a section.
    pub(crate) fn scan_section<F: ScanFlow>(
        &mut self,
        section: Section<K>,
        wanted: Wanted,
        take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        let mut rest = Some(section);
        with_held!(self, (core, held) => core.scan(held, &mut rest, wanted, self.deadline, take))
    }
}

impl<H: Holds> Reader<ByteKeys, H> {
    /// Passes up to `limit` records whose keys begin with `prefix` to `take`, in key order.
    pub fn scan_prefix<F: ScanFlow>(
        &mut self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.scan_section(Section::up(Span::of_prefix(prefix.as_ref()), limit), Wanted::Value, take)
    }

    /// As [`scan_prefix`](Self::scan_prefix), in descending key order.
    pub fn scan_prefix_back<F: ScanFlow>(
        &mut self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        self.scan_section(Section::down(Span::of_prefix(prefix.as_ref()), limit), Wanted::Value, take)
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use fpcache::layout::{RecordShape, TableParameters};

    use super::*;
    use crate::client::Client;

    /// Downwards, long values were read though keys alone were wanted.
    #[test]
    fn keys_alone_cost_no_long_values_in_either_direction() {
        const BYTES: usize = 1 << 16;
        let client = Client::embedded(64 << 20).unwrap();
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
        client.create(TableParameters { shape, ..TableParameters::default() }).unwrap();
        (0..40u64).for_each(|key| client.put(key, &[7; BYTES]).unwrap());
        for is_down in [false, true] {
            let mut keys = Vec::new();
            let section = Section { span: Span::all(), limit: 40, is_down };
            let take = |key, _: &[u8]| keys.push(key);
            let scanned =
                client.here(|mut reader| reader.scan_section(section, Wanted::Presence, take)).unwrap();
            if is_down {
                keys.reverse();
            }
            assert!(keys.into_iter().eq(0..40) && scanned.bytes < BYTES as u64, "{scanned:?}, {is_down}");
        }
    }
}
