//! Bits flip in the region: of records' words, lengths, bodies and fingerprints, of values outside
//! them, of free slots, of tables of groups. Every key has one process that writes it, and so knows
//! what the store may answer. All keys are answered as ever, or by an error, also while they are
//! damaged and when the memory node has begun anew; but those whose fingerprint or key was damaged
//! may be absent, or as they were at some time. No step panics. At the end what is damaged is
//! written again: then every byte is right, and there is a snapshot.

mod mend;

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fpcache_client::{
    ByteKeys, ClientConfig, ClientError, ErrorKind, Inserted, KeyRef, Plan, PlanChoice, TableClient, U64Keys,
};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_memserver::durability::SyncPolicy;
use fpcache_sim::{Faults, NodeId, Process, Random, SimOptions, Verdict, World, explore};

use mend::{mend, others};

use crate::caller::connect;
use crate::flips::{Flipped, Flips, Target};
use crate::node::{Durability, Ending, NodeShape, Stage, first_value};
use crate::play::{DEADLINE, any_way, fitting};
use crate::{GROUPS, STORM_OVER_CLIENTS, STORM_OVER_MACHINES, any_sync, few};

const WRITERS: u64 = 2;
const KEYS: u64 = 40;
/// Their numbers lie so far apart: others fit between.
const APART: u64 = 4;
/// The time of a call. Who reads a damaged record spends all of it.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a key's only writer knows of it: a value, or that there is none.
#[derive(Clone, Debug, Default)]
struct Known {
    may_be: BTreeSet<Option<u64>>,
    /// What writes would leave whose outcome is unknown: they may come at any time.
    late: BTreeSet<Option<u64>>,
    ever: BTreeSet<Option<u64>>,
}

type AllKnown = Arc<Mutex<BTreeMap<u64, Known>>>;

/// The results of many worlds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    worlds: u64,
    flips: BTreeMap<Target, u64>,
    calls: u64,
    /// Calls for damaged keys that ended in an error, and for others.
    errors: u64,
    errors_of_others: u64,
    restored: u64,
    resumed: u64,
    /// Worlds in which everything damaged was written again, and of these such with a snapshot.
    mended: u64,
    with_snapshot: u64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One process, which alone writes its keys.
struct Writer<K: NumberedKeys> {
    process: Process,
    client: TableClient<K>,
    number: u64,
    written: u64,
    shared: Shared<K>,
}

impl<K: NumberedKeys> Writer<K> {
    fn is_damaged(&self, key: u64) -> bool {
        self.shared.stage.flipped(false).keys.contains_key(&key)
    }

    fn may_be_missed(&self, key: u64) -> bool {
        self.shared.stage.flipped(false).unsure.contains(&key)
    }

    /// Notes what a call for a key said of it, unless that cannot be.
    fn told(&self, key: u64, what: &str, can_be: impl Fn(Option<u64>) -> bool, now: Option<u64>) {
        let mut all = lock(&self.shared.known);
        let known = all.get_mut(&key).expect("a key of this process");
        if self.may_be_missed(key) {
            // Its record may not be found, and that of before is there again once it is.
            let was_so = known.ever.iter().any(|value| can_be(*value)) || can_be(None);
            assert!(was_so, "{what} of key {key}, which may be missed, left as {now:?}: it was {known:?}");
            return;
        }
        let could_be = known.may_be.iter().chain(&known.late).any(|value| can_be(*value));
        assert!(could_be, "{what} of key {key}, left as {now:?}: it was {known:?}");
        known.may_be = BTreeSet::from([now]);
    }

    /// Notes that a call ended in an error.
    fn failed(&self, key: u64, error: &ClientError) {
        let kind = error.kind();
        assert!(kind != ErrorKind::Internal && kind != ErrorKind::Invalid, "{error}");
        let mut tally = lock(&self.shared.tally);
        match self.is_damaged(key) {
            true => tally.errors += 1,
            false => tally.errors_of_others += 1,
        }
    }

