//! FPCache used by tasks: each looks up one key at a time, all on one thread.

use std::borrow::Borrow;
use std::hint::black_box;
use std::time::Instant;

use anyhow::Context;
use fpcache_client::{AsyncTableClient, CacheStats, KeyRef, TableClient};
use fpcache_datasets::Bar;
use hdrhistogram::Histogram;
use stats_alloc::INSTRUMENTED_SYSTEM;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::server::cpu_time_of;
use super::{Facts, Reader, System};
use crate::data::DataKeys;
use crate::run::measure::{Measurable, Pass, new_histogram, process_cpu};
use crate::run::threads::warm_up;
use crate::run::timeline::TimelinePoint;
use crate::run::verify::Verified;
use crate::run::workload::Workload;

/// A client of a memory node for the tasks of a runtime that has one thread. The keys of a call of
/// a [`Workload`] are tasks.
pub struct Tasks<K: DataKeys> {
    asked: Together<K>,
    /// The memory nodes' processes.
    memory_nodes: Vec<u32>,
}

impl<K: DataKeys> Tasks<K> {
    /// Tasks that share this client, whose memory nodes are these processes.
    ///
    /// # Errors
    /// If a runtime cannot be had.
    pub fn of(client: TableClient<K>, memory_nodes: Vec<u32>) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("making a runtime")?;
        let client = {
            let _inside = runtime.enter();
            AsyncTableClient::of(client)
        };
        Ok(Self { asked: Together { runtime, client }, memory_nodes })
    }

    /// Runs as many tasks as a call has keys, which share the lookups out, after a warm-up: what
    /// that took without making the tasks' keys, and what each made of its part.
    fn in_tasks<R: Send + 'static, F: Future<Output = anyhow::Result<R>> + Send + 'static>(
        &self,
        workload: &Workload<'_, '_, K>,
        task: impl Fn(AsyncTableClient<K>, Vec<K::Owned>) -> F,
    ) -> anyhow::Result<(Pass, Vec<R>)> {
        let keys = workload.lookups.keys;
        let part = keys.len().div_ceil(workload.batch).max(1);
        let owned =
            |keys: &[K::View<'_>]| keys.iter().map(|key| Borrow::<K::Key>::borrow(key).to_owned()).collect();
        let parts: Vec<Vec<K::Owned>> = keys.chunks(part).map(owned).collect();
        warm_up(&mut self.asked.reader(), workload, &[keys])?;
        let Together { runtime, client } = &self.asked;
        runtime.block_on(async {
            let (server, process) = (cpu_time_of(&self.memory_nodes), process_cpu());
            let allocations = INSTRUMENTED_SYSTEM.stats().allocations;
            let start = Instant::now();
            let mut tasks = JoinSet::new();
            for keys in parts {
                tasks.spawn(task(client.clone(), keys));
            }
            let made: anyhow::Result<Vec<R>> = tasks.join_all().await.into_iter().collect();
            let elapsed = start.elapsed();
            let allocations = (INSTRUMENTED_SYSTEM.stats().allocations - allocations) as u64;
            let client_cpu = process_cpu().saturating_sub(process);
            let server_cpu = cpu_time_of(&self.memory_nodes).zip(server);
            let server_cpu = server_cpu.map(|(after, before)| after.saturating_sub(before));
            Ok((Pass { elapsed, allocations, hits: None, client_cpu, server_cpu }, made?))
        })
    }
}

