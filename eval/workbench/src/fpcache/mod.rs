//! FPCache itself: a memory node's region, tables with hot caches, and lookups as they are, in the model.

mod keys;

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use fpcache::cache::{CacheConfig, Variant};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::{RecordShape, RecordToken, TableParameters};
use fpcache::matching::Matcher;
use fpcache::message::{Sent, WriteBatch, WriteKind, WriteOperation};
use fpcache::read::{FabricCosts, Lookup, LookupScratch, Operation as _, PlanChoice, advance};
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{
    ClientId, Connection, Endpoint, Handled, MappedEndpoint, Request as Posted, Service, SharedMemory,
};
use fpcache_memserver::MemoryNode;

pub use keys::Numbered;

use crate::bench::{Answer, Footprint, Operation, Progress, System};
use crate::nic::{Hosts, Picos, Request, Target, Verb};
use crate::oracle::first_value;
use crate::{BuildError, Sizes};

/// How FPCache is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep.
    pub budget: u64,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Width of fingerprints.
    pub width: FingerprintWidth,
    /// How lookups read that the hot cache does not answer.
    pub plan: PlanChoice,
    /// What an entry of the hot cache holds.
    pub variant: Variant,
    /// Share of slots that are filled.
    pub fill: f64,
    /// A core's time for a put.
    pub put: Picos,
}

impl Options {
    /// A core's time for a small put, with its request and reply: a memory node takes somewhat less than a million a second
    /// from a core, as `fpcache-eval growth` measures.
    pub const PUT: Picos = 1_000_000;

    /// The paper's (§4.1, §4.2): two-stage reads and fingerprints of 64 bits, of 8 bits for keys of 8 bytes.
    pub fn published(budget: u64, sizes: Sizes) -> Self {
        let width = if sizes.key == 8 { FingerprintWidth::Bits8 } else { FingerprintWidth::Bits64 };
        Self {
            budget,
            epsilon: 16,
            width,
            plan: PlanChoice::Fixed(fpcache::read::Plan::TwoStage),
            variant: Variant::Fd,
            fill: 0.85,
            put: Self::PUT,
        }
    }
}

/// A loaded memory node, and a table as each compute node has it.
pub struct Loaded<K: Numbered> {
    node: MemoryNode<K, SharedMemory>,
    hub: Hub,
    tables: Vec<Table<K>>,
    sizes: Sizes,
    put: Picos,
}

fn failed(what: &str, error: impl std::fmt::Display) -> BuildError {
    BuildError(format!("{what}: {error}"))
}

impl<K: Numbered> Loaded<K> {
    /// Loads these keys, ascending, each with its first value, and opens the table on every compute node.
    ///
    /// # Errors
    /// If the region does not fit this machine, or the budget has no room for the models.
    pub fn new(keys: &[u64], sizes: Sizes, options: &Options, hosts: &Hosts) -> Result<Self, BuildError> {
        if hosts.memory_nodes != 1 {
            return Err(BuildError(
                "FPCache's table lies in one memory node here: use --memory-nodes 1".into(),
            ));
        }
        let parameters = TableParameters {
            width: options.width,
            shape: RecordShape::fixed(sizes.key as u16, sizes.value as u32),
            epsilon: options.epsilon,
            fill: options.fill,
            ..TableParameters::default()
        };
        let slot = parameters.geometry().slot_bytes + options.width.bytes();
        let bytes = (keys.len() as f64 * slot as f64 / options.fill * 1.2) as usize + (64 << 20);
        let region = SharedMemory::anonymous(bytes).map_err(|e| failed("the region", e))?;
        let region = Arc::new(region);
        let node = MemoryNode::<K>::new(Arc::clone(&region), 1, 0, Instant::now());
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
        let hub = Hub::new(region, LocalOptions::default()).map_err(|e| failed("the hub", e))?;
        let costs = FabricCosts { probe: 0.0, ..FabricCosts::RDMA };
        let cache = Some(CacheConfig { variant: options.variant, ..CacheConfig::of(options.budget) });
        let options_of_table = TableOptions { costs, cache, ..TableOptions::plan(options.plan) };
        let mut endpoint = hub.connect().map_err(|e| failed("connecting", e))?.endpoint();
        let open = |_| Table::open(&mut endpoint, &options_of_table);
        let tables: Result<_, _> = (0..hosts.compute_nodes).map(open).collect();
        let tables = tables.map_err(|e| failed("opening the table", e))?;
        Ok(Self { node, hub, tables, sizes, put: options.put })
    }

