//! `peers`: FPCache and the alternatives, with the same records and the same lookups, in one run.

mod measure;
mod options;
mod row;

use std::sync::Arc;
use std::time::Duration;

use fpcache_client::{ByteClient, ByteKeys};
use fpcache_datasets::Bar;
use fpcache_datasets::count::human;

pub use options::{EXAMPLES, PeerName, PeersArgs, WaitingName};
pub use row::{Figures, PeerRow};

use crate::data::DataKeys;
use crate::node::Node;
use crate::run::host::Divided;
use crate::run::measure::Measurable;
use crate::run::report::{check_json, deliver, doubts};
use crate::run::transport::Transport;
use crate::run::values::ValueBytes;
use crate::run::workload::{Lookups, Workload};
use crate::run::{BTREEMAP, HASHMAP, build_map};
use crate::systems::fpcache::{self, FpCache};
use crate::systems::memcached::{self, Text};
use crate::systems::redis::{self, Resp};
use crate::systems::server::{Server, version_of};
use crate::systems::socket::{Address, SocketStore, Waiting};
use crate::systems::tasks::Tasks;
use crate::verdict::Verdict;
use measure::{MOST_LOOKUPS, Peer, measure};

/// Memory nodes that a table is divided among, beside one that has all of it.
const DIVIDED_AMONG: u32 = 3;

/// Why a row lacks figures where this command ended early.
const FAILED: &str = "this or an earlier one failed: see the error";

/// A store over a socket, for rows that ask it in several ways.
struct Reached {
    named: &'static str,
    version: Option<String>,
    server: Arc<Server>,
    address: Address,
}

/// What all systems are made from.
struct Records<'a> {
    set: &'a <ByteKeys as DataKeys>::Set,
    values: ValueBytes,
    bar: &'a Bar,
}

/// Measures all systems and reports them.
///
/// # Errors
/// If one that is there fails.
pub fn peers(arguments: &PeersArgs) -> anyhow::Result<Verdict> {
    check_json(arguments.json.as_deref())?;
    let run = arguments.run()?;
    let bar = Bar::default();
    let set = ByteKeys::open(&run.dataset, &run.open_options(&bar))?;
    let records = Records { set: &set, values: run.value_bytes, bar: &bar };
    let options = fpcache_datasets::requests::RequestOptions {
        lookups: MOST_LOOKUPS.min(4 * arguments.keys.max(100_000)) as usize,
        ..run.request_options(1)?
    };
    let drawn = ByteKeys::draw(&set, &options);

    let mut made = Made::default();
    for name in arguments.systems() {
        match name {
            PeerName::Fpcache => made.fpcache(arguments, &records)?,
            PeerName::Hashmap => made.own("hashmap", build_map(HASHMAP, &set, run.value_bytes, &bar)),
            PeerName::Btreemap => made.own("btreemap", build_map(BTREEMAP, &set, run.value_bytes, &bar)),
            PeerName::Lmdb => made.lmdb(arguments, &records)?,
            PeerName::Redis => made.redis(arguments, &records)?,
            PeerName::Memcached => made.memcached(arguments, &records)?,
        }
    }
    let stream = ByteKeys::stream(&drawn);
    let workload = Workload {
        dataset: &set,
        lookups: Lookups::all(&stream),
        values: run.value_bytes,
        batch: 1,
        threads: 1,
        stretch: None,
        warm_up: None,
        cold: false,
    };
    let mut figures = Vec::new();
    let measured = measure(arguments, &made.peers(), &workload, &bar, &mut figures);
    let nothing = figures.is_empty();
    let rows = made.with_figures(figures);
    match measured {
        Ok(()) => report(arguments, &rows),
        // What was measured is worth having also where a later one failed.
        Err(error) if nothing => Err(error),
        Err(error) => report(arguments, &rows).and(Err(error)),
    }
}

