//! The whole store in simulated worlds: real memory nodes and real clients, with whatever memory,
//! network, processes and machines may do to them, from one seed each. In a third of the worlds
//! keys are byte strings, in a quarter of them records lie in groups, in a sixth they have no
//! fingerprints, in a third of them threads of the memory node's own look keys up, and in a quarter
//! of them readers have a lease of what they know of memory's reuse.
//!
//! `FPCACHE_SIM_SEEDS=N` runs N worlds of each kind instead of a few, `FPCACHE_SIM_SEED=n`
//! one alone. With the feature `sabotage` the protocol is broken in one place at a time, and each
//! break must be found.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[cfg(feature = "sabotage")]
mod breaks;
mod caller;
mod damage;
mod disk;
mod failing_disks;
mod flights;
mod flips;
#[path = "../../../memserver/tests/support/memory_disk.rs"]
mod memory_disk;
mod node;
mod pages;
mod play;
mod prefix;
mod tables;
#[path = "../../../memserver/tests/support/watched_disk.rs"]
mod watched_disk;

use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant};

use fpcache::layout::Grouping;
use fpcache_client::{Plan, PlanChoice};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_sim::{Faults, Random, SimOptions, World, explore};

use caller::{Mix, Part, Queue};
use node::{Durability, Ending, NodeShape};
use play::{Play, Tally, any_way, play};

/// Distinct keys in ascending order: close together, far apart, or in groups.
fn keys(random: &mut Random) -> Vec<u64> {
    let count = random.between(12, 48);
    let (stride, jump) = [(1, 0), (7, 0), (1_000_003, 0), (1, 5_000)][random.below(4) as usize];
    (0..count).map(|i| 10 + i * stride + i / 8 * jump).collect()
}

/// Groups of a few slots, and slots by pilots, whatever pays for slots of their length: segments
/// have several blocks.
const GROUPS: [Grouping; 3] = [Grouping::plain(3, 4), Grouping::seeded(2, 3), Grouping::pilots(6, 2)];

/// About what a READ takes, several of them, and as much as a call takes.
const LEASES: [Duration; 3] =
    [Duration::from_micros(10), Duration::from_micros(40), Duration::from_micros(200)];

/// What any world's memory node and clients are drawn from.
fn draw(seed: u64, durability: Option<Durability>) -> Play {
    let mut drawn = draw_without_queues(seed, durability);
    // Drawn apart, so that the rest of a seed's world is what it is without them.
    let mut random = Random::new(seed ^ 0x90e0_e5ed);
    if random.below(4) == 0 {
        drawn.node.wraps = [u64::MAX, 64, 16][random.below(3) as usize];
    }
    let mut of_groups = Random::new(seed ^ 0x6709_0b50);
    if of_groups.below(4) == 0 {
        drawn.node.groups = Some(GROUPS[of_groups.below(GROUPS.len() as u64) as usize]);
        for part in drawn.parts.iter_mut().filter(|_| of_groups.below(3) > 0) {
            part.name = format!("groups, {}", part.name);
            part.config = part.config.clone().with_plan(PlanChoice::Fixed(Plan::Groups));
        }
    }
    drawn.node.stores_fingerprints = Random::new(seed ^ 0xf14c_e941).below(6) > 0;
    let mut of_answers = Random::new(seed ^ 0x0a75_3e45);
    if of_answers.below(3) == 0 {
        drawn.node.answers = true;
        for part in drawn.parts.iter_mut().filter(|_| of_answers.below(3) > 0) {
            part.name = format!("at-node, {}", part.name);
            part.config = part.config.clone().with_plan(PlanChoice::Fixed(Plan::AtNode));
        }
    }
    let mut of_leases = Random::new(seed ^ 0x1ea5_e001);
    if of_leases.below(4) == 0 {
        drawn.node.lease = LEASES[of_leases.below(LEASES.len() as u64) as usize];
    }
    match random.below(12) {
        0 => add_queues(&mut drawn, &mut random, false),
        1 => add_queues(&mut drawn, &mut random, true),
        _ => {}
    }
    drawn
}

