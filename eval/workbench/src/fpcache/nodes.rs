//! Memory nodes with their regions, and the tables that compute nodes have of them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use fpcache::cache::CacheConfig;
use fpcache::layout::{RecordShape, TableParameters};
use fpcache::plan::FabricCosts;
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{
    Batch, ClientId, Connection, Handled, HugePages, MappedEndpoint, Request, Service, SharedMemory,
};
use fpcache_memserver::MemoryNode;

use super::keys::{Numbered, put_value};
use super::options::Options;
use crate::nic::{Hosts, Picos};
use crate::oracle::first_value;
use crate::{BuildError, Sizes};

/// The client that a memory node takes all clients for; their requests have the clients' numbers.
const CLIENT: ClientId = ClientId(1);

/// Of what a request READs, at most this many bytes are prefetched before it is served.
const PREFETCHED: usize = 1024;

/// A memory node, which has a range of the keys.
pub(super) struct Node<K: Numbered> {
    /// The least key of its range.
    pub(super) first: u64,
    memory: RefCell<MemoryNode<K, SharedMemory>>,
    /// Records moved for which a core's time has been taken.
    charged: Cell<u64>,
    pub(super) endpoint: RefCell<MappedEndpoint>,
    region: Arc<SharedMemory>,
    /// What the region is shared by.
    _hub: Hub,
}

fn failed(what: &str, error: impl std::fmt::Display) -> BuildError {
    BuildError(format!("{what}: {error}"))
}

impl<K: Numbered> Node<K> {
    /// Loads these keys, ascending, each with its first value; there is room for `inserts` more.
    pub(super) fn new(
        keys: &[u64],
        sizes: Sizes,
        options: &Options,
        (number, inserts): (u16, usize),
    ) -> Result<Self, BuildError> {
        let parameters = TableParameters {
            width: options.width,
            shape: RecordShape::fixed(sizes.key as u16, sizes.value as u32),
            epsilon: options.epsilon,
            fill: options.fill,
            ..TableParameters::default()
        };
        let grouped = options.groups.map_or(parameters, |choice| parameters.with_groups(choice));
        let parameters = TableParameters { fill: options.fill, ..grouped };
        let slot = parameters.bytes_per_slot();
        // A segment that was replaced keeps its memory for a while.
        let records = keys.len() + 3 * inserts;
        let bytes = (records as f64 * slot / options.fill * 1.2) as usize + (64 << 20);
        let region = Arc::new(
            SharedMemory::anonymous_with(bytes, HugePages::IfAvailable)
                .map_err(|e| failed("the region", e))?,
        );
        let node = MemoryNode::<K>::new(Arc::clone(&region), 1 + u64::from(number), number, Instant::now());
        let mut node = node.map_err(|e| failed("the memory node", e))?;
        let step = (keys.len() / 50_000).max(1);
        let sample: Vec<_> = keys.iter().step_by(step).map(|key| K::of_number(*key, sizes.key)).collect();
        let encoders = K::encoders(&sample);
        drop(sample);
        let mut value = Vec::new();
        let records = keys.iter().map(|key| {
            put_value(first_value(*key), sizes.value, &mut value);
            (K::of_number(*key, sizes.key), value.clone())
        });
        node.load_records(parameters, encoders, records).map_err(|e| failed("loading", e))?;
        node.connected(CLIENT, &[]);
        let hub = Hub::new(Arc::clone(&region), LocalOptions::default()).map_err(|e| failed("the hub", e))?;
        let endpoint = hub.connect().map_err(|e| failed("connecting", e))?.endpoint();
        let (memory, endpoint) = (RefCell::new(node), RefCell::new(endpoint));
        let first = keys.first().copied().unwrap_or(0);
        let charged = Cell::new(memory.borrow().stats().copies);
        Ok(Self { first, memory, charged, endpoint, region, _hub: hub })
    }

    /// Has this machine fetch what a batch READs until it is served, which is many events later.
    pub(super) fn prefetch(&self, batch: &Batch) {
        for request in batch.requests() {
            if let Request::Read { from, len, .. } = request {
                self.region.prefetch(from.offset, len.min(PREFETCHED));
            }
        }
    }

    /// Has the processor do what a request says, and returns its time for what that brings with it:
    /// segments whose records move.
    pub(super) fn call(&self, request: &[u8], reply: &mut Vec<u8>) -> Picos {
        let mut node = self.memory.borrow_mut();
        reply.clear();
        let handled = node.handle(CLIENT, request, reply);
        while handled == Handled::Later && node.next_reply(reply).is_none() {
            node.work();
        }
        node.work();
        self.charge(&node)
    }

    /// Lets it do some of what it does between requests, and returns its processor's time for that.
    pub(super) fn work(&self) -> Picos {
        let mut node = self.memory.borrow_mut();
        node.work();
        self.charge(&node)
    }

    /// The time for records that have moved since it was asked.
    fn charge(&self, node: &MemoryNode<K, SharedMemory>) -> Picos {
        let moved = node.stats().copies;
        (moved - self.charged.replace(moved)) * Options::RECORD_MOVED
    }

    /// Records that have moved, those of its loading among them.
    #[cfg(test)]
    pub(super) fn moved(&self) -> u64 {
        self.memory.borrow().stats().copies
    }

    /// Bytes of its region that are in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.memory.borrow().stats().used_bytes
    }
}

/// A compute node's table of one memory node.
pub(super) struct Held<K: Numbered> {
    pub(super) table: RefCell<Arc<Table<K>>>,
    /// Counts the table's versions.
    pub(super) version: Cell<u64>,
    /// Counts its hot caches: it was opened so often.
    pub(super) opened: Cell<u64>,
    /// Whether a client brings it up to date: one at a time, as in a client process.
    pub(super) is_refreshing: Cell<bool>,
    /// Clients that wait for that.
    pub(super) waiting: RefCell<Vec<usize>>,
}

/// How compute nodes open tables, of which each memory node's has a share of the budget.
pub(super) fn table_options(options: &Options, hosts: &Hosts) -> TableOptions {
    let concurrency = (hosts.clients() / usize::from(hosts.memory_nodes.max(1))) as u32;
    // Threads have no work of their own in the model.
    let costs = FabricCosts { probe: 0.0, table: 0.0, ..FabricCosts::RDMA.at_concurrency(concurrency) };
    let budget = options.budget / hosts.parts() as u64;
    let cache = Some(CacheConfig::of(budget).with_variant(options.variant));
    TableOptions { costs, cache, ..TableOptions::plan(options.plan) }
}

impl<K: Numbered> Held<K> {
    /// Opens the table.
    pub(super) fn open(node: &Node<K>, options: &TableOptions) -> Result<Self, BuildError> {
        let table = Table::open(&mut *node.endpoint.borrow_mut(), options);
        Ok(Self {
            table: RefCell::new(Arc::new(table.map_err(|e| failed("opening the table", e))?)),
            version: Cell::new(0),
            opened: Cell::new(0),
            is_refreshing: Cell::new(false),
            waiting: RefCell::default(),
        })
    }
}