/// Systems that were made, and the ways to ask them.
#[derive(Default)]
struct Made {
    systems: Vec<Box<dyn Measurable<ByteKeys>>>,
    /// Which system a row is about; `None` where it is not here.
    rows: Vec<(Option<usize>, PeerRow)>,
    /// The memory nodes, which end after those that read from them.
    _node: Option<Node>,
    _divided: Option<Divided>,
}

impl Made {
    fn add(&mut self, system: Box<dyn Measurable<ByteKeys>>) -> usize {
        self.systems.push(system);
        self.systems.len() - 1
    }

    fn ask(
        &mut self,
        at: usize,
        system: &str,
        (transport, version): (Option<&str>, Option<String>),
        (operation, keys_per_call): (String, u64),
    ) {
        let row = PeerRow {
            system: system.to_owned(),
            version,
            transport: transport.map(str::to_owned),
            operation,
            keys_per_call,
            keys_per_latency: keys_per_call,
            ..PeerRow::default()
        };
        self.rows.push((Some(at), row));
    }

    fn lacks(&mut self, system: &str, why: String) {
        let row = PeerRow { system: system.to_owned(), not_measured: Some(why), ..PeerRow::default() };
        self.rows.push((None, row));
    }

    /// The ways to ask what is here.
    fn peers(&self) -> Vec<Peer<'_>> {
        let peer = |(at, row): &(Option<usize>, PeerRow)| {
            Some(Peer { system: &**self.systems.get((*at)?)?, keys_per_call: row.keys_per_call as usize })
        };
        self.rows.iter().filter_map(peer).collect()
    }

    /// All rows, with the figures that were found of the first ones that are here.
    fn with_figures(&self, figures: Vec<Figures>) -> Vec<PeerRow> {
        let mut figures = figures.into_iter();
        let with_figures = |(at, row): &(Option<usize>, PeerRow)| match at.map(|_| figures.next()) {
            None => row.clone(),
            Some(Some(figures)) => PeerRow { figures: Some(figures), ..row.clone() },
            Some(None) => PeerRow { not_measured: Some(FAILED.to_owned()), ..row.clone() },
        };
        self.rows.iter().map(with_figures).collect()
    }

    /// A map of this process.
    fn own(&mut self, name: &str, map: Box<dyn Measurable<ByteKeys>>) {
        let at = self.add(map);
        self.ask(at, name, (None, None), ("get".to_owned(), 1));
    }

    fn fpcache(&mut self, arguments: &PeersArgs, records: &Records<'_>) -> anyhow::Result<()> {
        let (run, Records { set, values, bar }) = (arguments.run()?, records);
        let config = arguments.client_config()?;
        let lengths = crate::data::DataSet::lengths(*set);
        let capacity = run.region_bytes::<ByteKeys>(&lengths, set.len() as u64);
        let ways = [Transport::Shm, Transport::Unix, Transport::Tcp];
        let node = Node::start_over::<ByteKeys>(&ways, run.node(capacity, 0))?;
        let mut load = None;
        for (way, url) in ways.iter().zip(node.urls()) {
            let connect = || Ok(ByteClient::connect_with(url, config.clone())?);
            if load.is_none() {
                load = Some(fpcache::load(&connect()?, set, *values, run.table(&lengths), bar)?);
            }
            self.ask_fpcache(arguments, way.as_str(), &[node.process_id()], load, connect)?;
        }
        self._node = Some(node);
        let nodes = Divided::start::<ByteKeys>(&run, (DIVIDED_AMONG, Transport::Tcp), set, 0)?;
        let connect = || nodes.connect::<ByteKeys>(config.clone());
        let load = fpcache::load(&connect()?, set, *values, run.table(&lengths), bar)?;
        let way = format!("{}, {DIVIDED_AMONG} nodes", Transport::Tcp.as_str());
        self.ask_fpcache(arguments, &way, &nodes.process_ids(), Some(load), connect)?;
        self._divided = Some(nodes);
        Ok(())
    }

    /// The ways to ask FPCache over clients that this makes.
    fn ask_fpcache(
        &mut self,
        arguments: &PeersArgs,
        way: &str,
        memory_nodes: &[u32],
        load: Option<Duration>,
        connect: impl Fn() -> anyhow::Result<ByteClient>,
    ) -> anyhow::Result<()> {
        let (config, together) = (arguments.client_config()?, u64::from(arguments.together));
        let system = FpCache::open(connect()?, "fpcache", &config, load)?;
        let at = self.add(Box::new(system.served_by(memory_nodes.to_vec())));
        let tasks = self.add(Box::new(Tasks::of(connect()?, memory_nodes.to_vec())?));
        for (at, operation, keys) in [
            (at, "get".to_owned(), 1),
            (at, format!("multi_get of {together}"), together),
            (tasks, format!("get by {together} tasks"), together),
        ] {
            self.ask(at, "fpcache", (Some(way), None), (operation, keys));
        }
        if let Some((_, by_tasks)) = self.rows.last_mut() {
            by_tasks.keys_per_latency = 1;
        }
        Ok(())
    }

    #[cfg(feature = "lmdb")]
    fn lmdb(&mut self, arguments: &PeersArgs, records: &Records<'_>) -> anyhow::Result<()> {
        use crate::systems::lmdb::Lmdb;
        let store = Lmdb::build(&std::env::temp_dir(), records.set, records.values, records.bar)?;
        let (at, together) = (self.add(Box::new(store)), u64::from(arguments.together));
        for operation in [("get".to_owned(), 1), (format!("{together} gets in a transaction"), together)] {
            self.ask(at, "lmdb", (None, Some(Lmdb::version())), operation);
        }
        Ok(())
    }

    #[cfg(not(feature = "lmdb"))]
    #[allow(clippy::unnecessary_wraps, reason = "as with the feature")]
    fn lmdb(&mut self, _: &PeersArgs, _: &Records<'_>) -> anyhow::Result<()> {
        self.lacks("lmdb", "not built in: cargo run --release --features lmdb -- peers".to_owned());
        Ok(())
    }

    fn redis(&mut self, arguments: &PeersArgs, records: &Records<'_>) -> anyhow::Result<()> {
        let installed = redis::PROGRAMS
            .iter()
            .find_map(|(program, _)| Some((program, version_of(program, "--version")?)));
        let Some((program, version)) = installed else {
            let packages = redis::PROGRAMS.map(|(_, package)| package).join(" or ");
            self.lacks("redis", format!("not installed: install {packages}"));
            return Ok(());
        };
        let named = program.trim_end_matches("-server");
        let (server, addresses) = redis::start(program)?;
        for (at, address) in addresses.into_iter().enumerate() {
            let reached =
                Reached { named, version: Some(version.clone()), server: Arc::clone(&server), address };
            let get = self.store(&reached, Resp::Get, arguments);
            if at == 0 {
                get.load(records.set, records.values, records.bar)?;
            }
            let (get, multi_get) = (self.add(Box::new(get)), self.store(&reached, Resp::MultiGet, arguments));
            let multi_get = self.add(Box::new(multi_get));
            let (transport, together) = (reached.address.transport(), u64::from(arguments.together));
            for (at, operation, keys) in [
                (get, "GET".to_owned(), 1),
                (get, format!("GET, {together} in a pipeline"), together),
                (multi_get, format!("MGET of {together}"), together),
            ] {
                self.ask(at, named, (Some(transport), reached.version.clone()), (operation, keys));
            }
        }
        Ok(())
    }

    fn memcached(&mut self, arguments: &PeersArgs, records: &Records<'_>) -> anyhow::Result<()> {
        let Some(version) = version_of(memcached::PROGRAM, "--version") else {
            self.lacks(memcached::PROGRAM, format!("not installed: install {}", memcached::PROGRAM));
            return Ok(());
        };
        // An item has some 56 bytes beside key and value, and lies in one of a few sizes.
        let item = u64::from(arguments.key_bytes + arguments.value_bytes) + 64;
        let bytes = arguments.keys * item * 3 / 2 + (64 << 20);
        for over_tcp in [false, true] {
            let (server, address) = memcached::start(bytes, over_tcp)?;
            let reached =
                Reached { named: memcached::PROGRAM, version: Some(version.clone()), server, address };
            let store = self.store(&reached, Text, arguments);
            store.load(records.set, records.values, records.bar)?;
            let at = self.add(Box::new(store));
            let (transport, together) = (reached.address.transport(), u64::from(arguments.together));
            for operation in [("get".to_owned(), 1), (format!("get of {together}"), together)] {
                self.ask(at, reached.named, (Some(transport), reached.version.clone()), operation);
            }
        }
        Ok(())
    }

    fn store<D: crate::systems::socket::Dialect>(
        &self,
        reached: &Reached,
        dialect: D,
        arguments: &PeersArgs,
    ) -> SocketStore<D> {
        let Reached { named, server, address, .. } = reached;
        let waiting = match arguments.waiting {
            WaitingName::Awake => Waiting::Spinning,
            WaitingName::Own | WaitingName::Asleep => Waiting::Sleeping,
        };
        let name = format!("{named} {}", address.transport());
        SocketStore::new(name, Arc::clone(server), address.clone(), dialect, waiting)
    }
}

