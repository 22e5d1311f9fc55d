//! Processor time of changes: prepared requests, given to a memory node in this process by one
//! thread.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::layout::{GroupChoice, RecordToken};
use fpcache::message::{Sent, WriteBatch, WriteKind, WriteOperation, WriteReply, WriteStatus, decode_reply};
use fpcache::read::cache_probe;
use fpcache::table_view::TableView;
use fpcache_datasets::count::human;
use fpcache_datasets::requests::{Growth, InsertOrder, Mix, OperationKind, Operations, Workload};
use fpcache_datasets::{Bar, Dataset};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{ClientId, Connection, Handled, HugePages, Service, SharedMemory, Waker, Work};
use fpcache_memserver::durability::FileDisk;
use fpcache_memserver::store::{self, Background, Memories, Startup};
use fpcache_memserver::{DurableConfig, MemoryNode};
use serde::Serialize;

use super::options::GrowthArgs;
use crate::data::KeyLengths;
use crate::leftovers::TemporaryFolder;
use crate::machine::Calibration;
use crate::run::report::{bytes_per_key, none, rate};
use crate::table::new_table;
use crate::ycsb::bench::with_room;
use crate::ycsb::node_counts::milliseconds;
use crate::ycsb::value;

/// Figures of one core of a memory node.
#[derive(Clone, Debug, Serialize)]
pub struct DirectRow {
    /// The data set as asked for.
    pub dataset: String,
    /// published, stand-in, shipped, file or generated.
    pub dataset_source: String,
    /// The order of the inserts.
    pub order: &'static str,
    /// Keys loaded.
    pub loaded: u64,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// The form of groups that records are stored in; null without groups.
    pub groups: Option<String>,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u32,
    /// Share of slots that hold a record after the load.
    pub fill: f64,
    /// Half-width of windows, in slots.
    pub epsilon: u32,
    /// Changes per request.
    pub batch: u32,
    /// When changes reached the disk; null if there was no log. Requests come one after the other:
    /// with `always` each waits for a sync of its own.
    pub fsync: Option<String>,
    /// Updates of a pass.
    pub updates: u64,
    /// Distribution of the updates.
    pub dist: String,
    /// Updates per second whose slot the request names: the fastest pass.
    pub updates_per_s: f64,
    /// Updates per second without such hints: the fastest pass.
    pub updates_per_s_unhinted: f64,
    /// Inserts.
    pub inserts: u64,
    /// Inserts per second.
    pub inserts_per_s: f64,
    /// Records copied by rebuilds per insert.
    pub copies_per_insert: Option<f64>,
    /// Segments replaced by segments.
    pub rebuilds: u64,
    /// Milliseconds of the longest rebuild.
    pub rebuild_ms_max: f64,
    /// Milliseconds that 99 of 100 rebuilds did not exceed.
    pub rebuild_ms_p99: f64,
    /// Inserts that waited for a rebuild because their window was full.
    pub window_full_waits: u64,
    /// Bytes at the memory node per key in the end.
    pub bytes_per_key: f64,
    /// Seed of data, updates and inserts.
    pub seed: u64,
    /// Its memory during the run.
    pub calibration: Calibration,
}

/// The client that the requests are said to come from.
const CLIENT: ClientId = ClientId(1);

/// A memory node that requests are handed to.
struct Direct {
    region: Arc<SharedMemory>,
    node: MemoryNode<U64Keys>,
    value_bytes: u32,
    batch: usize,
    /// Requests made so far, over all lists.
    requests: u64,
    /// Sequence number of the last value.
    sequence: u64,
    /// Where its data lie, if it keeps them: removed after it.
    _folder: Option<TemporaryFolder>,
}

