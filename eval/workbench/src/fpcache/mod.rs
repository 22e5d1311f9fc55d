//! FPCache itself: memory nodes' regions, tables with hot caches, lookups and changes as they are, in the model.

mod client;
mod keys;
mod nodes;
mod recorded;
mod scan;
mod turns;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use fpcache::cache::Variant;
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::GroupChoice;
use fpcache::plan::PlanChoice;
use fpcache::table::TableOptions;

pub use keys::Numbered;

use self::client::Client;
use self::nodes::{Held, Node, table_options};
use self::turns::{Courses, Mail, taken};
use crate::bench::{Answer, Footprint, Operation, Progress, System};
use crate::nic::{Hosts, Picos, Request};
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
    /// The form of groups that records are stored in, if they are.
    pub groups: Option<GroupChoice>,
    /// What an entry of the hot cache holds.
    pub variant: Variant,
    /// Share of slots that are filled.
    pub fill: f64,
    /// A core's time for a request: a put, or a lookup by the memory node.
    pub put: Picos,
}

impl Options {
    /// A core's time for a small put, with its request and reply: a memory node takes somewhat less than a million a second
    /// from a core, as `fpcache-eval growth` measures.
    pub const PUT: Picos = 1_000_000;

    /// A core's time for each record that moves when a segment is replaced: 120 to 200 ns were measured for segments of
    /// short records (`memserver`'s test of what steps take).
    pub const RECORD_MOVED: Picos = 150_000;

    /// The paper's (§4.1, §4.2): two-stage reads and fingerprints of 64 bits, of 8 bits for keys of 8 bytes.
    pub fn published(budget: u64, sizes: Sizes) -> Self {
        let width = if sizes.key == 8 { FingerprintWidth::Bits8 } else { FingerprintWidth::Bits64 };
        Self {
            budget,
            epsilon: 16,
            width,
            plan: PlanChoice::Fixed(fpcache::plan::Plan::TwoStage),
            groups: None,
            variant: Variant::Fd,
            fill: 0.85,
            put: Self::PUT,
        }
    }
}

/// What clients share.
struct Shared<K: Numbered> {
    nodes: Vec<Node<K>>,
    /// Tables of each compute node, one for each memory node.
    tables: Vec<Vec<Held<K>>>,
    mail: Vec<RefCell<Mail>>,
    woken: RefCell<Vec<usize>>,
    /// A core's time that the last call took besides what it said.
    besides: Cell<Picos>,
    options: TableOptions,
    hosts: Hosts,
    sizes: Sizes,
    put: Picos,
}

impl<K: Numbered> Shared<K> {
    /// The memory node that has a key.
    fn node_of(&self, key: u64) -> usize {
        self.nodes.partition_point(|node| node.first <= key).saturating_sub(1)
    }

    /// A client's table of a memory node.
    fn held(&self, client: usize, node: usize) -> &Held<K> {
        &self.tables[self.hosts.node_of(client)][node]
    }
}

/// A value of so many bytes that begins with this number.
fn put_value(number: u64, bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend(number.to_le_bytes().into_iter().cycle().take(bytes));
}

/// FPCache with its clients.
pub struct FpCache<K: Numbered> {
    shared: Rc<Shared<K>>,
    clients: Courses,
}

impl<K: Numbered> FpCache<K> {
    /// Loads these keys, ascending, each with its first value, in as many ranges as there are memory nodes, with room for so many
    /// `inserts`; opens the tables on every compute node.
    ///
    /// # Errors
    /// If a region does not fit this machine, or the budget has no room for the models.
    pub fn new(
        keys: &[u64],
        sizes: Sizes,
        options: &Options,
        hosts: &Hosts,
        inserts: usize,
    ) -> Result<Self, BuildError> {
        let count = usize::from(hosts.memory_nodes.max(1));
        let ranges = (0..count).map(|i| &keys[i * keys.len() / count..(i + 1) * keys.len() / count]);
        let nodes =
            ranges.zip(0..).map(|(range, number)| Node::new(range, sizes, options, (number, inserts)));
        let nodes = nodes.collect::<Result<Vec<Node<K>>, _>>()?;
        let table = table_options(options, hosts);
        let tables = |_| nodes.iter().map(|node| Held::open(node, &table)).collect();
        let tables = (0..hosts.compute_nodes).map(tables).collect::<Result<_, _>>()?;
        let shared = Rc::new(Shared {
            nodes,
            tables,
            mail: (0..hosts.clients()).map(|_| RefCell::default()).collect(),
            woken: RefCell::default(),
            besides: Cell::new(0),
            options: table,
            hosts: *hosts,
            sizes,
            put: options.put,
        });
        let course = |client| Box::pin(Client::new(Rc::clone(&shared), client).run()) as _;
        let clients = Courses::new((0..hosts.clients()).map(course).collect());
        Ok(Self { shared, clients })
    }
}

impl<K: Numbered> System for FpCache<K> {
    fn begin(&mut self, client: usize, operation: Operation) {
        self.shared.mail[client].borrow_mut().operation = Some(operation);
    }

    fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Progress {
        self.shared.mail[client].borrow_mut().now = now;
        self.clients.go_on(client);
        let progress = taken(&self.shared.mail[client], requests);
        progress
            .unwrap_or_else(|| Progress::Done(Answer::Failed("the client did not say what it wants".into())))
    }

    fn serve(&mut self, client: usize, _: Range<usize>) -> Picos {
        // What fails here shows when the client goes on.
        self.clients.go_on(client);
        self.shared.besides.take()
    }

    fn next_woken(&mut self) -> Option<usize> {
        self.shared.woken.borrow_mut().pop()
    }

    fn footprint(&self) -> Footprint {
        let used = |held: &Held<K>| held.table.borrow().cache_stats().map_or(0, |stats| stats.used);
        let of_one = |tables: &Vec<Held<K>>| tables.iter().map(used).sum();
        let cached = self.shared.tables.iter().map(of_one).max().unwrap_or(0);
        let memory_nodes = self.shared.nodes.iter().map(Node::used_bytes).sum();
        Footprint { cached, beside: 0, memory_nodes }
    }
}
