//! Random lives of a table on a disk that fails and fills up: its processes end at any store, its
//! machine ends, its region is lost. What was acknowledged stays, as far as `--fsync` promises it.
//! `FPCACHE_SIM_SEEDS=N` runs N worlds of each kind instead of some dozens.

#[path = "random_lives/asking_again.rs"]
mod asking_again;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use crate::common::keys::{Integers, LongValues, TestKeys};
use crate::common::requests::{Writer, batch, call_from, post, statuses, value};
use crate::common::world::{End, Mortal, Node, REGION, World, load, loaded, lost};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{ClientId, Service};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::store::UNKNOWN_BOOT;
use fpcache_memserver::{Origin, Recovery};

use asking_again::Asking;

/// SplitMix64, as the memory disk has it.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % most
    }
}

/// What may happen beside ends of processes.
#[derive(Clone, Copy, Debug)]
struct Rules {
    sync: SyncPolicy,
    /// The machine ends as well.
    machine: bool,
    /// Its starts are not told apart, so that every start is from the disk.
    unknown: bool,
    /// The disk fails.
    faults: bool,
}

type Value = Option<Vec<u8>>;

struct Lives<T: TestKeys> {
    rules: Rules,
    random: Random,
    world: World,
    node: Option<Node<T>>,
    /// What each key's value may be: one, but for writes whose outcome is open.
    may: BTreeMap<u64, Vec<Value>>,
    client: u64,
    /// Those that repeat their requests.
    asking: [Asking; 3],
    told: Vec<String>,
}

impl<T: TestKeys> Lives<T> {
    fn begin(rules: Rules, seed: u64) -> Self {
        let mut world = World::new(rules.sync, seed);
        if rules.unknown {
            world.boot = UNKNOWN_BOOT;
        }
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 12);
        let may = loaded::<T>(12).into_iter().map(|(key, value)| (key, vec![Some(value)])).collect();
        let (random, node, asking) = (Random(seed), Some(node), [0, 1, 2].map(Asking::new));
        Self { rules, random, world, node, may, client: 10, asking, told: Vec::new() }
    }

    fn node(&mut self) -> &mut Node<T> {
        self.node.as_mut().expect("it lives")
    }

    fn tell(&mut self, what: impl Debug) {
        self.told.push(format!("{what:?}"));
    }

    fn work(&mut self, most: u64) {
        (0..self.random.below(most)).for_each(|_| _ = self.node().work());
    }

    /// That each key has a value it may have. From here on it has that one, if it `is_settled`.
    fn check(&mut self, is_settled: bool) {
        let reader = Writer::<T>::new(1 << 40);
        let Some(node) = &mut self.node else { return };
        for (key, may) in &mut self.may {
            let found = reader.get(node, *key).map(|(value, _)| value);
            assert!(may.contains(&found), "key {key} is {found:?}, may be {may:?}");
            if is_settled {
                *may = vec![found];
            }
        }
    }

    /// A put or delete by a client of its own.
    fn write(&mut self) {
        let key = self.random.below(12) * 50 + self.random.below(2) * 5;
        let deletes = self.random.below(4) == 0;
        self.client += 1;
        let (client, new) = (self.client, value::<T>(key, self.client, 8));
        let (kind, bytes, new): (_, &[u8], Value) = match deletes {
            true => (WriteKind::Delete, &[], None),
            false => (WriteKind::Put, &new, Some(new.clone())),
        };
        let write = batch::<T>(&[(kind, key, bytes)]);
        let request = write.request(client, 1, false);
        let reply = statuses(&call_from::<T>(self.node(), ClientId(client), &request));
        self.tell((kind, key, client, &reply));
        let may = self.may.entry(key).or_insert_with(|| vec![None]);
        match reply.ok().and_then(|statuses| statuses.first().copied()) {
            Some(WriteStatus::Done) => *may = vec![new],
            Some(WriteStatus::Absent) => {
                assert!(may.contains(&None), "key {key} is absent, may be {may:?}");
                *may = vec![None];
            }
            Some(WriteStatus::NotDurable | WriteStatus::NoRoom) => {}
            _ => may.push(new),
        }
    }

    /// A request of a client that may have made it before.
    fn ask(&mut self) {
        let which = self.random.below(3) as usize;
        let (asking, node) = (&mut self.asking[which], self.node.as_mut().expect("it lives"));
        let may = self.may.entry(asking.key).or_insert_with(|| vec![None]);
        let told = asking.ask::<T>(node, &mut self.random, may);
        self.told.push(told);
    }

    fn break_disk(&mut self) {
        let (what, count) = (self.random.below(4), self.random.below(300));
        let few = count as u32 % 3;
        match what {
            0 => self.world.disk.fail_syncs(few + 1),
            1 => self.world.disk.fill_up_at_sync(few, 2),
            2 => self.world.disk.fail_appends(1),
            _ => self.world.disk.fill_up_after(count),
        }
        self.tell(("broken", what, count));
    }

    fn heal(&mut self) {
        self.world.disk.fail_syncs(0);
        self.world.disk.fail_appends(0);
        self.world.disk.fill_up_after(u64::MAX);
    }

    /// Some stores or changes of the disk after which a process ends.
    fn some(&mut self, stores: u64, changes: u64) -> End {
        match self.random.below(2) {
            0 => End::Stores(self.random.below(stores)),
            _ => End::Changes(self.random.below(changes)),
        }
    }

    /// A write within which the process ends, if it takes that long.
    fn end_within_write(&mut self) {
        let (key, end) = (self.random.below(12) * 50, self.some(60, 3));
        self.world.left.end_after(end);
        self.client += 1;
        let (client, new) = (self.client, value::<T>(key, self.client, 8));
        let write = batch::<T>(&[(WriteKind::Put, key, &new)]);
        let request = write.request(client, 1, false);
        let handled = post::<T>(self.node(), ClientId(client), &request).0;
        self.tell((key, client, "is the last", end, handled));
        self.may.entry(key).or_insert_with(|| vec![None]).push(Some(new));
    }

    /// A snapshot within which the process ends, if it takes that long, or while it removes what is
    /// not needed any more.
    fn end_within_snapshot(&mut self) {
        let end = self.some(200, 14);
        self.world.left.end_after(end);
        self.node().begin_snapshot();
        (0..30).for_each(|_| _ = self.node().work());
        self.tell(("ends within a snapshot", end));
    }

    /// The process ends, sometimes in the midst of something; with the region or the machine, or
    /// alone.
    fn end(&mut self) {
        match self.random.below(6) {
            0 => self.end_within_write(),
            1 | 2 => self.end_within_snapshot(),
            _ => {}
        }
        self.node = None;
        let how = self.random.below(4);
        self.tell(("ends", how));
        match how {
            0 if self.rules.machine => {
                self.world.disk = self.world.disk.crash();
                (self.world.region, self.world.recovery_area) = lost(&self.world.left);
            }
            1 | 2 if !self.rules.unknown => {}
            _ => self.world.region = Mortal::new(REGION, &self.world.left),
        }
    }

    /// A start that was not from memory, or ended before that is known, does not know all requests
    /// that were made.
    fn note_origin(&mut self, found: Option<&Recovery>) {
        if !found.is_some_and(|recovery| matches!(recovery.origin, Origin::Memory { .. })) {
            self.asking.iter_mut().for_each(|asking| asking.may_be_forgotten = true);
        }
    }

    /// The next process, perhaps after some that end before they serve: with a disk that works, if
    /// two have failed before.
    fn go_on(&mut self) {
        while self.random.below(4) == 0 {
            let end = self.some(4000, 12);
            let found = self.world.begin_and_end::<T>(end);
            self.tell(("ends within its start", end));
            self.note_origin(found.as_ref());
        }
        for tries in 0.. {
            match self.world.try_begin::<T>() {
                Ok((node, recovery)) => {
                    self.tell(recovery.to_string());
                    self.note_origin(Some(&recovery));
                    self.node = Some(node);
                    break;
                }
                Err(error) => {
                    assert!(tries < 2, "no start on a disk that works: {error}");
                    self.tell(error.to_string());
                }
            }
            if tries == 1 {
                self.heal();
            }
        }
        self.check(false);
        // What readers saw stays with `always`, if it is on the disk: on a full one it may not be.
        let stats = self.node().stats();
        self.check(
            self.rules.sync == SyncPolicy::Always && stats.synced >= stats.logged && stats.log_fails == 0,
        );
    }

    fn run(&mut self) {
        for _ in 0..self.random.below(120) + 30 {
            match self.random.below(40) {
                0..=16 => self.write(),
                17..=23 => self.ask(),
                24..=28 => self.work(12),
                29 => {
                    self.node().begin_snapshot();
                    self.work(30);
                }
                30..=32 if self.rules.faults => self.break_disk(),
                33 | 34 => self.world.disk.fill_up_after(u64::MAX),
                35..=38 => {
                    self.end();
                    self.go_on();
                }
                _ => self.check(false),
            }
        }
        self.heal();
        self.node = None;
        self.go_on();
        self.node().audit().expect("every byte is right");
    }
}

