//! In-process maps for comparison.
//!
//! Each is given its best shape. Values of common lengths are stored in the map's entries, so that
//! a lookup misses the cache once; others are stored in one vector, without an allocation each.
//! Byte-string keys are `Vec<u8>`s. The hash map is created with its final capacity; the ordered
//! map is built from sorted pairs, which packs its nodes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::time::Instant;

use fpcache_client::KeySpace;
use fpcache_datasets::{KeySet, write_value};
use hashbrown::HashMap;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats};

use super::{Facts, Reader, System};
use crate::data::{DataKeys, DataSet};
use crate::run::values::ValueBytes;

/// CityHash64 of the key's bytes, as the memory node's fingerprints use.
#[derive(Clone, Copy, Debug, Default)]
pub struct CityHash;

impl BuildHasher for CityHash {
    type Hasher = CityHasher;

    #[inline]
    fn build_hasher(&self) -> CityHasher {
        CityHasher(0)
    }
}

/// Holds the hash of the last thing written.
#[derive(Debug)]
pub struct CityHasher(u64);

impl Hasher for CityHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = cityhasher::hash(bytes);
    }

    /// The length of a byte string, which comes before it, has no part in its hash.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = cityhasher::hash(key.to_le_bytes());
    }
}

/// A map from keys to what a [`Shape`] stores.
pub trait Index<K: KeySpace, V>: Sync {
    /// As reports spell it.
    const NAME: &'static str;

    /// From ascending distinct keys.
    fn build(pairs: impl ExactSizeIterator<Item = (K::Owned, V)>) -> Self;

    /// What is stored for `key`.
    fn find(&self, key: &K::Key) -> Option<&V>;
}

impl<K: KeySpace, V: Sync> Index<K, V> for HashMap<K::Owned, V, CityHash> {
    const NAME: &'static str = "hashmap";

    fn build(pairs: impl ExactSizeIterator<Item = (K::Owned, V)>) -> Self {
        let mut map = HashMap::with_capacity_and_hasher(pairs.len(), CityHash);
        map.extend(pairs);
        map
    }

    #[inline]
    fn find(&self, key: &K::Key) -> Option<&V> {
        self.get(key)
    }
}

impl<K: KeySpace, V: Sync> Index<K, V> for BTreeMap<K::Owned, V> {
    const NAME: &'static str = "btreemap";

    fn build(pairs: impl ExactSizeIterator<Item = (K::Owned, V)>) -> Self {
        pairs.collect()
    }

    #[inline]
    fn find(&self, key: &K::Key) -> Option<&V> {
        self.get(key)
    }
}

/// Where a map keeps its values.
pub trait Shape: Sync {
    /// What the map's entries hold.
    type Stored: Sync + 'static;

    /// A store for `keys` values.
    fn new(keys: usize, values: ValueBytes) -> Self;

    /// Keeps the value made from `number`.
    fn store(&mut self, number: u64) -> Self::Stored;

    /// The value's bytes.
    fn bytes<'a>(&'a self, stored: &'a Self::Stored) -> &'a [u8];
}

/// Values of `N` bytes inside the entries.
#[derive(Debug)]
pub struct Inline<const N: usize>;

impl<const N: usize> Shape for Inline<N> {
    type Stored = [u8; N];

    fn new(_: usize, _: ValueBytes) -> Self {
        Self
    }

    fn store(&mut self, number: u64) -> [u8; N] {
        let mut value = [0; N];
        write_value(number, &mut value);
        value
    }

    #[inline]
    fn bytes<'a>(&'a self, stored: &'a [u8; N]) -> &'a [u8] {
        stored
    }
}

/// Values of one size side by side in one vector; the entries hold where each begins.
#[derive(Debug)]
pub struct SideBySide {
    value_bytes: usize,
    values: Vec<u8>,
}

impl Shape for SideBySide {
    type Stored = usize;

    fn new(keys: usize, values: ValueBytes) -> Self {
        let value_bytes = values.most() as usize;
        Self { value_bytes, values: Vec::with_capacity(keys.saturating_mul(value_bytes)) }
    }

    fn store(&mut self, number: u64) -> usize {
        let start = self.values.len();
        self.values.resize(start + self.value_bytes, 0);
        write_value(number, &mut self.values[start..]);
        start
    }

    #[inline]
    fn bytes<'a>(&'a self, start: &'a usize) -> &'a [u8] {
        &self.values[*start..*start + self.value_bytes]
    }
}

/// Values of many sizes side by side in one vector; the entries hold where each begins, and its
/// length.
#[derive(Debug)]
pub struct Packed {
    sizes: ValueBytes,
    values: Vec<u8>,
}

impl Shape for Packed {
    type Stored = (usize, u32);

    fn new(keys: usize, sizes: ValueBytes) -> Self {
        Self { sizes, values: Vec::with_capacity((keys as f64 * sizes.mean()) as usize) }
    }

    fn store(&mut self, number: u64) -> (usize, u32) {
        let start = self.values.len();
        self.sizes.append(number, &mut self.values);
        // Values are far below 4 GiB.
        (start, (self.values.len() - start) as u32)
    }

    #[inline]
    fn bytes<'a>(&'a self, (start, length): &'a (usize, u32)) -> &'a [u8] {
        &self.values[*start..][..*length as usize]
    }
}

/// A map of one kind and shape.
#[derive(Debug)]
pub struct Map<K, I, S> {
    index: I,
    shape: S,
    facts: Facts,
    _keys: PhantomData<K>,
}