/// Measures updates of random keys, with and without hints, and then the inserts.
///
/// # Errors
/// If the memory cannot be had, or the memory node refuses a change.
pub fn measure(
    arguments: &GrowthArgs,
    dataset: &Dataset,
    order: InsertOrder,
    growth: &Growth,
    calibration: Calibration,
    bar: &Bar,
) -> anyhow::Result<DirectRow> {
    let run = &arguments.run;
    let mut direct = Direct::load(arguments, dataset, growth, bar)?;
    let updates = Workload {
        distribution: run.distribution,
        ..Workload::custom(Mix::new(&[(OperationKind::Update, 1.0)]))
    };
    let count = run.lookups as usize;
    let operations = Operations::generate(&growth.loaded, &updates, count, run.seed, 0);
    let keys: Vec<u64> =
        operations.play(&growth.loaded, &[], 0).take(count).map(|operation| operation.key()).collect();
    let hints = bar.during("finding every key's slot", 1, || direct.hints(&keys))?;
    let none: Vec<Option<u16>> = vec![None; keys.len()];
    let (mut hinted, mut unhinted) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..run.rounds {
        for (hints, best) in [(&hints, &mut hinted), (&none, &mut unhinted)] {
            let requests = direct.requests(WriteKind::Update, &keys, hints);
            let time = bar.during("updating", 1, || direct.hand_over(&requests))?;
            *best = best.min(time.as_secs_f64());
        }
    }
    let before = direct.node.stats();
    let inserts = &growth.inserts;
    let requests = direct.requests(WriteKind::Insert, inserts, &vec![None; inserts.len()]);
    let time = bar.during("inserting", 1, || direct.hand_over(&requests))?.as_secs_f64();
    let node = direct.node.stats();
    let made = node.inserts.saturating_sub(before.inserts);
    let table = run.table(&every_key());
    Ok(DirectRow {
        dataset: dataset.name().to_owned(),
        dataset_source: dataset.source().to_owned(),
        order: order.name(),
        loaded: growth.loaded.len() as u64,
        value_bytes: run.value_bytes.most(),
        groups: table.groups.map(|grouping| GroupChoice::from(grouping).to_string()),
        fingerprint_bits: table.fingerprint_bits(),
        fill: run.fill(),
        epsilon: run.epsilon,
        batch: arguments.insert_batch,
        fsync: run.store.reported(),
        updates: keys.len() as u64,
        dist: run.distribution.to_string(),
        updates_per_s: keys.len() as f64 / hinted,
        updates_per_s_unhinted: keys.len() as f64 / unhinted,
        inserts: inserts.len() as u64,
        inserts_per_s: inserts.len() as f64 / time,
        copies_per_insert: (made > 0).then(|| node.copies.saturating_sub(before.copies) as f64 / made as f64),
        rebuilds: node.rebuilds.saturating_sub(before.rebuilds),
        rebuild_ms_max: milliseconds(node.rebuild_ns_max),
        rebuild_ms_p99: milliseconds(node.rebuild_ns_p99),
        window_full_waits: node.window_full_waits.saturating_sub(before.window_full_waits),
        bytes_per_key: node.used_bytes as f64 / node.keys.max(1) as f64,
        seed: run.seed,
        calibration,
    })
}

/// The lengths of integers.
fn every_key() -> KeyLengths {
    KeyLengths::every(size_of::<u64>())
}

impl Direct {
    fn load(arguments: &GrowthArgs, dataset: &Dataset, growth: &Growth, bar: &Bar) -> anyhow::Result<Self> {
        let total = (growth.loaded.len() + growth.inserts.len()) as u64;
        let run = with_room::<U64Keys>(&arguments.run, dataset, total);
        let capacity = run.capacity.and_then(|bytes| usize::try_from(bytes).ok());
        let capacity = capacity.context("--capacity exceeds this machine's memory")?;
        let store = run.store.of_node(0);
        let folder = store.store_dir.clone().map(TemporaryFolder::new);
        let mut node = match store.durable(None) {
            None => {
                let region = Arc::new(SharedMemory::anonymous_with(capacity, HugePages::IfAvailable)?);
                // Touched before: the kernel's zeroing of huge pages, milliseconds at a time, is
                // not what is measured.
                region.fill_words(0, capacity / 8, 0)?;
                MemoryNode::new(region, 1, 0, Instant::now())?
            }
            Some(durable) => with_log(&durable, capacity)?,
        };
        let region = Arc::clone(node.region());
        let keys = &growth.loaded;
        let write = |i: usize, out: &mut [u8]| value::write(keys[i], 0, out);
        let loaded = bar.during("loading the memory node", 1, || {
            node.load(run.table(&every_key()), keys.iter().copied(), write)
        });
        loaded.map_err(|refusal| anyhow!(refusal.to_string()))?;
        node.connected(CLIENT, &[]);
        let (value_bytes, batch) = (run.value_bytes.most(), arguments.insert_batch as usize);
        Ok(Self { region, node, value_bytes, batch, requests: 0, sequence: 0, _folder: folder })
    }

    /// The slot in which each key lies, as a client would know it.
    fn hints(&self, keys: &[u64]) -> anyhow::Result<Vec<Option<u16>>> {
        /// A slot's word is in front of its key.
        const KEY_OFFSET: u64 = 8;
        // Its clients are disconnected when it goes.
        let hub = Hub::new(Arc::clone(&self.region), LocalOptions::default())?;
        let connection = hub.connect()?;
        let view = TableView::<U64Keys>::open(&mut connection.endpoint())?;
        let mut encoded = [0; size_of::<u64>()];
        let mut found = encoded;
        let mut hints = Vec::with_capacity(keys.len());
        for key in keys {
            let probe = cache_probe(&view, key).context("the models of a key are not here")?;
            U64Keys::encode(key, &mut encoded);
            let mut hint = None;
            for slot in probe.window.first..=probe.window.last {
                let offset = probe.slots + u64::from(slot) * u64::from(probe.slot_bytes) + KEY_OFFSET;
                self.region.read_bytes(offset, &mut found)?;
                if found == encoded {
                    hint = u16::try_from(slot).ok();
                    break;
                }
            }
            hints.push(hint);
        }
        Ok(hints)
    }