/// Gives one process or two a queue: of a constant length, or one that grows until the memory node
/// has no room.
fn add_queues(drawn: &mut Play, random: &mut Random, fills: bool) {
    let queues = if fills { 1 } else { random.between(1, 2) as usize };
    let stride = [1, 7, 1_000_003][random.below(3) as usize];
    if fills {
        // Snapshots are under way much of the time.
        drawn.node.region_bytes = 28 << 10;
        drawn.node.snapshots = 8;
    }
    for (number, part) in (1..).zip(drawn.parts.iter_mut().take(queues)) {
        let count = if fills { 240 } else { random.between(40, 80) };
        let keys: Vec<u64> = (0..count).map(|i| (number << 32) + i * stride).collect();
        let live = if fills { keys.len() } else { random.between(2, 12) as usize };
        part.mix = Mix::QUEUE;
        part.calls = if fills { 50 } else { 90 };
        part.in_flight = 1;
        drawn.keys.extend_from_slice(&keys);
        part.keys.extend_from_slice(&keys[..20]);
        part.queue = Queue { keys, live };
    }
}

/// The same without queues, and with versions far from their end.
fn draw_without_queues(seed: u64, durability: Option<Durability>) -> Play {
    let mut random = Random::new(seed ^ 0x0f9c_ac4e);
    let keys = keys(&mut random);
    let share = random.between(0, 3);
    let loaded = keys.iter().copied().filter(|_| random.below(4) < share).collect();
    let node = NodeShape {
        region_bytes: [32 << 10, 40 << 10, 64 << 10][random.below(3) as usize],
        loaded,
        durability,
        snapshots: 64,
        wraps: 0,
        groups: None,
        stores_fingerprints: true,
        answers: false,
        lease: Duration::ZERO,
        flips: None,
        troubles: 0,
        #[cfg(feature = "sabotage")]
        sabotage: None,
    };
    let clients = random.between(2, 4);
    let parts = (0..clients).map(|_| {
        let (name, config) = any_way(&mut random);
        let mix = [Mix::ALL, Mix::ALL, Mix::CHURN, Mix::READS][random.below(4) as usize];
        let calls = random.between(30, 120) as usize;
        let rest = (Duration::from_micros(random.between(1, 300)), random.between(1, 20));
        // Now and then all want the same few keys.
        let few = if random.below(3) == 0 { keys.len().min(4) } else { keys.len() };
        let keys = keys[..few].to_vec();
        Part { name, config, mix, calls, in_flight: 1, keys, queue: Queue::default(), rest }
    });
    let parts = parts.collect();
    // Drawn apart, so that a seed's world is the same whatever its keys are.
    let bytes = Random::new(seed ^ 0xb17e).below(3) == 0;
    Play { bytes, node, keys, parts }
}

/// Whether `count` of `all` is what a chance of `share` each gives: within four standard
/// deviations, however many there are.
fn is_drawn_as(share: f64, count: u64, all: u64) -> bool {
    let mean = share * all as f64;
    (count as f64 - mean).abs() <= 4.0 * (mean * (1.0 - share)).sqrt()
}

/// The seeds of a kind of world, unless `FPCACHE_SIM_SEEDS` gives their number.
fn few(first: u64) -> Range<u64> {
    first..first + 8
}

/// Draws how a world's memory node keeps what it acknowledges.
type Keeps = fn(&mut Random) -> Option<Durability>;