/// Says what happened before a check failed.
impl<T: TestKeys> Drop for Lives<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let told = self.told.len().saturating_sub(40);
            eprintln!("{:?}:\n{}", self.rules, self.told[told..].join("\n"));
        }
    }
}

fn live(rules: Rules) {
    let seeds = std::env::var("FPCACHE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    for seed in 0..seeds {
        eprintln!("seed {seed}");
        Lives::<Integers>::begin(rules, seed).run();
        Lives::<LongValues>::begin(rules, seed).run();
    }
}

const HOURLY: SyncPolicy = SyncPolicy::Interval(Duration::from_secs(3600));
const ALWAYS: Rules = Rules { sync: SyncPolicy::Always, machine: true, unknown: false, faults: true };

#[test]
fn what_is_acknowledged_with_always_outlives_the_machine() {
    live(Rules { faults: false, ..ALWAYS });
}

#[test]
fn what_is_acknowledged_with_always_outlives_the_machine_and_disks_that_fail() {
    live(ALWAYS);
}

#[test]
fn what_is_acknowledged_with_always_outlives_the_machine_whose_starts_are_not_told_apart() {
    live(Rules { unknown: true, ..ALWAYS });
}

#[test]
fn what_is_acknowledged_with_an_interval_outlives_processes_and_disks_that_fail() {
    live(Rules { sync: HOURLY, machine: false, ..ALWAYS });
}

#[test]
fn what_is_acknowledged_with_never_outlives_processes_and_disks_that_fail() {
    live(Rules { sync: SyncPolicy::Never, machine: false, ..ALWAYS });
}
