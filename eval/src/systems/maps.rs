//! The maps FPCache is compared with: in this process, without a memory node.
//!
//! Each gets its best shape. Values of the common sizes lie inside the map's entries, so that a lookup misses the cache
//! once; others lie side by side in one vector, without an allocation each. The hash map is given its size before it
//! is filled, the ordered map is built from sorted pairs, which packs its nodes.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::time::Instant;

use fpcache_client::Found;
use fpcache_datasets::{Dataset, write_value};
use hashbrown::HashMap;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats};

use super::{Facts, Reader, System};

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

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = cityhasher::hash(key.to_le_bytes());
    }
}

/// A map from keys to what a [`Shape`] stores.
pub trait Index<V>: Sync {
    /// As reports spell it.
    const NAME: &'static str;

    /// From ascending distinct keys.
    fn build(pairs: impl ExactSizeIterator<Item = (u64, V)>) -> Self;

    /// What is stored for `key`.
    fn find(&self, key: u64) -> Option<&V>;
}

impl<V: Sync> Index<V> for HashMap<u64, V, CityHash> {
    const NAME: &'static str = "hashmap";

    fn build(pairs: impl ExactSizeIterator<Item = (u64, V)>) -> Self {
        let mut map = HashMap::with_capacity_and_hasher(pairs.len(), CityHash);
        map.extend(pairs);
        map
    }

    #[inline]
    fn find(&self, key: u64) -> Option<&V> {
        self.get(&key)
    }
}

impl<V: Sync> Index<V> for BTreeMap<u64, V> {
    const NAME: &'static str = "btreemap";

    fn build(pairs: impl ExactSizeIterator<Item = (u64, V)>) -> Self {
        pairs.collect()
    }

    #[inline]
    fn find(&self, key: u64) -> Option<&V> {
        self.get(&key)
    }
}

/// Where a map keeps its values.
pub trait Shape: Sync {
    /// What the map's entries hold.
    type Stored: Sync;

    /// A store for `keys` values of `value_bytes` each.
    fn new(keys: usize, value_bytes: usize) -> Self;

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

    fn new(_: usize, _: usize) -> Self {
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

/// Values side by side in one vector; the entries hold where each begins.
#[derive(Debug)]
pub struct SideBySide {
    value_bytes: usize,
    values: Vec<u8>,
}

impl Shape for SideBySide {
    type Stored = usize;

    fn new(keys: usize, value_bytes: usize) -> Self {
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

/// A map of one kind and shape.
#[derive(Debug)]
pub struct Map<I, S> {
    index: I,
    shape: S,
    facts: Facts,
}

impl<S: Shape, I: Index<S::Stored>> Map<I, S> {
    /// Builds the map of a data set.
    pub fn build(dataset: &Dataset, value_bytes: usize) -> Self {
        let before = held_bytes(&INSTRUMENTED_SYSTEM.stats());
        let start = Instant::now();
        let mut shape = S::new(dataset.len(), value_bytes);
        let keys = dataset.keys().iter().enumerate();
        let index = I::build(keys.map(|(i, &key)| (key, shape.store(dataset.value(i)))));
        let build = start.elapsed();
        let process_bytes = held_bytes(&INSTRUMENTED_SYSTEM.stats()).saturating_sub(before);
        Self { index, shape, facts: Facts { build, process_bytes, ..Facts::default() } }
    }
}

/// Bytes asked of the allocator and not given back.
fn held_bytes(stats: &Stats) -> u64 {
    // What reallocations added is among the bytes allocated already.
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64
}

impl<S: Shape, I: Index<S::Stored>> System for Map<I, S> {
    type Reader<'a>
        = MapReader<'a, I, S>
    where
        Self: 'a;

    fn name(&self) -> &str {
        I::NAME
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn reader(&self) -> MapReader<'_, I, S> {
        MapReader { map: self, value: Vec::new(), values: Vec::new(), answers: Vec::new() }
    }
}

/// One thread's buffers: values are copied into them, as they are from a memory node.
#[derive(Debug)]
pub struct MapReader<'a, I, S> {
    map: &'a Map<I, S>,
    value: Vec<u8>,
    values: Vec<u8>,
    /// Of each key of the group: where its value begins and ends, if it is there.
    answers: Vec<Option<(usize, usize)>>,
}

impl<S: Shape, I: Index<S::Stored>> Reader for MapReader<'_, I, S> {
    #[inline]
    fn get(&mut self, key: u64) -> anyhow::Result<Option<&[u8]>> {
        let Some(stored) = self.map.index.find(key) else { return Ok(None) };
        self.value.clear();
        self.value.extend_from_slice(self.map.shape.bytes(stored));
        Ok(Some(&self.value))
    }

    fn get_with_cost(&mut self, key: u64) -> anyhow::Result<(Option<&[u8]>, Option<Found>)> {
        Ok((self.get(key)?, None))
    }

    #[inline]
    fn get_many(&mut self, keys: &[u64]) -> anyhow::Result<()> {
        self.values.clear();
        self.answers.clear();
        for &key in keys {
            let answer = self.map.index.find(key).map(|stored| {
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

    fn cost(&self, _: usize) -> Option<Found> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_datasets::{OpenOptions, Spec};

    fn holds_everything<S: Shape, I: Index<S::Stored>>(value_bytes: usize) {
        let spec: Spec = "uniform:1K".parse().unwrap();
        let dataset = spec.open(&OpenOptions::default()).unwrap();
        let map = Map::<I, S>::build(&dataset, value_bytes);
        let mut reader = map.reader();
        let mut expected = vec![0; value_bytes];
        for (i, &key) in dataset.keys().iter().enumerate() {
            write_value(dataset.value(i), &mut expected);
            assert_eq!(reader.get(key).unwrap(), Some(&*expected), "{} {value_bytes}", map.name());
            reader.get_many(&[key, key ^ 1, key]).unwrap();
            assert_eq!(reader.answer(0), Some(&*expected));
            assert_eq!(reader.answer(1), None);
            assert_eq!(reader.answer(2), Some(&*expected));
            assert_eq!(reader.answer(3), None);
        }
        assert_eq!(reader.get(dataset.keys()[0] ^ 1).unwrap(), None);
    }

    #[test]
    fn maps_hold_everything_in_every_shape() {
        holds_everything::<Inline<8>, HashMap<u64, _, CityHash>>(8);
        holds_everything::<Inline<64>, HashMap<u64, _, CityHash>>(64);
        holds_everything::<SideBySide, HashMap<u64, _, CityHash>>(13);
        holds_everything::<Inline<8>, BTreeMap<u64, _>>(8);
        holds_everything::<SideBySide, BTreeMap<u64, _>>(1);
    }
}
