//! Several tables at one memory node, whose life is drawn from a seed: they are made, loaded,
//! dropped, and made anew under the same names with keys of either kind, while clients that hold
//! handles of earlier ones read and write, and the memory node ends and begins. Each name has a
//! history, in which a drop removes every key: a record of another table, or of an earlier one once
//! its drop was answered, has no place in it, and no acknowledged write may be missing.
//!
//! These worlds are of real memory and files. In half of them one call follows the other in an
//! order that the seed gives; in the others threads make them at once, and the memory node ends in
//! the midst of them. In worlds of a second kind the disk refuses to make, rename or remove the
//! folders of some tables: those that are not made are not there, and those that are not dropped have
//! everything after the next start.

mod caller;
#[cfg(feature = "sabotage")]
mod drops;
mod manager;
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{KeyKind, Tables};
use fpcache_eval::history::{Call, History, Outcome, Recorder, check, nanoseconds_since};
use fpcache_fabric::Serving;
use fpcache_sim::{Random, SEED_VARIABLE, SEEDS_VARIABLE};

use caller::Caller;
use manager::Manager;
use place::{Place, go_by_modes, name};

const TABLES: usize = 3;
/// Keys of each table.
const KEYS: u64 = 12;
const APART: u64 = 7;
/// The time of a call, beyond what any takes but those that wait for a table that is gone.
const DEADLINE: Duration = Duration::from_millis(40);
/// And of requests about tables, and of the last reads.
const PATIENCE: Duration = Duration::from_secs(20);

fn keys() -> impl Iterator<Item = u64> {
    (1..=KEYS).map(|place| place * APART)
}

type Log = Recorder<fn() -> u64>;

/// Instants of histories.
fn now() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    nanoseconds_since(*BEGUN)()
}

/// One log for each table.
fn logs(process: u32, who: &str) -> Vec<Log> {
    (0..TABLES).map(|_| Log::new(process, who, now)).collect()
}

/// What is known by all who call.
#[derive(Debug, Default)]
struct Known {
    /// Which tables there are, as far as it is known: a call to one that is gone tells nothing.
    tables: [AtomicBool; TABLES],
    /// How often the memory node began anew without the memory that its readers have mapped.
    lost: AtomicU64,
}

type There = Arc<Known>;

/// What happened in many worlds.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    worlds: u64,
    operations: u64,
    unknown: u64,
    made: u64,
    dropped: u64,
    loaded: u64,
    /// Calls by callers one after the other, and those of them that were answered.
    calls: u64,
    answered: u64,
    /// Ends of the memory node, those while calls were under way among them, and starts without the
    /// memory of the process before.
    ends: u64,
    ends_amid_calls: u64,
    without_memory: u64,
    /// Tables that the disk refused to make or drop.
    refused: u64,
}

