//! Stress runs over FPCache's client.

use fpcache_client::{
    CacheConfig, Client, ClientConfig, ClientError, CompareAndSet, ErrorKind, Plan, PlanChoice, RecordToken,
};

use super::operation::Outcome;
use super::store::{Answer, Failure, Store};

/// A client as a store of numbers. A value's bytes are the number, repeated and changed with every repetition, so that
/// a mixture of two values is seen.
#[derive(Debug)]
pub struct ClientStore {
    client: Client,
    value_bytes: usize,
    buffer: Vec<u8>,
}

/// What a value whose bytes contradict each other counts as: nobody writes it.
pub const TORN: u64 = u64::MAX;

impl ClientStore {
    /// `value_bytes` is the size of the table's values, at least 8 for numbers to fit.
    pub fn new(client: Client, value_bytes: usize) -> Self {
        Self { client, value_bytes, buffer: Vec::new() }
    }

    /// The bytes of a value, for a table that is loaded before.
    pub fn encode(value: u64, value_bytes: usize, out: &mut Vec<u8>) {
        let words = (0u64..).map(|place| value.wrapping_add(place.wrapping_mul(GOLDEN)));
        out.clear();
        out.extend(words.flat_map(u64::to_le_bytes).take(value_bytes));
    }

    /// The number whose bytes these are, [`TORN`] if there is none.
    pub fn decode(bytes: &[u8]) -> u64 {
        let Some(first) = bytes.first_chunk() else { return TORN };
        let value = u64::from_le_bytes(*first);
        let mut whole = Vec::with_capacity(bytes.len());
        Self::encode(value, bytes.len(), &mut whole);
        if whole == bytes { value } else { TORN }
    }

    fn write<T>(
        &mut self,
        value: u64,
        call: impl FnOnce(&Client, &[u8]) -> Result<T, ClientError>,
    ) -> Answer<T> {
        Self::encode(value, self.value_bytes, &mut self.buffer);
        call(&self.client, &self.buffer).map(|done| (done, None)).map_err(|error| failure(&error))
    }
}

/// The golden ratio's fraction in 64 bits: far from any small pattern.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A call with wrong arguments, or one for which there is no room, did nothing; nor did one that was never sent, which is what
/// a change's error says that is not `OutcomeUnknown`. Of all others that cannot be known: a refusal may be that of a
/// repetition whose first attempt was carried out.
fn failure(error: &ClientError) -> Failure {
    use fpcache::message::ErrorCode;
    let full = matches!(error, ClientError::Refused(refusal) if refusal.code == ErrorCode::Full);
    let invalid = error.kind() == ErrorKind::Invalid && !matches!(error, ClientError::Refused(_));
    let unsent =
        matches!(error, ClientError::Fabric(_) | ClientError::Open(_) | ClientError::Deadline { .. });
    match full || invalid || unsent {
        true => Failure::Refused(error.to_string()),
        false => Failure::Unknown(error.to_string()),
    }
}

impl Store for ClientStore {
    type Token = RecordToken;

    fn get(&mut self, key: u64) -> Answer<Option<u64>> {
        let found = self.client.get_into(key, &mut self.buffer).map_err(|error| failure(&error))?;
        Ok((found.version.map(|_| Self::decode(&self.buffer)), Some(found.plan)))
    }

    fn multi_get(&mut self, keys: &[u64]) -> Answer<Vec<Option<u64>>> {
        let values = self.client.multi_get(keys).map_err(|error| failure(&error))?;
        Ok((values.iter().map(|value| value.as_deref().map(Self::decode)).collect(), None))
    }

    fn get_versioned(&mut self, key: u64) -> Answer<Option<(u64, RecordToken)>> {
        let record = self.client.get_versioned(key).map_err(|error| failure(&error))?;
        Ok((record.map(|(value, token)| (Self::decode(&value), token)), None))
    }

    fn scan(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>> {
        let mut records = Vec::with_capacity(limit as usize);
        let take = |key, value: &[u8]| records.push((key, Self::decode(value)));
        self.client.scan_with(start, limit as usize, take).map_err(|error| failure(&error))?;
        Ok((records, None))
    }

    fn insert(&mut self, key: u64, value: u64) -> Answer<bool> {
        self.write(value, |client, bytes| client.insert(key, bytes))
    }

    fn put(&mut self, key: u64, value: u64) -> Answer<()> {
        self.write(value, |client, bytes| client.put(key, bytes))
    }

    fn update(&mut self, key: u64, value: u64) -> Answer<bool> {
        self.write(value, |client, bytes| client.update(key, bytes))
    }

    fn delete(&mut self, key: u64) -> Answer<bool> {
        self.client.delete(key).map(|done| (done, None)).map_err(|error| failure(&error))
    }

    fn compare_and_set(&mut self, key: u64, token: RecordToken, value: u64) -> Answer<Outcome> {
        let (ended, plan) = self.write(value, |client, bytes| client.compare_and_set(key, token, bytes))?;
        let outcome = match ended {
            CompareAndSet::Done(_) => Outcome::Done,
            CompareAndSet::Differs(_) => Outcome::Differs,
            CompareAndSet::Absent => Outcome::Absent,
        };
        Ok((outcome, plan))
    }

    fn rebuilds(&mut self) -> Option<u64> {
        self.client.stats().ok().map(|stats| stats.rebuilds)
    }
}

/// Configurations of clients that read in every way there is, with their names: each plan without a hot cache and with
/// one of `cache_bytes`. Some violations show only between two plans, so a run should have several.
pub fn every_way(base: ClientConfig, cache_bytes: u64) -> Vec<(String, ClientConfig)> {
    let plans = [
        ("auto", PlanChoice::Auto),
        (Plan::TwoStage.name(), PlanChoice::Fixed(Plan::TwoStage)),
        (Plan::Range.name(), PlanChoice::Fixed(Plan::Range)),
        (Plan::Speculative.name(), PlanChoice::Fixed(Plan::Speculative)),
    ];
    let caches = [("", None), (", hot cache", Some(CacheConfig::of(cache_bytes)))];
    let configs = plans.iter().flat_map(|(name, plan)| {
        caches.iter().map(move |(with, cache)| {
            (format!("{name}{with}"), ClientConfig { plan: *plan, cache: *cache, ..base })
        })
    });
    configs.collect()
}
