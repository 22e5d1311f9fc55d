//! Stress runs over FPCache's client.

use std::borrow::Borrow;

use fpcache_client::{
    CacheConfig, ClientConfig, ClientError, CompareAndSet, Inserted, KeyRef, Plan, PlanChoice, Reader,
    Record, RecordToken, TableClient, TableParameters, U64Keys,
};

use super::keys::NumberedKeys;
use super::operation::Outcome;
use super::store::{Answer, Store};

/// A client as a store of numbers. Keys are those of [`NumberedKeys`]. A value's bytes are the
/// number, repeated and changed with every repetition, so that a mixture of two values is seen, and
/// so is one of another's length.
#[derive(Debug)]
pub struct ClientStore<K: NumberedKeys = U64Keys> {
    client: TableClient<K>,
    /// Reads what readers read, if there is one.
    reader: Option<Reader<K>>,
    buffer: Vec<u8>,
}

/// What a value whose bytes contradict each other counts as: no process writes it.
pub const TORN: u64 = u64::MAX;

impl<K: NumberedKeys> ClientStore<K> {
    /// Over a client of a table whose parameters are [`NumberedKeys::small_segments`], or have
    /// records of the same lengths.
    pub fn new(client: TableClient<K>) -> Self {
        Self { client, reader: None, buffer: Vec::new() }
    }

    /// The same store, which has a reader of its own read what readers read.
    #[must_use]
    pub fn with_reader(self) -> Self {
        Self { reader: Some(self.client.reader()), ..self }
    }

    /// Makes an empty table there, whose models suit such keys.
    ///
    /// # Errors
    /// The memory node holds a table already.
    pub fn create_table(client: &TableClient<K>, keys: &[u64]) -> Result<(), ClientError> {
        Self::create_table_of(client, keys, K::small_segments())
    }

    /// The same with other parameters, of records of the same lengths.
    ///
    /// # Errors
    /// As for [`create_table`](Self::create_table).
    pub fn create_table_of(
        client: &TableClient<K>,
        keys: &[u64],
        parameters: TableParameters,
    ) -> Result<(), ClientError> {
        let sample: Vec<K::Owned> = keys.iter().map(|number| K::key(*number)).collect();
        let load = client.load_like(parameters, 0, sample.iter().map(Borrow::borrow))?;
        load.finish().map(drop)
    }

    /// The bytes of a value, for a table that is loaded before.
    pub fn encode(value: u64, out: &mut Vec<u8>) {
        let words = (0u64..).map(|place| value.wrapping_add(place.wrapping_mul(GOLDEN)));
        out.clear();
        out.extend(words.flat_map(u64::to_le_bytes).take(K::value_bytes(value)));
    }

    /// The number whose bytes these are, [`TORN`] if there is none.
    pub fn decode(bytes: &[u8]) -> u64 {
        let Some(first) = bytes.first_chunk() else { return TORN };
        let value = u64::from_le_bytes(*first);
        let mut whole = Vec::with_capacity(bytes.len());
        Self::encode(value, &mut whole);
        if whole == bytes { value } else { TORN }
    }

    fn write<T>(
        &mut self,
        key: u64,
        value: u64,
        call: impl FnOnce(&TableClient<K>, KeyRef<'_, K>, &[u8]) -> Result<T, ClientError>,
    ) -> Answer<T> {
        Self::encode(value, &mut self.buffer);
        let key = K::key(key);
        let done = call(&self.client, KeyRef(key.borrow()), &self.buffer);
        Ok((done?, None))
    }
}

/// The golden ratio's fraction in 64 bits: far from any small pattern.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl<K: NumberedKeys> Store for ClientStore<K> {
    type Token = RecordToken;

    fn get(&mut self, key: u64) -> Answer<Option<u64>> {
        let key = K::key(key);
        let key = KeyRef::<K>(key.borrow());
        let found = match &mut self.reader {
            Some(reader) => reader.get_into(key, &mut self.buffer),
            None => self.client.get_into(key, &mut self.buffer),
        };
        let found = found?;
        Ok((found.version.map(|_| Self::decode(&self.buffer)), Some(found.plan)))
    }

    fn multi_get(&mut self, keys: &[u64]) -> Answer<Vec<Option<u64>>> {
        let keys: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let keys: Vec<KeyRef<'_, K>> = keys.iter().map(|key| KeyRef(key.borrow())).collect();
        let values = match &mut self.reader {
            Some(reader) => reader.multi_get(&keys),
            None => self.client.multi_get(&keys),
        };
        let values = values?;
        Ok((values.iter().map(|value| value.as_deref().map(Self::decode)).collect(), None))
    }

    fn contains(&mut self, key: u64) -> Answer<bool> {
        let key = K::key(key);
        let key = KeyRef::<K>(key.borrow());
        let is_there = match &mut self.reader {
            Some(reader) => reader.contains(key),
            None => self.client.contains(key),
        };
        Ok((is_there?, None))
    }

    fn multi_contains(&mut self, keys: &[u64]) -> Answer<Vec<bool>> {
        let keys: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let keys: Vec<KeyRef<'_, K>> = keys.iter().map(|key| KeyRef(key.borrow())).collect();
        let are_there = match &mut self.reader {
            Some(reader) => reader.multi_contains(&keys),
            None => self.client.multi_contains(&keys),
        };
        Ok((are_there?, None))
    }

    fn get_versioned(&mut self, key: u64) -> Answer<Option<(u64, RecordToken)>> {
        let key = K::key(key);
        let record = self.client.get_versioned(KeyRef::<K>(key.borrow()))?;
        Ok((record.map(|(value, token)| (Self::decode(&value), token)), None))
    }

