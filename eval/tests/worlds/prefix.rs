//! The writes acknowledged before they were synced that the end of a machine leaves: a beginning of
//! the log, and of that all but the last interval.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache_client::{ClientConfig, U64Keys};
use fpcache_eval::history::client::ClientStore;
use fpcache_fabric::Clock;
use fpcache_memserver::durability::SyncPolicy;
use fpcache_sim::{Faults, NodeId, Process, Random, SimOptions, Verdict, World, explore};

use crate::caller::connect;
use crate::few;
use crate::node::{Durability, Ending, NodeShape, Stage};

const INTERVAL: Duration = Duration::from_micros(100);
/// How long after its interval a sync may come: the loop has its turn when stores are no longer on
/// their way, which takes long where stores and messages are slow.
const SLACK: Duration = Duration::from_micros(600);
const WRITERS: u64 = 2;
const KEYS: u64 = 8;

/// One write of a process that is the only one to write its keys: what it leaves, and when it was
/// made.
#[derive(Clone, Copy, Debug)]
struct Write {
    key: u64,
    value: Option<u64>,
    invoked: Instant,
    acknowledged: Option<Instant>,
}

type Writes = Arc<Mutex<Vec<Write>>>;

/// Writes until the machine ends.
fn write(mut process: Process, node: NodeId, number: u64, ends: &AtomicBool, writes: &Writes) {
    let client = connect::<U64Keys>(&process, node, ClientConfig::default());
    let clock = process.sim.clock();
    let mut count = 0;
    while !ends.load(Ordering::Relaxed) {
        count += 1;
        let key = process.random.below(KEYS) * WRITERS + number;
        let value = (process.random.below(4) > 0).then_some(count * WRITERS + number);
        writes.lock().unwrap().push(Write { key, value, invoked: clock.now(), acknowledged: None });
        let done = match value {
            Some(value) => {
                let mut bytes = Vec::new();
                ClientStore::<U64Keys>::encode(value, &mut bytes);
                client.put(key, &bytes).is_ok()
            }
            None => client.delete(key).is_ok(),
        };
        // What was under way when the machine ended may have been made in the next life.
        if done && !ends.load(Ordering::Relaxed) {
            writes.lock().unwrap().last_mut().unwrap().acknowledged = Some(clock.now());
        }
    }
}

/// How many of a process's first writes the state may consist of, the one under way at the end
/// aside.
fn explanations(writes: &[Write], state: &BTreeMap<u64, u64>) -> Vec<usize> {
    let open = writes.last().filter(|write| write.acknowledged.is_none());
    let mut replayed = BTreeMap::new();
    let apply = |write: &Write, to: &mut BTreeMap<u64, u64>| match write.value {
        Some(value) => drop(to.insert(write.key, value)),
        None => drop(to.remove(&write.key)),
    };
    let mut found = Vec::new();
    for count in 0..=writes.len() {
        if let Some(last) = count.checked_sub(1) {
            apply(&writes[last], &mut replayed);
        }
        let with_open = open.map(|open| {
            let mut with = replayed.clone();
            apply(open, &mut with);
            with
        });
        if replayed == *state || with_open.as_ref() == Some(state) {
            found.push(count);
        }
    }
    found
}

/// Whether `kept` writes of one process can be what is left when of another `other_kept` are: those
/// that the other's had been acknowledged before must be left too.
fn follows(writes: &[Write], kept: usize, others: &[Write], other_kept: usize) -> bool {
    let Some(last) = kept.checked_sub(1).map(|last| writes[last]) else { return true };
    let lost = others.get(other_kept).and_then(|write| write.acknowledged);
    lost.is_none_or(|acknowledged| acknowledged > last.invoked)
}

fn a_beginning_is_left(world: &mut World, lost: &Cell<usize>) -> Verdict {
    let mut random = Random::new(world.seed() ^ 0x9e1f);
    let sync = [SyncPolicy::Interval(INTERVAL), SyncPolicy::Never][random.below(2) as usize];
    let (stage, node) = Stage::<U64Keys>::add(
        world,
        NodeShape {
            region_bytes: 64 << 10,
            loaded: Vec::new(),
            durability: Some(Durability { sync, ending: Ending::Machine }),
            snapshots: 4,
            wraps: 0,
            groups: None,
            stores_fingerprints: true,
            answers: false,
            lease: Duration::ZERO,
            flips: None,
            troubles: 0,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        },
    );
    let ends = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(Mutex::new(None));
    let writes: Vec<Writes> = (0..WRITERS).map(|_| Writes::default()).collect();
    for (number, writes) in (0..).zip(&writes) {
        let (writes, ends) = (Arc::clone(writes), Arc::clone(&ends));
        world.spawn("writer", move |process| write(process, node, number, &ends, &writes));
    }
    let (when, at) = (Duration::from_micros(random.between(200, 4_000)), Arc::clone(&ended));
    world.spawn("power", move |process| {
        process.sleep(when);
        ends.store(true, Ordering::Relaxed);
        *at.lock().unwrap() = Some(process.sim.clock().now());
        process.sim.kill_node(node);
    });
    world.run()?;
    let state = Arc::new(Mutex::new(BTreeMap::new()));
    let read = Arc::clone(&state);
    world.spawn("reader", move |process| {
        let client = connect::<U64Keys>(&process, node, ClientConfig::default());
        let records = client.scan(0u64, usize::MAX).unwrap();
        *read.lock().unwrap() =
            records.iter().map(|(key, value)| (*key, ClientStore::<U64Keys>::decode(value))).collect();
    });
    world.run()?;
    world.settle(1_000_000);
    stage.audit()?;

    let (state, ended) = (state.lock().unwrap().clone(), ended.lock().unwrap().ok_or("nothing ended")?);
    let writes: Vec<Vec<Write>> = writes.iter().map(|writes| writes.lock().unwrap().clone()).collect();
    let of = |number: u64| {
        state.iter().filter(|(key, _)| *key % WRITERS == number).map(|(k, v)| (*k, *v)).collect()
    };
    let (first, second) = (explanations(&writes[0], &of(0)), explanations(&writes[1], &of(1)));
    let is_kept = |writes: &[Write], kept: usize| {
        let lost = writes.get(kept).and_then(|write| write.acknowledged);
        sync == SyncPolicy::Never || lost.is_none_or(|lost| ended.duration_since(lost) <= INTERVAL + SLACK)
    };
    let fits = |a: usize, b: usize| {
        let kept = is_kept(&writes[0], a) && is_kept(&writes[1], b);
        kept && follows(&writes[0], a, &writes[1], b) && follows(&writes[1], b, &writes[0], a)
    };
    let best =
        first.iter().flat_map(|&a| second.iter().map(move |&b| (a, b))).filter(|&(a, b)| fits(a, b)).max();
    let Some((a, b)) = best else {
        let why = format!(
            "{sync:?}: what is left is no beginning: {state:?} of {writes:?}; {first:?} and {second:?}"
        );
        return Err(why.into());
    };
    lost.set(lost.get() + (writes[0].len() - a) + (writes[1].len() - b));
    Ok(())
}

#[test]
fn the_end_of_the_machine_leaves_a_beginning_of_what_was_not_synced() {
    let lost = Cell::new(0);
    let options = SimOptions { faults: Faults::WEATHER, ..SimOptions::default() };
    let explored = explore(few(4_000_000), &options, |world| a_beginning_is_left(world, &lost));
    println!("machines end between syncs: {explored:?}, {} writes lost", lost.get());
    assert!(
        explored.seeds < 50 || lost.get() as u64 > explored.seeds,
        "some writes are lost: {}",
        lost.get()
    );
}