    fn read(&self, key: u64) {
        let mut bytes = Vec::new();
        match self.client.get_into(KeyRef::<K>(K::key(key).borrow()), &mut bytes) {
            Ok(answer) => {
                let found = answer.version.map(|_| ClientStore::<K>::decode(&bytes));
                self.told(key, "a read", |value| value == found, found);
            }
            Err(error) => self.failed(key, &error),
        }
    }

    fn change(&mut self, key: u64) {
        let kind = self.process.random.below(4);
        _ = self.write(key, kind);
    }

    /// Inserts, puts, updates or deletes a key; an error if it is unknown whether that was done, or
    /// it was refused.
    fn write(&mut self, key: u64, kind: u64) -> Result<bool, ClientError> {
        self.written += 1;
        let (value, flips) = ((self.number + 1) << 40 | self.written, self.shared.stage.flipped(false).count);
        let leaves = if kind == 3 { None } else { Some(value) };
        {
            let mut all = lock(&self.shared.known);
            let known = all.get_mut(&key).expect("a key of this process");
            known.ever.insert(leaves);
            known.late.insert(leaves);
        }
        let mut bytes = Vec::new();
        ClientStore::<K>::encode(value, &mut bytes);
        let owned = K::key(key);
        let named = KeyRef::<K>(owned.borrow());
        let done = match kind {
            0 => self.client.insert(named, &bytes).map(Inserted::is_new),
            1 => self.client.put(named, &bytes).map(|_| true),
            2 => self.client.update(named, &bytes),
            _ => self.client.delete(named),
        };
        // An insert or a put of none, or whatever else there has to be.
        let wants = |value: Option<u64>| kind == 1 || value.is_none() == (kind == 0);
        let is_certain = match &done {
            Ok(true) => {
                self.told(key, "a write", wants, leaves);
                if kind != 0 {
                    self.shared.stage.is_written(key, flips);
                }
                true
            }
            Ok(false) => {
                self.refused(key, kind == 0);
                true
            }
            Err(error) => {
                self.failed(key, error);
                !error.may_have_taken_effect()
            }
        };
        if is_certain {
            lock(&self.shared.known).get_mut(&key).expect("as before").late.remove(&leaves);
        }
        done
    }

    /// Notes that a write changed nothing, because the key was there or was not.
    fn refused(&self, key: u64, was_there: bool) {
        let mut all = lock(&self.shared.known);
        let known = all.get_mut(&key).expect("a key of this process");
        let is_so = |value: &Option<u64>| value.is_some() == was_there;
        if self.may_be_missed(key) {
            let was_so = !was_there || known.ever.iter().any(is_so);
            assert!(was_so, "key {key}, which may be missed, was there: not {known:?}");
            return;
        }
        let late: Vec<_> = known.late.iter().copied().filter(is_so).collect();
        known.may_be.retain(is_so);
        assert!(
            !known.may_be.is_empty() || !late.is_empty(),
            "key {key} was there: {was_there}, not {known:?}"
        );
        known.may_be.extend(late);
    }

    /// Nothing is damaged any more: a scan finds what single reads do.
    fn scan_all(&self) {
        let records = self.client.scan(KeyRef::<K>(K::lowest()), usize::MAX).expect("nothing is damaged");
        let found: BTreeMap<u64, u64> = records
            .iter()
            .map(|(key, value)| (K::number(key.borrow()), ClientStore::<K>::decode(value)))
            .collect();
        assert_eq!(found.len(), records.len(), "every key once: {records:?}");
        for (key, known) in &*lock(&self.shared.known) {
            let value = found.get(key).copied();
            let is_known = known.may_be.contains(&value) || known.late.contains(&value);
            let is_old = self.may_be_missed(*key) && (value.is_none() || known.ever.contains(&value));
            assert!(is_known || is_old, "a scan finds {value:?} of key {key}, not {known:?}");
        }
    }

    fn run(&mut self, calls: u64) {
        for _ in 0..calls {
            let key = (self.process.random.below(KEYS / WRITERS) * WRITERS + self.number) * APART;
            lock(&self.shared.tally).calls += 1;
            match self.process.random.below(5) {
                0..3 => self.change(key),
                _ => self.read(key),
            }
        }
    }
}

