//! Tests of the simulated world, which must show every state, nothing else, and the same again from
//! the same seed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "sim/memory.rs"]
mod memory;
#[path = "sim/services.rs"]
mod services;
#[path = "sim/serving.rs"]
mod serving;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fpcache_fabric::{
    Batch, ClientId, Clock, Connection, Deadline, Endpoint, ErrorKind, FabricError, Handled, NodeMemory,
    RemoteAddr, Service, Work,
};
use fpcache_sim::{
    FailureKind, Faults, MemoryOptions, NodeOptions, NodeStart, Process, SimConnection, SimMemory,
    SimOptions, Tear, Verdict, World, explore, search,
};
use services::{Counter, Filler, Lines, Silent};

const SECOND: Duration = Duration::from_secs(1);

fn region() -> NodeOptions {
    NodeOptions::new(vec![MemoryOptions::region(4096)])
}

fn storm() -> SimOptions {
    SimOptions { faults: Faults::STORM, ..SimOptions::default() }
}

fn soon(process: &Process) -> Deadline {
    process.sim.clock().deadline(SECOND)
}

/// How a writer publishes two words under a sequence.
#[derive(Clone, Copy, PartialEq)]
enum Writing {
    Right,
    NoFence,
    SequenceLast,
}

/// How a reader reads them.
#[derive(Clone, Copy, PartialEq)]
enum Reading {
    Right,
    OneBatch,
}

/// Two words, at 64 and 128, that must be seen together: a sequence at 0 is odd while they change.
struct Pair {
    region: Arc<SimMemory>,
    writing: Writing,
}

impl Pair {
    fn put(&self, value: u64) {
        let region = &self.region;
        let sequence = region.load_relaxed(0).unwrap();
        if self.writing != Writing::SequenceLast {
            region.store_relaxed(0, sequence + 1).unwrap();
        }
        if self.writing == Writing::Right {
            region.release();
        }
        region.store_relaxed(64, value).unwrap();
        region.store_relaxed(128, value).unwrap();
        region.store_release(0, sequence + 2).unwrap();
    }
}

impl Service for Pair {
    fn handle(&mut self, _: ClientId, request: &[u8], _: &mut Vec<u8>) -> Handled {
        self.put(u64::from_le_bytes(request.try_into().unwrap()));
        Handled::Now
    }
}

fn read_pair(connection: &SimConnection, reading: Reading) -> Result<Option<[u64; 2]>, FabricError> {
    let mut endpoint = connection.endpoint();
    let mut batch = Batch::new();
    if reading == Reading::OneBatch {
        let all = [0, 64, 128].map(|offset| batch.read(RemoteAddr::region(offset), 8));
        endpoint.run(&mut batch)?;
        let [sequence, one, other] = all.map(|landing| batch.u64(landing));
        return Ok((sequence % 2 == 0).then_some([one, other]));
    }
    let mut before = [0];
    endpoint.read_words(RemoteAddr::region(0), &mut before)?;
    let both = [64, 128].map(|offset| batch.read(RemoteAddr::region(offset), 8));
    endpoint.run(&mut batch)?;
    let after = endpoint.load_after_reads(RemoteAddr::region(0))?;
    let words = both.map(|landing| batch.u64(landing));
    Ok((before[0] == after && after % 2 == 0).then_some(words))
}