struct World {
    place: Place,
    serving: Option<Serving>,
    random: Random,
    callers: Vec<Caller>,
    managers: Vec<Manager>,
    /// What its own end does to tables in memory.
    logs: Vec<Log>,
    tally: Tally,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7ab1_e5ee);
        let place = Place::new(&mut random);
        Self::at(place, seed, random)
    }

    /// A world whose disk refuses to make or drop some tables.
    fn on_failing_disk(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7ab1_fa11);
        let place = Place::new(&mut random).failing();
        Self::at(place, seed, random)
    }

    fn at(place: Place, seed: u64, mut random: Random) -> Self {
        let there = There::default();
        let count = random.between(2, 4) as u32;
        let caller = |number| {
            let logs = logs(number, "caller");
            Caller::new(number, place.url(), Random::new(seed ^ u64::from(number) << 32), logs, &there)
        };
        let callers = (0..count).map(caller).collect();
        let manager = |table| {
            let number = count + table as u32;
            let log = Log::new(number, "manager", now);
            let random = Random::new(seed ^ u64::from(number) << 32);
            Manager::new(number, table, &place, random, log, &there)
        };
        let serving = Some(place.start());
        let managers = (0..TABLES).map(manager).collect();
        let logs = logs(count + TABLES as u32, "memory node");
        let tally = Tally { worlds: 1, ..Tally::default() };
        Self { place, serving, random, callers, managers, logs, tally }
    }

    /// Everybody's calls, one after the other.
    fn one_by_one(&mut self) {
        for _ in 0..self.random.between(10, 40) {
            let who = self.random.below((self.callers.len() + TABLES) as u64 + 2) as usize;
            match who.checked_sub(TABLES) {
                None => self.manage(who),
                Some(caller) => {
                    let count = self.callers.len();
                    self.callers[caller % count].step();
                }
            }
        }
    }

    /// A table is made, loaded or dropped, which the disk may refuse. One that is closed for that is
    /// as it was after the next start.
    fn manage(&mut self, who: usize) {
        let refuses = self.place.is_failing && self.random.below(2) == 0;
        if refuses {
            self.place.refuse(&mut self.random);
        }
        self.managers[who].may_be_refused = refuses;
        if self.managers[who].step() {
            self.callers.iter_mut().for_each(|caller| caller.read_held(who));
            if !self.managers[who].is_closed {
                self.managers[who].make_anew();
            }
        }
        if refuses {
            self.place.mend();
        }
        if self.managers[who].is_closed {
            self.end();
        }
    }

    /// Everybody's calls at once, and perhaps the memory node's end.
    fn at_once(&mut self) {
        let ends = self.random.below(2) == 0;
        let after = Duration::from_micros(self.random.between(100, 6_000));
        let steps: Vec<u64> = self.callers.iter().map(|_| self.random.between(5, 25)).collect();
        let acts: Vec<u64> = self.managers.iter().map(|_| self.random.between(0, 3)).collect();
        let there = Arc::clone(&self.callers[0].there);
        let Self { callers, managers, place, serving, logs, .. } = self;
        thread::scope(|scope| {
            for (caller, steps) in callers.iter_mut().zip(steps) {
                scope.spawn(move || (0..steps).for_each(|_| caller.step()));
            }
            for (manager, acts) in managers.iter_mut().zip(acts) {
                scope.spawn(move || {
                    (0..acts).for_each(|_| {
                        if manager.step() {
                            manager.make_anew();
                        }
                    });
                });
            }
            if ends {
                thread::sleep(after);
                end_and_begin(place, serving, (logs, &there), false);
            }
        });
        self.tally.ends += u64::from(ends);
        self.tally.ends_amid_calls += u64::from(ends);
        if ends {
            self.compare_tables();
        }
    }

    /// The memory node ends, and its successor has its memory or, where the disk has all, has none.
    fn end(&mut self) {
        let loses = self.place.may_lose_memory() && self.random.below(2) == 0;
        let there = &self.callers[0].there;
        end_and_begin(&self.place, &mut self.serving, (&mut self.logs, there), loses);
        self.tally.ends += 1;
        self.tally.without_memory += u64::from(loses);
        self.compare_tables();
    }

    /// Compares the tables there are after an end with those that were made and not dropped.
    fn compare_tables(&mut self) {
        let tables = Tables::connect(&self.place.url()).expect("it is up");
        let listed = tables.list().expect("it is up").tables;
        let listed: BTreeMap<_, KeyKind> = listed.iter().map(|table| (table.name, table.kind)).collect();
        let names: BTreeSet<_> = self.managers.iter().map(|manager| name(manager.table)).collect();
        assert!(listed.keys().all(|name| names.contains(name)), "nobody made all of {listed:?}");
        for manager in &mut self.managers {
            manager.compare(listed.get(&name(manager.table)).copied());
        }
    }

    /// Everything once more, by clients that come anew.
    fn read_all(&mut self, number: u32) -> Vec<Log> {
        let there = Arc::clone(&self.callers[0].there);
        let logs = logs(number, "last reader");
        let mut reader = Caller::new(number, self.place.url(), self.random.split(), logs, &there);
        self.compare_tables();
        for manager in self.managers.iter().filter(|manager| manager.kind.is_some()) {
            reader.read_all(manager.table);
        }
        reader.logs
    }

    fn play(mut self) -> Result<Tally, String> {
        let one_by_one = self.random.below(2) == 0 || self.place.is_failing;
        self.managers.iter_mut().for_each(|manager| manager.is_alone = one_by_one);
        for _ in 0..self.random.between(2, 5) {
            match one_by_one {
                true => self.one_by_one(),
                false => self.at_once(),
            }
            if self.random.below(2) == 0 {
                self.end();
            }
        }
        let first = (self.callers.len() + TABLES + 1) as u32;
        let mut all = vec![self.read_all(first)];
        self.end();
        all.push(self.read_all(first + 1));
        stop(&mut self.serving);
        self.judge(all, one_by_one)
    }

    fn judge(mut self, read: Vec<Vec<Log>>, one_by_one: bool) -> Result<Tally, String> {
        for table in 0..TABLES {
            let callers = self.callers.iter().map(|caller| caller.logs[table].clone());
            let of_table = callers.chain([self.managers[table].log.clone(), self.logs[table].clone()]);
            let history = History::merge([], of_table.chain(read.iter().map(|logs| logs[table].clone())));
            let checked = check(&history).map_err(|error| format!("table {table}: {error}"))?;
            if let Some(violation) = checked.violations.first() {
                return Err(format!("the history of table {table} has no order: {violation}"));
            }
            assert!(checked.is_linearizable(), "a history of a few hundred operations is decided");
            self.tally.operations += history.operations().len() as u64;
            let unknown = |outcome: Outcome| outcome == Outcome::Unknown;
            self.tally.unknown += history.operations().iter().filter(|o| unknown(o.outcome)).count() as u64;
        }
        for manager in &self.managers {
            self.tally.made += manager.made;
            self.tally.dropped += manager.dropped;
            self.tally.loaded += manager.loaded;
            self.tally.refused += manager.refused;
        }
        for caller in self.callers.iter().filter(|_| one_by_one) {
            self.tally.calls += caller.calls;
            self.tally.answered += caller.answered;
        }
        Ok(self.tally)
    }
}

