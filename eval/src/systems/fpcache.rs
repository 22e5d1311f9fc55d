//! FPCache: keys in a memory node, over shared memory or inside this process.

use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::{Answers, CacheStats, Client, ClientConfig, Found, TableParameters};
use fpcache_datasets::{Dataset, Progress, write_value};

use super::{Facts, Reader, System};
use crate::progress::Bar;

/// How long a single request of a load may take: others may want the memory node's core.
const LOAD_DEADLINE: Duration = Duration::from_secs(60);
/// Keys between two reports of progress.
const STEP: usize = 1 << 17;

/// A client of a memory node that holds the data set.
#[derive(Debug)]
pub struct FpCache {
    client: Client,
    name: &'static str,
    facts: Facts,
}

/// Loads a data set into the client's memory node, and says how long that took.
pub fn load(
    client: &Client,
    dataset: &Dataset,
    parameters: TableParameters,
    bar: &Bar,
) -> anyhow::Result<Duration> {
    let value = |i: usize, out: &mut [u8]| write_value(dataset.value(i), out);
    load_keys(client, dataset.keys(), value, parameters, bar)
        .with_context(|| format!("loading {} into the memory node {}", dataset.name(), client.name()))
}

/// Loads ascending keys into the client's memory node, `write` filling in the value of the key at an index, and says
/// how long that took.
pub fn load_keys(
    client: &Client,
    keys: &[u64],
    write: impl Fn(usize, &mut [u8]),
    parameters: TableParameters,
    bar: &Bar,
) -> anyhow::Result<Duration> {
    let client = client.with_deadline(LOAD_DEADLINE);
    let start = Instant::now();
    bar.during("loading the memory node", keys.len() as u64, || -> anyhow::Result<()> {
        let mut value = vec![0; parameters.value_bytes as usize];
        let mut load = client.load(parameters, keys.len() as u64)?;
        for (i, &key) in keys.iter().enumerate() {
            write(i, &mut value);
            load.push(key, &value)?;
            if i % STEP == 0 {
                bar.advance(i as u64);
            }
        }
        load.finish()?;
        Ok(())
    })?;
    Ok(start.elapsed())
}

impl FpCache {
    /// Fetches the directory of a memory node that holds a table; `load` is how long loading took, if it was loaded
    /// here. `name` is what reports call it, `config` what the client was made with.
    pub fn open(
        client: Client,
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
            table: Some(table.record.parameters),
            plan: Some(config.plan),
            cache: config.cache,
            segments: Some(table.record.segments),
            memory_node_bytes: Some(node.used_bytes),
            model_bytes: Some(table.model_bytes),
            process_bytes: table.model_bytes,
        };
        Ok(Self { client, name, facts })
    }
}

impl System for FpCache {
    type Reader<'a> = FpCacheReader<'a>;

    fn name(&self) -> &str {
        self.name
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn reader(&self) -> FpCacheReader<'_> {
        FpCacheReader { client: &self.client, value: Vec::new(), answers: Answers::new() }
    }

    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>> {
        Ok(self.client.cache_stats()?)
    }

    fn clear_cache(&self) {
        self.client.clear_cache();
    }
}

/// One thread's buffers.
#[derive(Debug)]
pub struct FpCacheReader<'a> {
    client: &'a Client,
    value: Vec<u8>,
    answers: Answers,
}

impl Reader for FpCacheReader<'_> {
    #[inline]
    fn get(&mut self, key: u64) -> anyhow::Result<Option<&[u8]>> {
        let found = self.client.get_into(key, &mut self.value)?;
        Ok(found.version.map(|_| &*self.value))
    }

    fn get_with_cost(&mut self, key: u64) -> anyhow::Result<(Option<&[u8]>, Option<Found>)> {
        let found = self.client.get_into(key, &mut self.value)?;
        Ok((found.version.map(|_| &*self.value), Some(found)))
    }

    #[inline]
    fn get_many(&mut self, keys: &[u64]) -> anyhow::Result<()> {
        Ok(self.client.multi_get_into(keys, &mut self.answers)?)
    }

    #[inline]
    fn answer(&self, index: usize) -> Option<&[u8]> {
        self.answers.value(index)
    }

    fn cost(&self, index: usize) -> Option<Found> {
        self.answers.found(index)
    }
}