    /// Buffers for all clients, with the hot caches of their nodes.
    pub fn scratches(&self, hosts: &Hosts) -> Vec<LookupScratch<K>> {
        let scratch = |client| {
            let scratch = LookupScratch::new(Matcher::detect());
            match self.tables[hosts.node_of(client)].cache() {
                Some(cache) => scratch.with_cache_handle(cache.handle(client as u64)),
                None => scratch,
            }
        };
        (0..hosts.clients()).map(scratch).collect()
    }
}

/// Whom the memory node takes all clients for; their requests have the clients' numbers.
const CLIENT: ClientId = ClientId(1);

/// A value of so many bytes that begins with this number.
fn put_value(number: u64, bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend(number.to_le_bytes().into_iter().cycle().take(bytes));
}

/// What a client does.
enum Doing<'a, K: Numbered> {
    /// Nothing.
    Idle(Option<&'a mut LookupScratch<K>>),
    /// Looks a key up; its batch may be on its way.
    Looking(Lookup<'a, K>),
    /// Waits for a put.
    Putting { scratch: Option<&'a mut LookupScratch<K>>, request: Vec<u8>, reply: Vec<u8>, is_posted: bool },
}

/// FPCache with its clients.
pub struct FpCache<'a, K: Numbered> {
    node: &'a mut MemoryNode<K, SharedMemory>,
    endpoint: MappedEndpoint,
    tables: &'a [Table<K>],
    doing: Vec<Doing<'a, K>>,
    requests: Vec<u64>,
    hosts: Hosts,
    sizes: Sizes,
    put: Picos,
    value: Vec<u8>,
}

impl<'a, K: Numbered> FpCache<'a, K> {
    /// The clients of these machines.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new(
        loaded: &'a mut Loaded<K>,
        scratches: &'a mut [LookupScratch<K>],
        hosts: &Hosts,
    ) -> Result<Self, BuildError> {
        let endpoint = loaded.hub.connect().map_err(|e| failed("connecting", e))?.endpoint();
        Ok(Self {
            node: &mut loaded.node,
            endpoint,
            tables: &loaded.tables,
            requests: vec![0; scratches.len()],
            doing: scratches.iter_mut().map(|scratch| Doing::Idle(Some(scratch))).collect(),
            hosts: *hosts,
            sizes: loaded.sizes,
            put: loaded.put,
            value: Vec::new(),
        })
    }

    fn request_of(&mut self, client: usize, key: u64, value: u64) -> Vec<u8> {
        put_value(value, self.sizes.value, &mut self.value);
        self.requests[client] += 1;
        let mut batch = WriteBatch::default();
        batch.push::<K>(&WriteOperation {
            kind: WriteKind::Update,
            key: K::of_number(key, self.sizes.key),
            hint: None,
            expected: RecordToken::default(),
            value: Sent::Here(&self.value),
        });
        let mut request = Vec::new();
        batch.request(client as u64 + 1, self.requests[client], false).encode::<K>(0, &mut request);
        request
    }
}