/// How one world's memory node keeps what it acknowledges.
type Keeps = fn(&mut Random) -> Option<Durability>;

pub fn bits_flip(world: &mut World, shape: NodeShape, tally: &RefCell<Tally>) -> Verdict {
    match has_bytes(world.seed()) {
        true => bits_flip_over::<ByteKeys>(world, shape, tally),
        false => bits_flip_over::<U64Keys>(world, shape, tally),
    }
}

/// Whether a world's keys are byte strings, so that some values lie outside slots.
fn has_bytes(seed: u64) -> bool {
    Random::new(seed ^ 0xb17e).below(3) == 0
}

/// What a world's memory node is made of.
pub fn shape(seed: u64, durability: Option<Durability>) -> NodeShape {
    let mut random = Random::new(seed ^ 0xf11b_0b17);
    let groups = (random.below(3) == 0).then(|| GROUPS[random.below(GROUPS.len() as u64) as usize]);
    let often = |is_there| if is_there { 6 } else { 1 };
    let flips = Flips {
        often: [8, 30, 100][random.below(3) as usize],
        most: random.between(1, 8),
        keys: keys().collect(),
        targets: [
            (Target::Record, 4),
            (Target::FreeSlot, 2),
            (Target::Value, often(has_bytes(seed))),
            (Target::Groups, often(groups.is_some())),
        ],
        shows_keys: random.below(3) > 0,
    };
    NodeShape {
        region_bytes: [32 << 10, 64 << 10][random.below(2) as usize],
        loaded: keys().filter(|_| random.below(2) == 0).collect(),
        durability,
        snapshots: 64,
        wraps: 0,
        groups,
        stores_fingerprints: random.below(4) > 0,
        answers: random.below(4) == 0,
        lease: Duration::ZERO,
        flips: Some(flips),
        troubles: 0,
        #[cfg(feature = "sabotage")]
        sabotage: None,
    }
}

/// The keys that processes write.
fn keys() -> impl Iterator<Item = u64> {
    (0..KEYS).map(|number| number * APART)
}

/// What the processes of a world share.
#[derive(Clone)]
struct Shared<K: NumberedKeys> {
    stage: Stage<K>,
    node: NodeId,
    known: AllKnown,
    tally: Arc<Mutex<Tally>>,
}

impl<K: NumberedKeys> Shared<K> {
    fn add(world: &mut World, shape: NodeShape) -> Self {
        let known_of = |key| {
            let value = shape.loaded.contains(&key).then(|| first_value(key));
            let ever = BTreeSet::from([value]);
            (key, Known { may_be: BTreeSet::from([value]), late: BTreeSet::new(), ever })
        };
        let known = Arc::new(Mutex::new(keys().chain(others()).map(known_of).collect()));
        let (stage, node) = Stage::<K>::add(world, shape);
        Self { stage, node, known, tally: Arc::default() }
    }

    fn writer(&self, process: Process, number: u64, config: ClientConfig) -> Writer<K> {
        let client = connect(&process, self.node, config);
        Writer { process, client, number, written: 0, shared: self.clone() }
    }

    /// Reads every key; and scans where nothing can be damaged any more.
    fn read_all(&self, process: Process, scans: bool) {
        let patience = if scans { DEADLINE } else { PATIENCE };
        let reader = self.writer(process, 0, ClientConfig::default().with_deadline(patience));
        keys().for_each(|key| reader.read(key));
        if scans {
            reader.scan_all();
        }
    }
}