fn run(kind: &str, seeds: Range<u64>, faults: Faults, durability: Keeps) {
    let tally = RefCell::new(Tally::default());
    let begun = Instant::now();
    let options = SimOptions { faults, ..SimOptions::default() };
    let explored = explore(seeds, &options, |world: &mut World| {
        let durability = durability(&mut Random::new(world.seed() ^ 0xd15c));
        let drawn = draw(world.seed(), durability);
        play(world, &drawn, &tally)
    });
    let tally = tally.into_inner();
    let per_second = explored.seeds as f64 / begun.elapsed().as_secs_f64();
    println!("{kind}: {explored:?}, {tally:?}, {per_second:.0} worlds/s");
    if explored.seeds >= 50 {
        assert!(tally.lives.rebuilds > explored.seeds, "segments are replaced: {tally:?}");
        assert!(tally.refused * 4 < tally.operations, "most calls find room: {tally:?}");
        assert!(tally.queues > 0, "queues are drawn: {tally:?}");
        assert!(explored.waits > explored.seeds / 4, "requests wait for room: {explored:?}");
        assert!(explored.leased > 4 * explored.seeds, "leases answer: {explored:?}");
        assert!(tally.fillers > 0 || tally.lives.restored > 0, "and such that grow: {tally:?}");
        assert!(tally.refused_when_full >= tally.fillers, "memory nodes were full: {tally:?}");
        assert!(tally.oldest > 20 * tally.queues && tally.emptied > tally.queues, "{tally:?}");
        let (scans, counts) = (tally.scans_back, tally.counts);
        assert!(tally.readers > tally.worlds && scans > tally.worlds && counts > tally.worlds, "{tally:?}");
        let (ranges, alone) = (tally.ranges.map(|ranges| 2 * ranges), 2 * tally.keys_alone);
        assert!(ranges.into_iter().chain([alone, 4 * tally.endless]).all(|count| count > tally.worlds));
        assert!(2 * tally.ends > tally.looked_at, "first and last records are asked for: {tally:?}");
        assert!(2 * tally.absent_by_groups > tally.worlds, "one READ of a group shows absence: {tally:?}");
        assert!(tally.by_node > 4 * tally.answering && tally.answering > tally.worlds / 6, "{tally:?}");
        assert!(4 * tally.looked_at > tally.worlds, "neighbours are asked for: {tally:?}");
        assert!(4 * tally.whole > 3 * tally.looked_at, "most histories are decided as a whole: {tally:?}");
        assert!(tally.lives.wrapped > tally.worlds / 10, "versions wrap around: {tally:?}");
        assert!(is_drawn_as(1.0 / 3.0, tally.of_bytes, tally.worlds), "a third has byte strings: {tally:?}");
    }
}

/// Everything but deaths of memory nodes, for those whose data end with them.
const STORM_OVER_CLIENTS: Faults = Faults { crash_node: 0, ..Faults::STORM };
/// No client reads the memory of a machine that is off.
const STORM_OVER_MACHINES: Faults = Faults { linger: false, ..Faults::STORM };

/// Few keys beside each other that come and go, and readers that ask for neighbours: no two keys
/// are ever looked at by themselves.
pub fn neighbours(seed: u64) -> Play {
    let mut drawn = draw_without_queues(seed, None);
    let mut random = Random::new(seed ^ 0xf100);
    let few = random.between(3, 8) as usize;
    drawn.keys = drawn.keys.iter().copied().take(few).collect();
    drawn.node.loaded.retain(|key| drawn.keys.contains(key));
    let writers = random.between(2, 3);
    let parts = (0..writers + 2).map(|number| {
        let (name, config) = any_way(&mut random);
        let mix = match number < writers {
            true => Mix { insert: 5, delete: 5, update: 1, ..Mix::NOTHING },
            false => Mix { nearest: 1, ..Mix::NOTHING },
        };
        let rest = (Duration::from_micros(random.between(1, 20)), random.between(1, 10));
        Part {
            name,
            config,
            mix,
            calls: 60,
            in_flight: 1,
            keys: drawn.keys.clone(),
            queue: Queue::default(),
            rest,
        }
    });
    drawn.parts = parts.collect();
    drawn
}

#[test]
fn neighbours_are_of_one_instant_whatever_memory_and_network_do() {
    for (kind, faults, first) in
        [("weather", Faults::WEATHER, 10_000_000), ("storm over clients", STORM_OVER_CLIENTS, 11_000_000)]
    {
        let tally = RefCell::new(Tally::default());
        explore(few(first), &SimOptions { faults, ..SimOptions::default() }, |world: &mut World| {
            play(world, &neighbours(world.seed()), &tally)
        });
        let tally = tally.into_inner();
        println!("neighbours, {kind}: {tally:?}");
        assert!(tally.worlds < 50 || tally.whole * 10 > tally.worlds * 9, "most are decided: {tally:?}");
        assert!(tally.worlds < 50 || tally.neighbours > 50 * tally.worlds, "{tally:?}");
    }
}