fn report(arguments: &PeersArgs, rows: &[PeerRow]) -> anyhow::Result<Verdict> {
    let reference = rows.iter().find(|row| row.is_reference());
    let mut text = format!(
        "{} keys of {} B with {} B values, uniform lookups, one thread, {}\n{}\n",
        human(arguments.keys),
        arguments.key_bytes,
        arguments.value_bytes,
        arguments.waiting.explained(),
        row::table(rows, reference)
    );
    if let Some(reference) = reference {
        text.push_str(&format!("ratios are to {}, {}; ", reference.named(), reference.operation));
    }
    text.push_str("processor seconds are per million keys\n");
    text.push_str(&doubts(rows.iter().filter_map(PeerRow::doubts)));
    let mut named: Vec<String> = Vec::new();
    for row in rows {
        let line = match (&row.version, &row.not_measured) {
            (Some(version), _) => format!("{} {version}", row.system),
            (_, Some(why)) => format!("{}: {why}", row.system),
            _ => continue,
        };
        if !named.contains(&line) {
            named.push(line);
        }
    }
    named.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    let mismatches = rows.iter().filter_map(|row| Some(row.figures.as_ref()?.mismatches)).sum();
    text.push_str(match mismatches {
        0 => "every answer that was compared was right",
        _ => "ANSWERS WERE WRONG",
    });
    let of = |row: &PeerRow| row::Asked {
        row: row.clone(),
        keys: arguments.keys,
        key_bytes: arguments.key_bytes,
        value_bytes: arguments.value_bytes,
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        waiting: arguments.waiting,
    };
    let rows: Vec<row::Asked> = rows.iter().map(of).collect();
    deliver(&text, &rows, arguments.json.as_deref())?;
    Ok(Verdict::of(mismatches))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::measure::{Pass, new_histogram};

    #[test]
    fn rows_that_were_measured_keep_their_figures_when_a_later_one_failed() {
        let mut made = Made::default();
        made.lacks("redis", "not installed".to_owned());
        for at in 0..2 {
            made.ask(at, "hashmap", (None, None), ("get".to_owned(), 1));
        }
        let found = Figures::new(1, &[Pass::default()], &new_histogram().unwrap(), 0).unwrap();
        let rows = made.with_figures(vec![found]);
        let has = |row: &PeerRow| (row.figures.is_some(), row.not_measured.as_deref().map(str::to_owned));
        let expected = [(false, Some("not installed")), (true, None), (false, Some(FAILED))];
        assert_eq!(
            rows.iter().map(has).collect::<Vec<_>>(),
            expected.map(|(has, why)| (has, why.map(str::to_owned)))
        );
    }
}
