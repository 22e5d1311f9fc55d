//! FPCache: keys in a memory node, over shared memory or inside this process.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::{
    Answers, CacheStats, ClientConfig, ClientError, Found, KeyRef, Reader as OwnReader, TableClient,
    TableParameters,
};
use fpcache_datasets::{Bar, KeySet, Progress};

use super::server::cpu_time_of;
use super::{Facts, Reader, System, SystemName};
use crate::data::{DataKeys, DataSet};
use crate::run::values::ValueBytes;

/// How long a single request of a load may take: others may want the memory node's core.
const LOAD_DEADLINE: Duration = Duration::from_secs(60);
/// Keys between two reports of progress.
const STEP: usize = 1 << 17;
/// Keys that a table's models are fitted to, from all over the data.
const SAMPLE: usize = 50_000;

/// A client of a memory node that holds the data set.
#[derive(Debug)]
pub struct FpCache<K: DataKeys> {
    client: TableClient<K>,
    name: &'static str,
    facts: Facts,
    /// The memory nodes' processes, where this program started them.
    memory_nodes: Vec<u32>,
}

/// Records to load, in ascending order of their keys.
pub trait Records<K: DataKeys> {
    /// How many there are.
    fn len(&self) -> usize;

    /// The key of the `i`-th one, which is written into `buffer` if it does not lie in memory.
    fn key<'a>(&'a self, i: usize, buffer: &'a mut Vec<u8>) -> K::View<'a>;

    /// Puts its value into `value`, which is empty.
    fn write(&self, i: usize, value: &mut Vec<u8>);
}

/// All keys of a data set.
struct Whole<'a, K: DataKeys> {
    set: &'a K::Set,
    values: ValueBytes,
}

impl<K: DataKeys> Records<K> for Whole<'_, K> {
    fn len(&self) -> usize {
        self.set.len()
    }

    #[inline]
    fn key<'a>(&'a self, i: usize, buffer: &'a mut Vec<u8>) -> K::View<'a> {
        self.set.key(i, buffer)
    }

    #[inline]
    fn write(&self, i: usize, value: &mut Vec<u8>) {
        self.values.append(self.set.value(i), value);
    }
}

/// Loads a data set into the client's memory node, and says how long that took.
pub fn load<K: DataKeys>(
    client: &TableClient<K>,
    set: &K::Set,
    values: ValueBytes,
    parameters: TableParameters,
    bar: &Bar,
) -> anyhow::Result<Duration> {
    load_records(client, &Whole { set, values }, parameters, bar)
        .with_context(|| format!("loading {} into the memory node {}", set.name(), client.name()))
}

/// Loads records into the client's memory node, and says how long that took, with what fitting
/// models to a sample of the keys takes.
pub fn load_records<K: DataKeys>(
    client: &TableClient<K>,
    records: &impl Records<K>,
    parameters: TableParameters,
    bar: &Bar,
) -> anyhow::Result<Duration> {
    let client = client.with_deadline(LOAD_DEADLINE);
    let start = Instant::now();
    let count = records.len();
    bar.during("loading the memory node", count as u64, || -> anyhow::Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let sample: Vec<K::Owned> = (0..count.min(SAMPLE))
            .map(|i| {
                records
                    .key((i as u128 * count as u128 / count.min(SAMPLE) as u128) as usize, &mut key)
                    .borrow()
                    .to_owned()
            })
            .collect();
        let mut load = client.load_like(parameters, count as u64, sample.iter().map(Borrow::borrow))?;
        drop(sample);
        for i in 0..count {
            value.clear();
            records.write(i, &mut value);
            load.push(KeyRef::<K>(records.key(i, &mut key).borrow()), &value)?;
            if i % STEP == 0 {
                bar.advance(i as u64);
            }
        }
        load.finish()?;
        Ok(())
    })?;
    Ok(start.elapsed())
}

impl<K: DataKeys> FpCache<K> {
    /// Fetches the directory of a memory node that holds a table; `load` is how long loading took,
    /// if it was loaded here. `name` is what reports call it, `config` what the client was made
    /// with.
    pub fn open(
        client: TableClient<K>,
        name: &'static str,
        config: &ClientConfig,
        load: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        let table = client.table().with_context(|| format!("opening the memory node {}", client.name()))?;
        let build = start.elapsed();
        let node = client.stats()?;
        let facts = Facts {
            load,
            build,
            transport: None,
            table: Some(table.record.parameters),
            plan: Some(config.plan),
            cache: config.cache,
            segments: Some(table.record.segments),
            memory_node_bytes: Some(node.used_bytes),
            model_bytes: Some(table.model_bytes),
            process_bytes: table.model_bytes + table.group_bytes,
        };
        Ok(Self { client, name, facts, memory_nodes: Vec::new() })
    }
}

impl<K: DataKeys> FpCache<K> {
    /// The same, whose memory nodes are these processes.
    #[must_use]
    pub fn served_by(self, process_ids: Vec<u32>) -> Self {
        Self { memory_nodes: process_ids, ..self }
    }