impl<K: DataKeys, S: Shape, I: Index<K, S::Stored>> Map<K, I, S> {
    /// Builds the map of a data set.
    pub fn build(set: &K::Set, values: ValueBytes) -> Self {
        let before = held_bytes(&INSTRUMENTED_SYSTEM.stats());
        let start = Instant::now();
        let mut shape = S::new(set.len(), values);
        let mut buffer = Vec::new();
        let record = |i| (set.key(i, &mut buffer).borrow().to_owned(), shape.store(set.value(i)));
        let index = I::build((0..set.len()).map(record));
        let build = start.elapsed();
        let process_bytes = held_bytes(&INSTRUMENTED_SYSTEM.stats()).saturating_sub(before);
        Self { index, shape, facts: Facts { build, process_bytes, ..Facts::default() }, _keys: PhantomData }
    }
}

/// Bytes asked of the allocator and not given back.
fn held_bytes(stats: &Stats) -> u64 {
    // What reallocations added is among the bytes allocated already.
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64
}

impl<K: DataKeys, S: Shape, I: Index<K, S::Stored>> System for Map<K, I, S> {
    type Keys = K;
    type Reader<'a>
        = MapReader<'a, K, I, S>
    where
        Self: 'a;

    fn name(&self) -> &str {
        I::NAME
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn reader(&self) -> MapReader<'_, K, I, S> {
        MapReader { map: self, value: Vec::new(), values: Vec::new(), answers: Vec::new() }
    }
}

/// One thread's buffers: values are copied into them, as they are from a memory node.
#[derive(Debug)]
pub struct MapReader<'a, K, I, S> {
    map: &'a Map<K, I, S>,
    value: Vec<u8>,
    values: Vec<u8>,
    /// Of each key of the group: where its value begins and ends, if it is there.
    answers: Vec<Option<(usize, usize)>>,
}

impl<K: DataKeys, S: Shape, I: Index<K, S::Stored>> Reader<K> for MapReader<'_, K, I, S> {
    #[inline]
    fn get(&mut self, key: K::View<'_>) -> anyhow::Result<Option<&[u8]>> {
        let Some(stored) = self.map.index.find(key.borrow()) else { return Ok(None) };
        self.value.clear();
        self.value.extend_from_slice(self.map.shape.bytes(stored));
        Ok(Some(&self.value))
    }

    #[inline]
    fn get_many(&mut self, keys: &[K::View<'_>]) -> anyhow::Result<()> {
        self.values.clear();
        self.answers.clear();
        for key in keys {
            let answer = self.map.index.find((*key).borrow()).map(|stored| {
                let start = self.values.len();
                self.values.extend_from_slice(self.map.shape.bytes(stored));
                (start, self.values.len())
            });
            self.answers.push(answer);
        }
        Ok(())
    }

    #[inline]
    fn answer(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = (*self.answers.get(index)?)?;
        Some(&self.values[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_client::{ByteKeys, U64Keys};
    use fpcache_datasets::OpenOptions;
    use fpcache_datasets::requests::{Distribution, RequestOptions};

    fn holds_everything<K: DataKeys, S: Shape, I: Index<K, S::Stored>>(data: &str, values: ValueBytes) {
        let set = K::open(&data.parse().unwrap(), &OpenOptions::default()).unwrap();
        let absent = K::draw(&set, &RequestOptions { negative: 1.0, ..OPTIONS });
        let absent = K::stream(&absent).keys[0];
        let map = Map::<K, I, S>::build(&set, values);
        let mut reader = map.reader();
        let mut expected = Vec::new();
        let mut buffers = vec![Vec::new(); set.len()];
        for (i, buffer) in buffers.iter_mut().enumerate() {
            let key = set.key(i, buffer);
            expected.clear();
            values.append(set.value(i), &mut expected);
            assert_eq!(reader.get(key).unwrap(), Some(&*expected), "{} {values}", map.name());
            reader.get_many(&[key, absent, key]).unwrap();
            assert_eq!(reader.answer(0), Some(&*expected));
            assert_eq!(reader.answer(1), None);
            assert_eq!(reader.answer(2), Some(&*expected));
            assert_eq!(reader.answer(3), None);
        }
        assert_eq!(reader.get(absent).unwrap(), None);
    }

    const OPTIONS: RequestOptions = RequestOptions {
        lookups: 1,
        distribution: Distribution::Uniform,
        negative: 0.0,
        seed: 1,
        shift_every: None,
    };

    #[test]
    fn maps_hold_everything_in_every_shape() {
        use ValueBytes::{Fixed, UpTo};
        holds_everything::<U64Keys, Inline<8>, HashMap<u64, _, CityHash>>("uniform:1K", Fixed(8));
        holds_everything::<U64Keys, Inline<64>, HashMap<u64, _, CityHash>>("uniform:1K", Fixed(64));
        holds_everything::<U64Keys, SideBySide, HashMap<u64, _, CityHash>>("uniform:1K", Fixed(13));
        holds_everything::<U64Keys, Inline<8>, BTreeMap<u64, _>>("uniform:1K", Fixed(8));
        holds_everything::<U64Keys, SideBySide, BTreeMap<u64, _>>("uniform:1K", Fixed(1));
        holds_everything::<U64Keys, Packed, BTreeMap<u64, _>>("uniform:1K", UpTo(20));
        holds_everything::<ByteKeys, Inline<8>, HashMap<Vec<u8>, _, CityHash>>("words:1K", Fixed(8));
        holds_everything::<ByteKeys, Packed, HashMap<Vec<u8>, _, CityHash>>("ycsb:1K", UpTo(9));
        holds_everything::<ByteKeys, SideBySide, BTreeMap<Vec<u8>, _>>("prefixes:1K", Fixed(5));
    }
}