    /// Requests that change these keys, encoded.
    fn requests(&mut self, kind: WriteKind, keys: &[u64], hints: &[Option<u16>]) -> Vec<Vec<u8>> {
        let mut batch = WriteBatch::default();
        let mut value = vec![0; self.value_bytes as usize];
        let mut requests = Vec::with_capacity(keys.len().div_ceil(self.batch));
        for (keys, hints) in keys.chunks(self.batch).zip(hints.chunks(self.batch)) {
            batch.clear();
            for (&key, &hint) in keys.iter().zip(hints) {
                self.sequence += 1;
                value::write(key, self.sequence, &mut value);
                let expected = RecordToken::default();
                batch.push::<U64Keys>(&WriteOperation {
                    kind,
                    key,
                    hint,
                    expected,
                    value: Sent::Here(&value),
                });
            }
            self.requests += 1;
            let mut request = Vec::new();
            batch.request(1, self.requests, false).encode::<U64Keys>(0, &mut request);
            requests.push(request);
        }
        requests
    }

    /// Hands the requests over, and says how long that took; the replies are looked at in that
    /// time, too.
    fn hand_over(&mut self, requests: &[Vec<u8>]) -> anyhow::Result<Duration> {
        let mut reply = Vec::new();
        let start = Instant::now();
        for request in requests {
            reply.clear();
            let handled = self.node.handle(CLIENT, request, &mut reply);
            // As its serving loop does; the next call goes on with what is left.
            let mut work = self.node.work();
            while handled == Handled::Later && self.node.next_reply(&mut reply).is_none() {
                if work != Work::More {
                    thread::yield_now();
                }
                work = self.node.work();
            }
            let body = decode_reply(&reply).map_err(|refusal| anyhow!(refusal.to_string()))?;
            for reply in body.chunks(WriteReply::BYTES) {
                let status = WriteReply::decode(reply).map(|reply| reply.status);
                ensure!(
                    status == Some(WriteStatus::Done),
                    "the memory node answered {status:?} to a change that could be made: please report it, or give the \
                     region more room with --capacity"
                );
            }
        }
        Ok(start.elapsed())
    }
}

/// A memory node with region, notes and log in files, as the daemon has them.
fn with_log(durable: &DurableConfig, capacity: usize) -> anyhow::Result<MemoryNode<U64Keys>> {
    let folders = &durable.folders;
    let disk = FileDisk::open(&folders.data)?;
    let recovery_area = usize::try_from(store::recovery_area_bytes(store::RING_BYTES))?;
    let memories = Memories::new(
        Arc::new(SharedMemory::create_file(&folders.region_file(), capacity, HugePages::No)?.0),
        Arc::new(SharedMemory::create_file(&folders.notes_file(), recovery_area, HugePages::No)?.0),
    );
    let startup = Startup {
        sync: durable.sync,
        ring_bytes: store::RING_BYTES,
        boot: store::boot_id(),
        incarnation: 1,
        lineage: 1,
        node: 0,
        now: Instant::now(),
    };
    let background = Background::Threads(Waker::new()?);
    Ok(store::restore(memories, disk, &startup, background, None)?.0)
}

/// The rows as a table, under a title that says what was measured on what.
pub fn table(rows: &[DirectRow]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut table = new_table(
        "order | updates/s, hinted | without | inserts | inserts/s | copies/insert | rebuilds | \
         p99 | longest | waits | bytes",
    );
    for row in rows {
        table.add_row([
            row.order.to_owned(),
            rate(row.updates_per_s),
            rate(row.updates_per_s_unhinted),
            human(row.inserts),
            rate(row.inserts_per_s),
            row.copies_per_insert.map_or_else(none, |copies| format!("{copies:.2}")),
            human(row.rebuilds),
            format!("{:.2} ms", row.rebuild_ms_p99),
            format!("{:.2} ms", row.rebuild_ms_max),
            human(row.window_full_waits),
            bytes_per_key(row.bytes_per_key),
        ]);
    }
    format!(
        "{} ({}): a memory node with {} keys and {}-byte values in this process, epsilon {}, fill {}, seed {}; one thread, {}, \
         {} changes per request; {} updates {}, the fastest of the passes\n{table}",
        first.dataset,
        first.dataset_source,
        human(first.loaded),
        first.value_bytes,
        first.epsilon,
        first.fill,
        first.seed,
        first
            .fsync
            .as_ref()
            .map_or_else(|| "no log".to_owned(), |fsync| format!("a log with --fsync {fsync}")),
        first.batch,
        human(first.updates),
        first.dist,
    )
}
