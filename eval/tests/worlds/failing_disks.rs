//! Disks that are full for a while, or fail: appends are cut short, syncs lose what they were to
//! write, any change is refused, reads fail or end early, and the machine ends meanwhile, or memory
//! is found as it was a while before. A start is refused, or has everything. A history says whether what was
//! acknowledged outlived all of it, whole, and whether what was refused was not done. While nothing
//! can be written, the memory node says so; when the disk is mended it takes every write again, and
//! the machine's end undoes none of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fpcache_client::ClientError;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_memserver::durability::SyncPolicy;
use fpcache_sim::{Faults, NodeId, ProcessId, Random, SimOptions, World, explore};

use crate::caller::{Caller, Log, Mix, Part};
use crate::disk::Trouble;
use crate::node::{Durability, Ending, Stage};
use crate::play::{Play, Tally, play};
use crate::{STORM_OVER_MACHINES, any_sync, draw, few};

/// What became of the disks of many worlds.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    /// Changes that each trouble made fail.
    pub failed: BTreeMap<Trouble, u64>,
    /// Starts that failed, and succeeded when the disk was mended.
    pub refused_starts: u64,
    /// Starts over memory that was older than the log's files may be.
    pub went_back: u64,
    /// Writes that were refused at last, and told of by the statistics.
    told: u64,
    /// Writes that were done when the disk was mended.
    done: u64,
}

pub type SharedDisks = Arc<Mutex<Disks>>;

/// Writes that are tried on a disk that stays full, and on one that is mended.
const IN_VAIN: usize = 20;
const AT_LAST: usize = 60;

/// Plays the end of a world: the disk is full, then mended, then the machine or the process ends.
pub fn end<K: NumberedKeys, C: Fn() -> u64 + Send + 'static>(
    world: &mut World,
    (stage, node): (&Stage<K>, NodeId),
    (log, number): (Log<C>, u64),
    (part, fills): (Part, bool),
    disks: &SharedDisks,
) -> ProcessId {
    let (stage, shared) = (stage.clone(), Arc::clone(disks));
    world.spawn("last writer", move |process| {
        let keys = part.keys.clone();
        let mut caller = Caller::<K, _>::new(process, node, log, (number, false), part);
        stage.trouble_to_the_end(Trouble::Full);
        let told = writes_in_vain(&mut caller, keys[0]);
        stage.end_of_troubles();
        for key in &keys {
            put_at_last(&mut caller, *key, fills);
        }
        is_well_at_last(&caller);
        let mut disks = shared.lock().expect("no panic while it was held");
        disks.told += told;
        disks.done += keys.len() as u64;
        drop(disks);
        caller.process.sim.kill_node(node);
    })
}

/// Writes that find no room on the disk; how many of them were refused for that, of which the
/// statistics have to tell, but for moments at which the log had some room again.
fn writes_in_vain<K: NumberedKeys, C: Fn() -> u64>(caller: &mut Caller<K, C>, key: u64) -> u64 {
    let (mut told, mut silent) = (0, 0);
    for _ in 0..IN_VAIN {
        if let Err(ClientError::NotDurable { .. }) = caller.put_key(key) {
            match caller.client.stats() {
                Ok(stats) if stats.log_fails == 0 => silent += 1,
                Ok(_) => told += 1,
                Err(_) => {}
            }
        }
        caller.process.sleep(Duration::from_millis(1));
    }
    assert!(silent < IN_VAIN, "the memory node refuses writes and does not say that the disk fails");
    told
}

/// Puts a key on a disk that is mended. Where writes fill the memory, there may be no room in that.
fn put_at_last<K: NumberedKeys, C: Fn() -> u64>(caller: &mut Caller<K, C>, key: u64, fills: bool) {
    let mut why = String::new();
    for _ in 0..AT_LAST {
        match caller.put_key(key) {
            Ok(()) => return,
            Err(ClientError::NoRoom { .. }) if fills => return,
            Err(error) => why = error.to_string(),
        }
        caller.process.sleep(Duration::from_secs(5));
    }
    panic!("the disk is mended, and no write is taken: {why}");
}

/// The memory node says no longer that the disk fails, once it answers.
fn is_well_at_last<K: NumberedKeys, C: Fn() -> u64>(caller: &Caller<K, C>) {
    for _ in 0..AT_LAST {
        if let Ok(stats) = caller.client.stats() {
            return assert_eq!(stats.log_fails, 0, "the disk is mended, and all was put");
        }
        caller.process.sleep(Duration::from_millis(1));
    }
}

/// A world of this kind.
pub fn on_failing_disk(seed: u64, sync: SyncPolicy, ending: Ending) -> Play {
    let mut drawn = draw(seed, Some(Durability { sync, ending }));
    let mut random = Random::new(seed ^ 0xd15c_fa11);
    drawn.node.troubles = [4, 15, 60][random.below(3) as usize];
    drawn.node.snapshots = [8, 64][random.below(2) as usize];
    for part in drawn.parts.iter_mut().filter(|_| random.below(2) == 0) {
        part.mix = Mix { get: 5, put: 4, batch: 2, ..Mix::CHURN };
    }
    drawn
}

fn run(kind: &str, first: u64, faults: Faults, how: impl Fn(&mut Random) -> (SyncPolicy, Ending)) {
    let tally = RefCell::new(Tally::default());
    let options = SimOptions { faults, ..SimOptions::default() };
    let explored = explore(few(first), &options, |world: &mut World| {
        let (sync, ending) = how(&mut Random::new(world.seed() ^ 0xd15c));
        play(world, &on_failing_disk(world.seed(), sync, ending), &tally)
    });
    let tally = tally.into_inner();
    let disks = tally.disks.lock().expect("no panic while it was held").clone();
    println!("{kind}: {explored:?}, {tally:?}");
    if explored.seeds >= 40 {
        assert!(Trouble::ALL.iter().all(|trouble| disks.failed[trouble] > explored.seeds / 2), "{disks:?}");
        assert!(disks.told > explored.seeds / 4, "the statistics tell of it: {disks:?}");
        assert!(disks.done > explored.seeds, "disks are mended: {disks:?}");
        assert!(tally.refused > 0, "writes are refused: {tally:?}");
        assert!(tally.refused + tally.unknown < tally.operations / 2, "many are not: {tally:?}");
    }
}

#[test]
fn what_was_acknowledged_outlives_the_machine_whatever_its_disk_does() {
    run("machines with failing disks end", 14_000_000, STORM_OVER_MACHINES, |random| {
        (SyncPolicy::Always, [Ending::Machine, Ending::Either][random.below(2) as usize])
    });
}

#[test]
fn what_was_acknowledged_outlives_the_process_whatever_its_disk_does() {
    run("processes with failing disks end", 15_000_000, Faults::STORM, |random| {
        (any_sync(random), Ending::Process)
    });
}