#[test]
fn whatever_memory_and_network_do_all_answers_have_an_order() {
    run("weather", few(0), Faults::WEATHER, |_| None);
    run("storm over clients", few(1_000_000), STORM_OVER_CLIENTS, |_| None);
}

/// Every process goes on while its writes are under way, over connections and identities of their
/// own.
#[test]
fn writes_in_flight_have_an_order_whatever_happens_to_them() {
    for is_durable in [false, true] {
        let tally = RefCell::new(Tally::default());
        let faults = if is_durable { Faults::STORM } else { STORM_OVER_CLIENTS };
        let first = 6_000_000 + 1_000_000 * u64::from(is_durable);
        explore(few(first), &SimOptions { faults, ..SimOptions::default() }, |world: &mut World| {
            let sync = any_sync(&mut Random::new(world.seed() ^ 0xd15c));
            let durability = is_durable.then_some(Durability { sync, ending: Ending::Process });
            let mut drawn = draw(world.seed(), durability);
            let without = drawn.parts.iter_mut().filter(|part| part.queue.keys.is_empty());
            without.zip([2, 3, 2, 3]).for_each(|(part, depth)| part.in_flight = depth);
            play(world, &drawn, &tally)
        });
        let tally = tally.into_inner();
        println!("in flight: {tally:?}");
        assert!(tally.worlds < 50 || tally.refused * 4 < tally.operations, "most calls find room: {tally:?}");
    }
}

fn any_sync(random: &mut Random) -> SyncPolicy {
    let interval = SyncPolicy::Interval(Duration::from_micros(100));
    [SyncPolicy::Always, interval, SyncPolicy::Never][random.below(3) as usize]
}

#[test]
fn the_end_of_the_process_undoes_nothing() {
    run("processes end", few(2_000_000), Faults::STORM, |random| {
        Some(Durability { sync: any_sync(random), ending: Ending::Process })
    });
}

/// Operations that change nothing, after some of their request that wait for the disk, are not done
/// once more when the process has ended: they would see what came after them, an insert for example
/// its own record.
#[test]
fn requests_of_several_operations_are_done_once_across_lives() {
    let tally = RefCell::new(Tally::default());
    let faults = Faults { crash_node: 5_000, ..Faults::STORM };
    explore(few(5_000_000), &SimOptions { faults, ..SimOptions::default() }, |world: &mut World| {
        let durability = Durability { sync: SyncPolicy::Always, ending: Ending::Process };
        let mut drawn = draw(world.seed(), Some(durability));
        drawn.parts.iter_mut().for_each(|part| part.mix = Mix { batch: 10, get: 2, ..Mix::NOTHING });
        play(world, &drawn, &tally)
    });
}

#[test]
fn the_end_of_the_machine_undoes_nothing_that_was_synced_before_it_was_acknowledged() {
    run("machines end", few(3_000_000), STORM_OVER_MACHINES, |random| {
        let ending = [Ending::Machine, Ending::Either][random.below(2) as usize];
        Some(Durability { sync: SyncPolicy::Always, ending })
    });
}

/// The machine ends while snapshots of a region that is nearly full are being taken.
#[test]
fn nearly_full_regions_outlive_their_machine() {
    let tally = RefCell::new(Tally::default());
    let options = SimOptions { faults: STORM_OVER_MACHINES, ..SimOptions::default() };
    explore(few(8_000_000), &options, |world: &mut World| {
        let durability = Durability { sync: SyncPolicy::Always, ending: Ending::Machine };
        let mut drawn = draw_without_queues(world.seed(), Some(durability));
        add_queues(&mut drawn, &mut Random::new(world.seed() ^ 0x90e0_e5ed), true);
        play(world, &drawn, &tally)
    });
    let tally = tally.into_inner();
    println!("nearly full machines end: {tally:?}");
    assert!(tally.worlds < 20 || tally.refused_when_full > tally.fillers, "{tally:?}");
    assert!(tally.worlds < 20 || tally.lives.restored > tally.worlds, "{tally:?}");
}