    /// The same, asked without readers.
    pub fn by_client(self) -> ByClient<K> {
        ByClient(Self { name: SystemName::FpcacheClient.as_str(), ..self })
    }
}

impl<K: DataKeys> System for FpCache<K> {
    type Keys = K;
    type Reader<'a> = Looking<K, OwnReader<K>>;

    fn name(&self) -> &str {
        self.name
    }

    fn facts(&self) -> Facts {
        // Tables of groups come as lookups need them.
        let now = self.client.table().map(|table| table.model_bytes + table.group_bytes);
        Facts { process_bytes: now.unwrap_or(self.facts.process_bytes), ..self.facts }
    }

    fn reader(&self) -> Self::Reader<'_> {
        Looking::by(self.client.reader())
    }

    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>> {
        Ok(self.client.cache_stats()?)
    }

    fn clear_cache(&self) {
        self.client.clear_cache();
    }

    fn server_cpu(&self) -> Option<Duration> {
        cpu_time_of(&self.memory_nodes)
    }
}

/// [`FpCache`], looked up in by the client that all threads share.
#[derive(Debug)]
pub struct ByClient<K: DataKeys>(FpCache<K>);

impl<K: DataKeys> System for ByClient<K> {
    type Keys = K;
    type Reader<'a> = Looking<K, &'a TableClient<K>>;

    fn name(&self) -> &str {
        self.0.name
    }

    fn facts(&self) -> Facts {
        System::facts(&self.0)
    }

    fn reader(&self) -> Self::Reader<'_> {
        Looking::by(&self.0.client)
    }

    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>> {
        System::cache_stats(&self.0)
    }

    fn clear_cache(&self) {
        System::clear_cache(&self.0);
    }
}

/// What answers: a thread's own reader, or the client that all threads share.
pub trait Asked<K: DataKeys> {
    /// As [`Client::get_with`], which tells nothing of what it cost.
    fn get_with(&mut self, key: KeyRef<'_, K>, take: impl FnOnce(&[u8])) -> Result<Option<()>, ClientError>;

    /// As [`Client::get_into`].
    fn get_into(&mut self, key: KeyRef<'_, K>, value: &mut Vec<u8>) -> Result<Found, ClientError>;

    /// As [`Client::multi_get_into`].
    fn multi_get(&mut self, keys: &[K::View<'_>], answers: &mut Answers) -> Result<(), ClientError>;
}

/// Answers by the methods of this name that a type has itself.
macro_rules! asked {
    ($asked:ty, $methods:ident) => {
        impl<K: DataKeys> Asked<K> for $asked {
            #[inline]
            fn get_with(
                &mut self,
                key: KeyRef<'_, K>,
                take: impl FnOnce(&[u8]),
            ) -> Result<Option<()>, ClientError> {
                $methods::get_with(self, key, take)
            }

            #[inline]
            fn get_into(&mut self, key: KeyRef<'_, K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
                $methods::get_into(self, key, value)
            }

            #[inline]
            fn multi_get(&mut self, keys: &[K::View<'_>], answers: &mut Answers) -> Result<(), ClientError> {
                $methods::multi_get_into(self, K::as_keys(keys), answers)
            }
        }
    };
}

asked!(OwnReader<K>, OwnReader);
asked!(&TableClient<K>, TableClient);

/// One thread's buffers, and what it asks.
#[derive(Debug)]
pub struct Looking<K, A> {
    asked: A,
    value: Vec<u8>,
    answers: Answers,
    _keys: PhantomData<K>,
}

impl<K, A> Looking<K, A> {
    fn by(asked: A) -> Self {
        Self { asked, value: Vec::new(), answers: Answers::new(), _keys: PhantomData }
    }
}

impl<K: DataKeys, A: Asked<K>> Reader<K> for Looking<K, A> {
    #[inline]
    fn get(&mut self, key: K::View<'_>) -> anyhow::Result<Option<&[u8]>> {
        let value = &mut self.value;
        let copy = |found: &[u8]| {
            value.clear();
            value.extend_from_slice(found);
        };
        let found = self.asked.get_with(KeyRef::<K>(key.borrow()), copy)?;
        Ok(found.map(|()| &*self.value))
    }

    fn get_with_cost(&mut self, key: K::View<'_>) -> anyhow::Result<(Option<&[u8]>, Option<Found>)> {
        let found = self.asked.get_into(KeyRef::<K>(key.borrow()), &mut self.value)?;
        Ok((found.version.map(|_| &*self.value), Some(found)))
    }

    #[inline]
    fn get_many(&mut self, keys: &[K::View<'_>]) -> anyhow::Result<()> {
        Ok(self.asked.multi_get(keys, &mut self.answers)?)
    }

    #[inline]
    fn answer(&self, index: usize) -> Option<&[u8]> {
        self.answers.value(index)
    }

    fn cost(&self, index: usize) -> Option<Found> {
        self.answers.found(index)
    }
}