    fn scan(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>> {
        let start = K::key(start);
        let mut records = Vec::with_capacity(limit as usize);
        let take =
            |key: K::View<'_>, value: &[u8]| records.push((K::number(key.borrow()), Self::decode(value)));
        let start = KeyRef::<K>(start.borrow());
        let scanned = match &mut self.reader {
            Some(reader) => reader.scan_with(start, limit as usize, take),
            None => self.client.scan_with(start, limit as usize, take),
        };
        scanned?;
        Ok((records, None))
    }

    fn scan_back(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>> {
        let start = K::key(start);
        let mut records = Vec::with_capacity(limit as usize);
        let take =
            |key: K::View<'_>, value: &[u8]| records.push((K::number(key.borrow()), Self::decode(value)));
        let scanned = self.client.scan_back_with(KeyRef::<K>(start.borrow()), limit as usize, take);
        scanned?;
        Ok((records, None))
    }

    fn count(&mut self, start: u64, end: u64) -> Answer<u64> {
        let (start, end) = (K::key(start), K::key(end));
        let counted = self.client.count(KeyRef::<K>(start.borrow()), KeyRef::<K>(end.borrow()));
        Ok((counted?, None))
    }

    fn nearest(&mut self, keys: &[u64], below: bool) -> Answer<Vec<Option<(u64, u64)>>> {
        let owned: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let named: Vec<KeyRef<'_, K>> = owned.iter().map(|key| KeyRef(key.borrow())).collect();
        macro_rules! by {
            ($reader:expr) => {
                match (keys, &named[..]) {
                    ([u64::MAX], _) if below => vec![$reader.last()?],
                    ([0], _) if !below => vec![$reader.first()?],
                    (_, [key]) if below => vec![$reader.floor(*key)?],
                    (_, [key]) => vec![$reader.ceiling(*key)?],
                    (_, keys) if below => $reader.multi_floor(keys)?,
                    (_, keys) => $reader.multi_ceiling(keys)?,
                }
            };
        }
        let found = match &mut self.reader {
            Some(reader) => by!(reader),
            None => by!(self.client),
        };
        Ok((found.into_iter().map(|record| record.map(numbers::<K>)).collect(), None))
    }

    fn insert(&mut self, key: u64, value: u64) -> Answer<bool> {
        self.write(key, value, |client, key, bytes| client.insert(key, bytes).map(Inserted::is_new))
    }

    fn put(&mut self, key: u64, value: u64) -> Answer<()> {
        self.write(key, value, |client, key, bytes| client.put(key, bytes))
    }

    fn update(&mut self, key: u64, value: u64) -> Answer<bool> {
        self.write(key, value, |client, key, bytes| client.update(key, bytes))
    }

    fn delete(&mut self, key: u64) -> Answer<bool> {
        let key = K::key(key);
        let done = self.client.delete(KeyRef::<K>(key.borrow()));
        Ok((done?, None))
    }

    fn compare_and_set(&mut self, key: u64, token: RecordToken, value: u64) -> Answer<Outcome> {
        let (ended, plan) =
            self.write(key, value, |client, key, bytes| client.compare_and_set(key, token, bytes))?;
        Ok((outcome_of(&ended), plan))
    }

    fn rebuilds(&mut self) -> Option<u64> {
        self.client.stats().ok().map(|stats| stats.rebuilds)
    }
}

/// How a change of a record that was read has ended.
pub(super) fn outcome_of(ended: &CompareAndSet) -> Outcome {
    match ended {
        CompareAndSet::Done(_) => Outcome::Done,
        CompareAndSet::Differs(_) => Outcome::Differs,
        CompareAndSet::Absent => Outcome::Absent,
    }
}

/// A record's key and value as numbers.
pub(super) fn numbers<K: NumberedKeys>((key, value): Record<K>) -> (u64, u64) {
    (K::number(key.borrow()), ClientStore::<K>::decode(&value))
}

/// Configurations of clients that read in every way there is, with their names: each plan without a
/// hot cache and with one of `cache_bytes`. Some violations show only between two plans, so a run
/// should have several.
pub fn every_way(base: ClientConfig, cache_bytes: u64) -> Vec<(String, ClientConfig)> {
    let plans = [
        ("auto", PlanChoice::Auto),
        (Plan::TwoStage.name(), PlanChoice::Fixed(Plan::TwoStage)),
        (Plan::Range.name(), PlanChoice::Fixed(Plan::Range)),
        (Plan::Speculative.name(), PlanChoice::Fixed(Plan::Speculative)),
    ];
    with_and_without_cache(base, &plans, cache_bytes)
}

/// As [`every_way`], and then those that there are over sockets alone.
pub fn every_way_over_sockets(base: ClientConfig, cache_bytes: u64) -> Vec<(String, ClientConfig)> {
    let at_node = [(Plan::AtNode.name(), PlanChoice::Fixed(Plan::AtNode))];
    let mut ways = every_way(base.clone(), cache_bytes);
    ways.extend(with_and_without_cache(base, &at_node, cache_bytes));
    ways
}

fn with_and_without_cache(
    base: ClientConfig,
    plans: &[(&str, PlanChoice)],
    cache_bytes: u64,
) -> Vec<(String, ClientConfig)> {
    let caches = [("", None), (", hot cache", Some(CacheConfig::of(cache_bytes)))];
    let configs = plans.iter().flat_map(|(name, plan)| {
        let base = base.clone().with_plan(*plan);
        caches.iter().map(move |(with, cache)| (format!("{name}{with}"), base.clone().with_cache(*cache)))
    });
    configs.collect()
}