/// Ends the memory node; if it panicked, so does this.
fn stop(serving: &mut Option<Serving>) {
    serving.take().expect("it serves").stop().expect("it served to the end");
}

/// Ends the memory node and starts another on what it left: tables that are in memory alone are
/// gone with it.
fn end_and_begin(
    place: &Place,
    serving: &mut Option<Serving>,
    (logs, there): (&mut [Log], &There),
    loses_memory: bool,
) {
    let clears: Vec<Vec<_>> = match place.is_durable() {
        true => Vec::new(),
        false => {
            let all = |log: &mut Log| keys().map(|key| log.invoke(key, Call::Clear)).collect();
            logs.iter_mut().map(all).collect()
        }
    };
    stop(serving);
    if loses_memory {
        place.lose_memory();
    }
    *serving = Some(place.start());
    there.lost.fetch_add(u64::from(loses_memory || !place.is_durable()), Ordering::SeqCst);
    for (log, clears) in logs.iter_mut().zip(clears) {
        clears.into_iter().for_each(|clear| log.returned(clear, Outcome::Done, None));
    }
}

/// Plays a world; a panic fails it as a wrong history does.
fn play(world: World) -> Result<Tally, String> {
    catch_unwind(AssertUnwindSafe(|| world.play())).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(said.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned())).unwrap_or_default())
    })
}

fn number_in(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// What happened in the worlds with seeds from `first` on, and how many there were.
fn play_all(first: u64, make: impl Fn(u64) -> World) -> (u64, Tally) {
    let seeds = match (number_in(SEED_VARIABLE), number_in(SEEDS_VARIABLE)) {
        (Some(seed), _) => seed..seed + 1,
        // One takes as long as many that are simulated.
        (None, count) => first..first + (count.unwrap_or(12) / 6).max(1),
    };
    let count = seeds.end - seeds.start;
    let mut tally = Tally::default();
    for seed in seeds {
        let one = play(make(seed));
        let one =
            one.unwrap_or_else(|why| panic!("seed {seed}: {why}\nonly this one: {SEED_VARIABLE}={seed}"));
        tally.add(&one);
    }
    println!("tables: {tally:?}");
    (count, tally)
}

#[test]
fn tables_that_are_made_anew_show_nothing_of_those_before_and_lose_no_write() {
    let (count, tally) = play_all(16_000_000, World::new);
    if count >= 10 {
        assert!(tally.made > 3 * count && tally.dropped > count && tally.loaded > count / 2, "{tally:?}");
        assert!(tally.ends > count && tally.ends_amid_calls > count / 4, "{tally:?}");
        assert!(tally.without_memory > count / 20, "{tally:?}");
        assert!(2 * tally.answered > tally.calls, "most calls have an answer: {tally:?}");
        assert!(tally.unknown < tally.operations / 4, "{tally:?}");
    }
}

#[test]
fn tables_that_the_disk_refuses_to_make_or_drop_are_as_was_acknowledged() {
    // The superuser is refused nothing.
    let played = thread::spawn(|| {
        go_by_modes();
        play_all(19_000_000, World::on_failing_disk)
    });
    let (count, tally) = played.join().expect("every world is right");
    if count >= 10 {
        assert!(tally.refused > count && tally.dropped > count / 2 && tally.ends > count, "{tally:?}");
        assert!(2 * tally.answered > tally.calls, "most calls have an answer: {tally:?}");
    }
}

#[test]
fn a_table_that_an_end_of_the_memory_node_loses_is_found() {
    let found = (1..=10).find_map(|world| {
        let mut world = World::new(18_000_000 + world);
        world.place.loses_a_table = true;
        play(world).err()
    });
    let why = found.expect("it is found");
    assert!(why.contains("there is None"), "{why}");
}

impl Tally {
    fn add(&mut self, one: &Self) {
        self.worlds += one.worlds;
        self.operations += one.operations;
        self.unknown += one.unknown;
        self.made += one.made;
        self.dropped += one.dropped;
        self.loaded += one.loaded;
        self.calls += one.calls;
        self.answered += one.answered;
        self.ends += one.ends;
        self.ends_amid_calls += one.ends_amid_calls;
        self.without_memory += one.without_memory;
        self.refused += one.refused;
    }
}
