//! Rounds of calls by several clients, with a kill of the memory node in the middle of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{CreateOptions, KeyKind, Plan, PlanChoice, TableParameters, Tables};
use fpcache_eval::history::client::{ClientStore, every_way, every_way_over_sockets};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{History, Operation, Outcome, Recorder, check, nanoseconds_since};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::caller::Caller;
use super::place::{Node, Place, Reached};
use super::tables::{KEYS, THREADS, connect, key, patient, table_name};

/// What a kill leaves behind.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Loss {
    /// The process is gone.
    Process,
    /// The machine was started anew.
    Machine,
}

/// Clients' threads over a memory node that is killed once per round.
pub(super) struct Test<K: NumberedKeys> {
    pub(super) place: Place,
    pub(super) node: Option<Node>,
    pub(super) callers: Vec<Caller<K>>,
    random: Xoshiro256PlusPlus,
    rounds: usize,
    /// What each table held when the last round was over, and the writes of which that does not say
    /// whether they were done.
    contents: Vec<BTreeMap<u64, u64>>,
    open: Vec<Vec<Operation>>,
    pub(super) operations: usize,
    /// Writes without an answer.
    pub(super) unknown: usize,
    /// Operations that were answered by the tables of groups.
    pub(super) by_groups: usize,
}

const READER: u32 = 1_000;

impl<K: NumberedKeys> Test<K> {
    pub(super) fn new(place: Place, seed: u64) -> Self {
        Self::over(&[K::small_segments()], place, seed)
    }

    /// Over tables of these parameters.
    pub(super) fn over(parameters: &[TableParameters], place: Place, seed: u64) -> Self {
        let node = place.start();
        let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
        let tables = parameters.len();
        for (table, parameters) in parameters.iter().enumerate() {
            if table > 0 {
                let all = Tables::connect(&place.url()).unwrap();
                all.create(&table_name(table), kind, CreateOptions::default()).unwrap();
            }
            let config = patient().with_table(table_name(table));
            let keys: Vec<u64> = (0..KEYS).map(key).collect();
            ClientStore::create_table_of(&connect::<K>(&place.url(), config), &keys, *parameters).unwrap();
        }
        let ways = match place.reached {
            Reached::SharedMemory => every_way(patient(), 64 << 10),
            _ => every_way_over_sockets(patient(), 64 << 10),
        };
        let by_groups = patient().with_plan(PlanChoice::Fixed(Plan::Groups));
        let caller = |number: u32| {
            let (mut name, mut config) = ways[(number as usize * 3 + seed as usize) % ways.len()].clone();
            let table = number as usize % tables;
            // One caller of each table at least.
            if parameters[table].groups.is_some() && (number as usize) < tables {
                (name, config) = ("groups".to_owned(), by_groups.clone());
            }
            let config = config.with_table(table_name(table));
            let store = ClientStore::new(connect(&place.url(), config));
            let (store, name) = match number % 2 {
                0 => (store, name),
                _ => (store.with_reader(), format!("{name}, reader")),
            };
            Caller {
                number,
                name,
                store,
                random: Xoshiro256PlusPlus::seed_from_u64(seed << 8 | u64::from(number)),
                written: 0,
                tokens: HashMap::new(),
                table,
                inserted: 0,
                deleted: 0,
                first_failure: None,
            }
        };
        let callers = (0..THREADS).map(caller).collect();
        let random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let (contents, open) = (vec![BTreeMap::new(); tables], vec![Vec::new(); tables]);
        let (rounds, operations, unknown, by_groups) = (0, 0, 0, 0);
        Self {
            place,
            node: Some(node),
            callers,
            random,
            rounds,
            contents,
            open,
            operations,
            unknown,
            by_groups,
        }
    }

    /// Some time, short ones as likely as long ones.
    fn nap(&mut self, longest_us: u64) {
        let most = self.random.random_range(1..=longest_us);
        thread::sleep(Duration::from_micros(self.random.random_range(0..=most)));
    }

