//! FPCache itself: memory nodes' regions, tables with hot caches, lookups and changes as they are,
//! in the model.

mod changes;
mod client;
mod keys;
mod nodes;
mod options;
mod recorded;
mod scan;
mod shared;
#[cfg(test)]
mod tests;
mod together;
mod turns;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

pub use keys::Numbered;
pub use options::Options;

use self::client::Client;
use self::nodes::{Held, Node, table_options};
use self::shared::Shared;
use self::turns::{Courses, taken};
use crate::bench::{Answer, Footprint, HotCache, Operation, Progress, System};
use crate::nic::{Background, Hosts, Picos, Request};
use crate::{BuildError, Sizes};

/// FPCache with its clients.
pub struct FpCache<K: Numbered> {
    shared: Rc<Shared<K>>,
    clients: Courses,
}

impl<K: Numbered> FpCache<K> {
    /// Loads these keys, ascending, each with its first value, in as many ranges as memory nodes
    /// have cores for changes, with room for `inserts` more; opens the tables on every compute
    /// node.
    ///
    /// # Errors
    /// If there are fewer keys than ranges, a region does not fit this machine, or the budget has
    /// no room for the models.
    pub fn new(
        keys: &[u64],
        sizes: Sizes,
        options: &Options,
        hosts: &Hosts,
        inserts: usize,
    ) -> Result<Self, BuildError> {
        let count = hosts.parts();
        // The one range of a table for a single core may be empty; of several, each is found by the
        // least of its keys.
        if count > 1 && keys.len() < count {
            let message = format!(
                "{} keys cannot be divided among {count} cores of memory nodes: use fewer cores",
                keys.len()
            );
            return Err(BuildError(message));
        }
        let ranges = (0..count).map(|i| &keys[i * keys.len() / count..(i + 1) * keys.len() / count]);
        let nodes =
            ranges.zip(0..).map(|(range, number)| Node::new(range, sizes, options, (number, inserts)));
        let nodes = nodes.collect::<Result<Vec<Node<K>>, _>>()?;
        let table = table_options(options, hosts);
        let tables = |_| nodes.iter().map(|node| Held::open(node, &table)).collect();
        let tables = (0..hosts.compute_nodes).map(tables).collect::<Result<_, _>>()?;
        let pairs = usize::from(hosts.compute_nodes) * nodes.len();
        let shared = Rc::new(Shared {
            nodes,
            tables,
            mail: (0..hosts.clients()).map(|_| RefCell::default()).collect(),
            woken: RefCell::default(),
            queues: options.together.then(|| (0..pairs).map(|_| RefCell::default()).collect()),
            besides: Cell::new(0),
            background: RefCell::default(),
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

    fn next_background(&mut self) -> Option<Background> {
        self.shared.background.borrow_mut().pop()
    }

    fn footprint(&self) -> Footprint {
        let used = |held: &Held<K>| held.table.borrow().cache_stats().map_or(0, |stats| stats.used);
        let of_one = |tables: &Vec<Held<K>>| tables.iter().map(used).sum();
        let cached = self.shared.tables.iter().map(of_one).max().unwrap_or(0);
        let memory_nodes = self.shared.nodes.iter().map(Node::used_bytes).sum();
        Footprint { cached, beside: 0, memory_nodes }
    }

    fn hot_cache(&self) -> Option<HotCache> {
        let of_node = |tables: &Vec<Held<K>>| {
            let all = tables.iter().filter_map(|held| held.table.borrow().cache_stats());
            all.fold(HotCache::default(), |sum, stats| HotCache {
                hits: sum.hits + stats.hits,
                misses: sum.misses + stats.misses,
                entries: sum.entries + stats.entries,
                capacity: sum.capacity + stats.capacity,
            })
        };
        let nodes: Vec<HotCache> = self.shared.tables.iter().map(of_node).collect();
        let fullest = nodes.iter().max_by_key(|node| node.entries)?;
        let (hits, misses) = nodes.iter().fold((0, 0), |sum, node| (sum.0 + node.hits, sum.1 + node.misses));
        (fullest.capacity > 0).then_some(HotCache { hits, misses, ..*fullest })
    }
}