fn bits_flip_over<K: NumberedKeys>(world: &mut World, shape: NodeShape, tally: &RefCell<Tally>) -> Verdict {
    let durability = shape.durability;
    let ends_machine = durability.is_some_and(|durability| durability.ending == Ending::Machine);
    let has_groups = shape.groups.is_some();
    let mut random = Random::new(world.seed() ^ 0xca11_e250);
    #[cfg(feature = "sabotage")]
    let sabotage = shape.sabotage;
    let shared = Shared::<K>::add(world, shape);
    for number in 0..WRITERS {
        let (name, mut config) = any_way(&mut random);
        config.deadline = PATIENCE;
        config.cache = config.cache.map(fitting::<K>);
        if has_groups && random.below(3) > 0 {
            config = config.with_plan(PlanChoice::Fixed(Plan::Groups));
        }
        #[cfg(feature = "sabotage")]
        {
            config = config.with_sabotage(sabotage);
        }
        let (calls, shared) = (random.between(60, 150), shared.clone());
        world.spawn(&name, move |process| shared.writer(process, number, config).run(calls));
    }
    world.run()?;
    let flipped = shared.stage.flipped(true);
    // Where a key itself is damaged, writing it may be refused: the remedy is to begin anew from
    // the disk.
    let begins_anew = ends_machine || durability.is_some() && !flipped.unsure.is_empty();
    if begins_anew {
        if !ends_machine {
            shared.stage.move_region_away();
        }
        let node = shared.node;
        world.spawn("power", move |process| process.sim.kill_node(node));
        world.run()?;
    }
    let last = shared.clone();
    world.spawn("last reader", move |process| last.read_all(process, begins_anew));
    world.run()?;
    let is_mended = begins_anew || flipped.unsure.is_empty();
    if is_mended {
        mend(world, &shared, durability.is_some())?;
    }
    if !world.settle(1_000_000) {
        return Err("the memory node does not come to rest".into());
    }
    match shared.stage.audit() {
        Err(error) if is_mended => return Err(format!("the audit finds: {error}").into()),
        _ => {}
    }
    let mut tally = tally.borrow_mut();
    tally.add(&lock(&shared.tally), &flipped, shared.stage.lives());
    tally.mended += u64::from(is_mended);
    tally.with_snapshot += u64::from(is_mended && durability.is_some());
    Ok(())
}

impl Tally {
    fn add(&mut self, of_world: &Self, flipped: &Flipped, (resumed, restored): (u64, u64)) {
        self.worlds += 1;
        for (target, flips) in &flipped.of {
            *self.flips.entry(*target).or_default() += flips;
        }
        self.calls += of_world.calls;
        self.errors += of_world.errors;
        self.errors_of_others += of_world.errors_of_others;
        self.resumed += resumed;
        self.restored += restored;
    }
}

fn run(kind: &str, first: u64, faults: Faults, keeps: Keeps) {
    let tally = RefCell::new(Tally::default());
    let options = SimOptions { faults, ..SimOptions::default() };
    let explored = explore(few(first), &options, |world: &mut World| {
        let durability = keeps(&mut Random::new(world.seed() ^ 0xd15c));
        bits_flip(world, shape(world.seed(), durability), &tally)
    });
    let tally = tally.into_inner();
    println!("bits flip, {kind}: {explored:?}, {tally:?}");
    if tally.worlds >= 50 {
        assert!(tally.flips.values().sum::<u64>() > tally.worlds && tally.errors > 0, "{tally:?}");
        assert!(tally.flips.len() == 4 && tally.mended * 2 > tally.worlds, "{tally:?}");
        assert!(tally.errors_of_others * 4 < tally.calls, "others are answered: {tally:?}");
        let is_durable = keeps(&mut Random::new(0)).is_some();
        assert!(!is_durable || tally.with_snapshot == tally.mended, "{tally:?}");
        assert!(!is_durable || tally.restored + tally.resumed > 0, "{tally:?}");
    }
}

#[test]
fn no_flipped_bit_makes_a_wrong_answer() {
    run("weather", 14_000_000, Faults::WEATHER, |_| None);
    run("storm over clients", 15_000_000, STORM_OVER_CLIENTS, |_| None);
}

#[test]
fn what_is_not_damaged_outlives_processes_and_machines() {
    run("processes end", 16_000_000, Faults::STORM, |random| {
        Some(Durability { sync: any_sync(random), ending: Ending::Process })
    });
    run("machines end", 17_000_000, STORM_OVER_MACHINES, |_| {
        Some(Durability { sync: SyncPolicy::Always, ending: Ending::Machine })
    });
}