    /// Kills the memory node, perhaps also its successors before they have begun, and starts
    /// another: of a process that ended often as soon as it has the signal, while the kernel is
    /// still taking it down.
    fn kill(&mut self, loss: Loss) {
        // Waited for at the end.
        let mut ending = Vec::new();
        let mut strike = |mut node: Node, at_once: bool| {
            node.0.kill().unwrap();
            if at_once { ending.push(node) } else { drop(node) }
        };
        let at_once = loss == Loss::Process && self.random.random_bool(0.6);
        strike(self.node.take().unwrap(), at_once);
        if loss == Loss::Machine {
            // Until all clients have noticed: none reads the memory of a machine that is off.
            thread::sleep(Duration::from_millis(200));
            self.place.lose_memory();
        }
        while self.random.random_bool(0.4) {
            let node = self.place.begin();
            self.nap(30_000);
            let at_once = self.random.random_bool(0.6);
            strike(node, at_once);
        }
        self.node = Some(self.place.start());
    }

    pub(super) fn run(&mut self, rounds: usize, loss: Loss) {
        (0..rounds).for_each(|_| self.round(loss));
    }

    /// Further rounds until there was enough of what only time brings, at most these: a machine may
    /// be slow.
    pub(super) fn run_on(&mut self, most_rounds: usize, loss: Loss, enough: impl Fn(&Self) -> bool) {
        for _ in 0..most_rounds {
            if enough(self) {
                break;
            }
            self.round(loss);
        }
    }

    fn round(&mut self, loss: Loss) {
        let instants = nanoseconds_since(Instant::now());
        let logs = self.killed_amid_calls(loss, &instants);
        // Each table has a history of its own.
        for table in 0..self.contents.len() {
            let mut reader = Recorder::new(READER, "reader between rounds", instants.clone());
            let users: Vec<_> = (0..logs.len()).filter(|&place| self.callers[place].table == table).collect();
            let mut of_table: Vec<_> = users.iter().map(|&place| logs[place].clone()).collect();
            let after = self.callers[users[self.rounds % users.len()]].read_all(&mut reader);
            of_table.push(reader);
            let before = std::mem::replace(&mut self.contents[table], after);
            let history = History::merge(before, of_table).carry(std::mem::take(&mut self.open[table]));
            let checked = check(&history).unwrap();
            assert!(checked.is_linearizable(), "round {}, table {table}: {checked:#?}", self.rounds);
            self.operations += checked.operations;
            let is_unknown = |operation: &&Operation| {
                operation.outcome == Outcome::Unknown && operation.call.writes() && operation.invoked > 0
            };
            self.unknown += history.operations().iter().filter(is_unknown).count();
            let is_by_groups = |operation: &&Operation| operation.plan == Some(Plan::Groups);
            self.by_groups += history.operations().iter().filter(is_by_groups).count();
            self.open[table] = history.undecided_writes();
        }
        self.rounds += 1;
    }

    /// What the callers saw of a round.
    fn killed_amid_calls<C: Fn() -> u64 + Clone + Send + Sync>(
        &mut self,
        loss: Loss,
        instants: &C,
    ) -> Vec<Recorder<C>> {
        let (is_over, met) = (AtomicBool::new(false), Barrier::new(THREADS as usize + 1));
        let mut callers = std::mem::take(&mut self.callers);
        let logs = thread::scope(|scope| {
            let running: Vec<_> = callers
                .iter_mut()
                .map(|caller| {
                    let log = Recorder::new(caller.number, caller.name.clone(), instants.clone());
                    let (is_over, met) = (&is_over, &met);
                    scope.spawn(move || caller.run(met, is_over, log))
                })
                .collect();
            met.wait();
            self.nap(400_000 * self.place.patience());
            self.kill(loss);
            self.nap(100_000 * self.place.patience());
            is_over.store(true, Ordering::Relaxed);
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        self.callers = callers;
        logs
    }

    pub(super) fn contents(&mut self) -> BTreeMap<u64, u64> {
        self.callers[0].read_all(&mut Recorder::new(READER, "", || 0))
    }
}