impl<K: DataKeys> Measurable<K> for Tasks<K> {
    fn name(&self) -> &str {
        System::name(&self.asked)
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>> {
        Ok(None)
    }

    fn verify(&self, workload: &Workload<'_, '_, K>, bar: &Bar) -> anyhow::Result<Verified> {
        self.asked.verify(workload, bar)
    }

    fn throughput(&self, workload: &Workload<'_, '_, K>) -> anyhow::Result<Pass> {
        let (pass, _) = self.in_tasks(workload, |client, keys| async move {
            for key in &keys {
                black_box(client.get(KeyRef::<K>(key.borrow())).await?);
            }
            // To be freed after the pass.
            Ok(keys)
        })?;
        Ok(pass)
    }

    fn latency(&self, workload: &Workload<'_, '_, K>) -> anyhow::Result<Histogram<u64>> {
        let (_, parts) = self.in_tasks(workload, |client, keys| async move {
            let mut histogram = new_histogram()?;
            for key in keys {
                let start = Instant::now();
                black_box(client.get(KeyRef::<K>(key.borrow())).await?);
                histogram.saturating_record((start.elapsed().as_nanos() as u64).max(1));
            }
            Ok(histogram)
        })?;
        let mut all = new_histogram()?;
        for part in &parts {
            all.add(part)?;
        }
        Ok(all)
    }

    fn timeline(&self, _: &Workload<'_, '_, K>) -> anyhow::Result<Vec<TimelinePoint>> {
        anyhow::bail!("tasks are not timed point by point")
    }
}

/// A group of keys looked up by a call each, awaited together: for answers to be compared.
struct Together<K: DataKeys> {
    runtime: Runtime,
    client: AsyncTableClient<K>,
}

struct Answers<'a, K: DataKeys> {
    of: &'a Together<K>,
    values: Vec<Option<Vec<u8>>>,
}

impl<K: DataKeys> System for Together<K> {
    type Keys = K;
    type Reader<'a> = Answers<'a, K>;

    fn name(&self) -> &str {
        "fpcache, tasks"
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn reader(&self) -> Self::Reader<'_> {
        Answers { of: self, values: Vec::new() }
    }
}

impl<K: DataKeys> Reader<K> for Answers<'_, K> {
    fn get(&mut self, key: K::View<'_>) -> anyhow::Result<Option<&[u8]>> {
        self.get_many(&[key])?;
        Ok(self.answer(0))
    }

    fn get_many(&mut self, keys: &[K::View<'_>]) -> anyhow::Result<()> {
        let Together { runtime, client } = self.of;
        let owned = keys.iter().map(|key| Borrow::<K::Key>::borrow(key).to_owned());
        let calls: Vec<_> = owned
            .map(|key| {
                let client = client.clone();
                runtime.spawn(async move { client.get(KeyRef::<K>(key.borrow())).await })
            })
            .collect();
        self.values.clear();
        runtime.block_on(async {
            for call in calls {
                self.values.push(call.await.context("a task")??);
            }
            Ok(())
        })
    }

    fn answer(&self, index: usize) -> Option<&[u8]> {
        self.values.get(index)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::values::ValueBytes;
    use crate::run::workload::Lookups;
    use fpcache_client::{ByteKeys, ClientConfig};
    use fpcache_datasets::OpenOptions;

    #[test]
    fn making_keys_for_the_tasks_is_not_in_their_pass() {
        let dataset = ByteKeys::open(&"domains:1K".parse().unwrap(), &OpenOptions::default()).unwrap();
        let keys: Vec<&[u8]> = vec![b"example.org"; 100_000];
        let workload = Workload::<'_, '_, ByteKeys> {
            dataset: &dataset,
            lookups: Lookups { keys: &keys, expected: &[] },
            values: ValueBytes::Fixed(8),
            batch: 32,
            threads: 1,
            stretch: None,
            warm_up: None,
            cold: true,
        };
        let client = TableClient::embedded_with(16 << 20, ClientConfig::default()).unwrap();
        let tasks = Tasks::<ByteKeys>::of(client, Vec::new()).unwrap();
        // Other tests of this process allocate meanwhile.
        let allocations =
            (0..20).map(|_| tasks.in_tasks(&workload, |_, keys| async { Ok(keys) }).unwrap().0.allocations);
        let least = allocations.min().unwrap_or(u64::MAX);
        assert!(least < 50_000, "{least} of 100,000 lookups");
    }
}