fn pairs_agree(world: &mut World, writing: Writing, reading: Reading) -> Verdict {
    let node = world.add_node(region(), move |start: NodeStart| {
        Box::new(Pair { region: Arc::clone(&start.memories[0]), writing })
    })?;
    world.spawn("writer", move |process| {
        let connection = process.sim.connect(node, soon(&process)).unwrap();
        for value in 1..=10u64 {
            // Lost requests and a dead memory node are not what this is about.
            let _ = connection.call(&value.to_le_bytes(), &mut Vec::new(), soon(&process));
        }
    });
    let torn = Arc::new(AtomicU64::new(0));
    for _ in 0..2 {
        let torn = Arc::clone(&torn);
        world.spawn("reader", move |process| {
            let connection = process.sim.connect(node, soon(&process)).unwrap();
            for _ in 0..20 {
                match read_pair(&connection, reading) {
                    Ok(Some([one, other])) if one != other => _ = torn.fetch_add(1, Ordering::Relaxed),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
    }
    world.run()?;
    match torn.load(Ordering::Relaxed) {
        0 => Ok(()),
        some => Err(format!("{some} torn pairs were taken for whole").into()),
    }
}

#[test]
fn a_right_protocol_holds_in_every_world_and_each_broken_one_is_found() {
    let explored =
        explore(0..400, &SimOptions::default(), |world| pairs_agree(world, Writing::Right, Reading::Right));
    assert!(explored.events > 400 * 200, "{explored:?}");
    let stormy = explore(0..300, &storm(), |world| pairs_agree(world, Writing::Right, Reading::Right));
    assert!(stormy.deaths > 10 && stormy.killed > 5, "{stormy:?}");
    for (writing, reading) in [
        (Writing::NoFence, Reading::Right),
        (Writing::SequenceLast, Reading::Right),
        (Writing::Right, Reading::OneBatch),
    ] {
        let found =
            search(0..200, &SimOptions::default(), |world| pairs_agree(world, writing, reading)).unwrap_err();
        assert!(found.why.contains("torn") && !found.trace.is_empty(), "{found:?}");
    }
}

#[test]
fn equal_seeds_give_equal_worlds() {
    let run = |seed| {
        let mut world = World::new(storm().with_seed(seed));
        pairs_agree(&mut world, Writing::Right, Reading::Right).unwrap();
        world.report()
    };
    let reports: Vec<_> = (0..60).map(run).collect();
    assert_eq!(reports, (0..60).map(run).collect::<Vec<_>>());
    let mut hashes: Vec<_> = reports.iter().map(|report| report.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), reports.len(), "other seeds, other worlds");
}

#[test]
fn a_world_where_nobody_can_go_on_says_who_waits_for_what() {
    let mut world = World::new(SimOptions::without_faults());
    let node = world.add_node(region(), |_| Box::new(Silent)).unwrap();
    world.spawn("caller", move |process| {
        let connection = process.sim.connect(node, soon(&process)).unwrap();
        let _ = connection.call(&[], &mut Vec::new(), Deadline::NONE);
        unreachable!("nobody answers");
    });
    let failure = world.run().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    let text = failure.to_string();
    for part in ["deadlock", "caller", "reply to call 1 of connection 1", "FPCACHE_SIM_SEED=0", "connected"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[test]
fn panics_and_endless_worlds_are_reported_and_everybody_unwinds() {
    struct Set(Arc<AtomicU64>);
    impl Drop for Set {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let ended = Arc::new(AtomicU64::new(0));
    let mut world = World::new(SimOptions::without_faults());
    for panics in [true, false] {
        let set = Set(Arc::clone(&ended));
        world.spawn("sleeper", move |process| {
            let _set = set;
            process.sleep(SECOND);
            assert!(!panics, "as it should");
            process.sleep(SECOND);
        });
    }
    let failure = world.run().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Panicked);
    assert!(failure.text.contains("as it should"), "{failure}");
    assert_eq!(ended.load(Ordering::Relaxed), 2);

    let mut world = World::new(SimOptions { max_events: 1000, ..SimOptions::without_faults() });
    world.spawn("sleeper", |process| {
        loop {
            process.sleep(SECOND);
        }
    });
    assert_eq!(world.run().unwrap_err().kind, FailureKind::Circles);

    let patience = Duration::from_millis(20);
    let mut world = World::new(SimOptions { patience, ..SimOptions::without_faults() });
    world.spawn("stuck", |_| std::thread::sleep(Duration::from_secs(3)));
    assert_eq!(world.run().unwrap_err().kind, FailureKind::Stuck);
}

#[test]
fn a_reply_comes_after_the_stores_before_it() {
    explore(0..100, &SimOptions::default(), |world| {
        let node = world.add_node(region(), |start: NodeStart| {
            Box::new(Pair { region: Arc::clone(&start.memories[0]), writing: Writing::Right })
        })?;
        world.spawn("writer", move |process| {
            let connection = process.sim.connect(node, soon(&process)).unwrap();
            connection.call(&5u64.to_le_bytes(), &mut Vec::new(), soon(&process)).unwrap();
            let mut word = [0];
            connection.endpoint().read_words(RemoteAddr::region(64), &mut word).unwrap();
            assert_eq!(word, [5]);
        });
        world.run()?;
        Ok(())
    });
}

#[test]
fn processes_that_share_a_connection_take_turns() {
    let mut world = World::new(SimOptions::default());
    let node = world.add_node(region(), |_| Box::new(Counter::default())).unwrap();
    let connection = Arc::new(world.sim().connect(node, Deadline::NONE).unwrap());
    let counts = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..4 {
        let (connection, counts) = (Arc::clone(&connection), Arc::clone(&counts));
        world.spawn("caller", move |process| {
            let mut reply = Vec::new();
            for _ in 0..10 {
                connection.call(&[], &mut reply, soon(&process)).unwrap();
                counts.lock().unwrap().push(u64::from_le_bytes(reply[..].try_into().unwrap()));
            }
        });
    }
    let report = world.run().unwrap();
    assert_eq!(*counts.lock().unwrap(), (0..40).collect::<Vec<_>>());
    assert!(report.switches >= 4 && report.elapsed < Duration::from_millis(10), "{report:?}");
}
