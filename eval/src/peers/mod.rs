//! `peers`: FPCache and the alternatives, with the same records and the same lookups, in one run.

mod options;
mod row;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::{ByteClient, ByteKeys};
use fpcache_datasets::count::human;

pub use options::{EXAMPLES, PeerName, PeersArgs, WaitingName};
pub use row::{Figures, PeerRow};

use crate::data::DataKeys;
use crate::node::Node;
use crate::progress::Bar;
use crate::run::host::Divided;
use crate::run::measure::Measurable;
use crate::run::report::{check_json, deliver};
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

/// Memory nodes that a table is divided among, beside one that has all of it.
const DIVIDED_AMONG: u32 = 3;
/// Lookups that are drawn, and the most of a pass.
const LOOKUPS: u64 = 4_000_000;
/// Answers that are compared, of each way to ask, or as many as there are keys.
const COMPARED: usize = 50_000;
/// Lookups from which the length of a pass is found.
const TRIED: usize = 2_000;

/// A system, ready, and one way to ask it.
struct Peer<'a> {
    system: &'a dyn Measurable<ByteKeys>,
    row: PeerRow,
}

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
        lookups: LOOKUPS.min(4 * arguments.keys.max(100_000)) as usize,
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
    let rows = measure(arguments, &made, &workload, &bar)?;
    report(arguments, &rows)
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
            not_measured: None,
            figures: None,
        };
        self.rows.push((Some(at), row));
    }

    fn lacks(&mut self, system: &str, why: String) {
        let row = PeerRow {
            system: system.to_owned(),
            version: None,
            transport: None,
            operation: String::new(),
            keys_per_call: 0,
            not_measured: Some(why),
            figures: None,
        };
        self.rows.push((None, row));
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
            let connect = || Ok(ByteClient::connect_with(url, config)?);
            if load.is_none() {
                load = Some(fpcache::load(&connect()?, set, *values, run.table(&lengths), bar)?);
            }
            self.ask_fpcache(arguments, way.as_str(), &[node.process_id()], load, connect)?;
        }
        self._node = Some(node);
        let nodes = Divided::start::<ByteKeys>(&run, (DIVIDED_AMONG, Transport::Tcp), set, 0)?;
        let connect = || nodes.connect::<ByteKeys>(config);
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

/// Runs the passes of all, in turns.
fn measure<'a, 'k>(
    arguments: &PeersArgs,
    made: &Made,
    workload: &Workload<'a, 'k, ByteKeys>,
    bar: &Bar,
) -> anyhow::Result<Vec<PeerRow>> {
    let all = workload.lookups;
    let peers: Vec<Peer<'_>> = made
        .rows
        .iter()
        .filter_map(|(at, row)| Some(Peer { system: &**made.systems.get((*at)?)?, row: row.clone() }))
        .collect();
    let of = |peer: &Peer<'_>, count: usize, round: usize| Workload {
        lookups: {
            let part = part_of(round, count, all.len());
            Lookups { keys: &all.keys[part.clone()], expected: &all.expected[part] }
        },
        batch: peer.row.keys_per_call as usize,
        warm_up: Some(&all.keys[..(count / 10).clamp(1, all.len())]),
        ..*workload
    };
    let (mut mismatches, mut counts) = (Vec::new(), Vec::new());
    let [compared, tried] = [COMPARED, TRIED].map(|most| most.min(workload.dataset.len()).max(1));
    for peer in &peers {
        mismatches.push(peer.system.verify(&of(peer, compared, 0), bar)?.mismatches);
        counts.push(count_for(tried, arguments.seconds, |count| {
            let begun = Instant::now();
            peer.system.throughput(&of(peer, count, 0))?;
            Ok(begun.elapsed())
        })?);
    }
    let rounds = arguments.rounds as usize;
    let mut passes = vec![Vec::new(); peers.len()];
    bar.during("measuring, in turns", (rounds * peers.len()) as u64, || -> anyhow::Result<()> {
        for round in 0..rounds {
            for turn in 0..peers.len() {
                let which = (round + turn) % peers.len();
                let workload = of(&peers[which], counts[which], round);
                passes[which].push(peers[which].system.throughput(&workload)?);
                fpcache_datasets::Progress::advance(bar, (round * peers.len() + turn + 1) as u64);
            }
        }
        Ok(())
    })?;
    let mut figures = Vec::new();
    for (at, peer) in peers.iter().enumerate() {
        let latency =
            bar.during("measuring latency", 1, || peer.system.latency(&of(peer, counts[at], rounds)))?;
        let lookups = counts[at].min(all.len());
        figures
            .push(Figures::new(lookups, &passes[at], &latency, mismatches[at]).context("no pass was run")?);
    }
    let mut figures = figures.into_iter();
    let with_figures = |(at, row): &(Option<usize>, PeerRow)| PeerRow {
        figures: at.and_then(|_| figures.next()),
        ..row.clone()
    };
    Ok(made.rows.iter().map(with_figures).collect())
}

/// Where in a stream of so many lookups those of a pass stand: one after the other, from the beginning again where they end, so that
/// systems with shorter passes meet other keys in each.
fn part_of(round: usize, count: usize, all: usize) -> Range<usize> {
    let count = count.min(all);
    let begin = round.wrapping_mul(count) % (all - count + 1);
    begin..begin + count
}

/// Lookups that take about so many seconds, but no fewer than are `tried` first.
fn count_for(
    tried: usize,
    seconds: f64,
    mut time: impl FnMut(usize) -> anyhow::Result<Duration>,
) -> anyhow::Result<usize> {
    let mut count = tried;
    loop {
        let took = time(count)?.as_secs_f64();
        // A short try says little: a longer one follows.
        if took > seconds / 8.0 || count >= LOOKUPS as usize {
            let wanted = count as f64 * seconds / took.max(1e-9);
            return Ok((wanted as usize).clamp(tried, LOOKUPS as usize));
        }
        count *= 4;
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

    #[test]
    fn passes_that_are_shorter_than_the_stream_meet_other_lookups_each() {
        assert_eq!([0, 1, 2].map(|round| part_of(round, 100, 1_000)), [0..100, 100..200, 200..300]);
        assert_eq!([0, 1].map(|round| part_of(round, 2_000, 1_000)), [0..1_000, 0..1_000]);
        for (round, count) in (0..50).flat_map(|round| [(round, 1), (round, 30), (round, 99), (round, 100)]) {
            let part = part_of(round, count, 100);
            assert!(part.len() == count && part.end <= 100, "{round}: {part:?}");
        }
    }
}