impl<K: Numbered> System for FpCache<'_, K> {
    fn begin(&mut self, client: usize, operation: Operation) {
        let Doing::Idle(scratch) = &mut self.doing[client] else { return };
        let scratch = scratch.take();
        self.doing[client] = match (operation, scratch) {
            (Operation::Read { key }, Some(scratch)) => {
                let key = K::of_number(key, self.sizes.key);
                let table = &self.tables[self.hosts.node_of(client)];
                Doing::Looking(Lookup::new(table, scratch, [key.borrow()]))
            }
            (Operation::Update { key, value }, scratch) => {
                let request = self.request_of(client, key, value);
                Doing::Putting { scratch, request, reply: Vec::new(), is_posted: false }
            }
            // Lookups over tables that become old are not there yet: the step says that nothing was done.
            (Operation::Insert { .. }, scratch) => Doing::Idle(scratch),
            (Operation::Read { .. }, None) => Doing::Idle(None),
        };
    }

    fn step(&mut self, client: usize, requests: &mut Vec<Request>) -> Progress {
        let to = Target::Memory(0);
        match &mut self.doing[client] {
            Doing::Looking(lookup) => match advance(&mut self.endpoint, lookup) {
                Ok(true) => {
                    requests.extend(lookup.batch().requests().map(|request| match request {
                        Posted::Read { len, .. } => Request { to, verb: Verb::Read, bytes: len as u32 },
                        // Lookups READ and nothing else.
                        _ => Request { to, verb: Verb::Atomic, bytes: 8 },
                    }));
                    return Progress::Post;
                }
                Ok(false) => {}
                Err(error) => {
                    let answer = Answer::Failed(error.to_string());
                    if let Doing::Looking(lookup) =
                        std::mem::replace(&mut self.doing[client], Doing::Idle(None))
                    {
                        self.doing[client] = Doing::Idle(Some(lookup.into_scratch()));
                    }
                    return Progress::Done(answer);
                }
            },
            Doing::Putting { request, is_posted: is_posted @ false, .. } => {
                *is_posted = true;
                // The reply's header and what it says about the operation.
                let verb = Verb::Call { service: self.put, reply: 32 };
                requests.push(Request { to, verb, bytes: request.len() as u32 });
                return Progress::Post;
            }
            Doing::Putting { .. } => {}
            Doing::Idle(_) => return Progress::Done(Answer::Failed("there is nothing to do".into())),
        }
        match std::mem::replace(&mut self.doing[client], Doing::Idle(None)) {
            Doing::Looking(lookup) => {
                let scratch = lookup.into_scratch();
                let found = scratch.outcomes().next().and_then(|(_, value)| value);
                let value = found.and_then(|value| value.first_chunk()).map(|word| u64::from_le_bytes(*word));
                self.doing[client] = Doing::Idle(Some(scratch));
                Progress::Done(Answer::Value(value))
            }
            Doing::Putting { scratch, reply, .. } => {
                self.doing[client] = Doing::Idle(scratch);
                Progress::Done(written(&reply))
            }
            Doing::Idle(_) => Progress::Done(Answer::Failed("there is nothing to do".into())),
        }
    }

    fn serve(&mut self, client: usize, _: Range<usize>) {
        match &mut self.doing[client] {
            Doing::Looking(lookup) => {
                // What fails here shows as landings that are not there, when the lookup goes on.
                if let Err(error) = self.endpoint.run(lookup.batch()) {
                    debug_assert!(false, "{error}");
                }
            }
            Doing::Putting { request, reply, .. } => {
                reply.clear();
                let handled = self.node.handle(CLIENT, request, reply);
                while handled == Handled::Later && self.node.next_reply(reply).is_none() {
                    self.node.work();
                }
                self.node.work();
            }
            Doing::Idle(_) => {}
        }
    }

    fn footprint(&self) -> Footprint {
        let used = |table: &Table<K>| table.cache_stats().map_or(0, |stats| stats.used);
        let cached = self.tables.iter().map(used).max().unwrap_or(0);
        Footprint { cached, beside: 0, memory_nodes: self.node.stats().used_bytes }
    }
}

/// What the memory node's reply says.
fn written(reply: &[u8]) -> Answer {
    use fpcache::message::{WriteReply, WriteStatus, decode_reply};
    match decode_reply(reply) {
        Err(refusal) => Answer::Failed(refusal.to_string()),
        Ok(body) => match WriteReply::decode(body).map(|reply| reply.status) {
            Some(WriteStatus::Done) => Answer::Written,
            other => Answer::Failed(format!("the memory node answered {other:?}")),
        },
    }
}
