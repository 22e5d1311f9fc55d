//! A world from its beginning to its checks.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fpcache_client::{ByteKeys, CacheConfig, ClientConfig, KeySpace, Plan, U64Keys};
use fpcache_eval::history::client::every_way;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, History, Operation, Outcome, Recorder, UNSEEN, Whole, check, check_whole};
use fpcache_fabric::Clock;
use fpcache_sim::{ProcessId, Random, SimClock, Verdict, World};

use crate::caller::{Caller, Log, Mix, Part, Queue};
use crate::failing_disks::{self, SharedDisks};
use crate::node::{Lives, NodeShape, Stage, first_value};

/// A world: its memory node, its client processes, and the keys they meet at.
#[derive(Clone, Debug)]
pub struct Play {
    /// Whether the keys are byte strings.
    pub bytes: bool,
    pub node: NodeShape,
    pub keys: Vec<u64>,
    pub parts: Vec<Part>,
}

impl Play {
    /// Whether some queue grows until there is no room.
    fn fills(&self) -> bool {
        self.parts.iter().any(|part| !part.queue.keys.is_empty() && part.queue.fills())
    }
}

/// The results of many worlds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub worlds: u64,
    /// Of these, such whose keys were byte strings.
    pub of_bytes: u64,
    pub operations: u64,
    pub unknown: u64,
    /// In worlds whose memory is meant to suffice, and in those where it is not.
    pub refused: u64,
    pub refused_when_full: u64,
    /// Worlds with queues of a constant length, and with such that grow until there is no room.
    pub queues: u64,
    pub fillers: u64,
    /// Deletions of a queue's oldest key, and segments that these emptied.
    pub oldest: u64,
    pub emptied: u64,
    /// Floors and ceilings, worlds with such whose history was looked at as a whole, and those of
    /// these in which an order was found.
    pub neighbours: u64,
    pub looked_at: u64,
    pub whole: u64,
    /// Processes that read by a reader of their own, and such whose models lay in pages at their
    /// end.
    pub readers: u64,
    pub paged: u64,
    /// Scans that went down, counts, and scans up and down of ranges, each with an answer.
    pub scans_back: u64,
    pub counts: u64,
    pub ranges: [u64; 2],
    /// Scans that returned keys alone, and counts without an end.
    pub keys_alone: u64,
    pub endless: u64,
    /// First and last records that were asked for.
    pub ends: u64,
    /// Keys that were found absent by one READ of their group.
    pub absent_by_groups: u64,
    /// Worlds whose memory node answers questions, and single keys that it looked up.
    pub answering: u64,
    pub by_node: u64,
    pub lives: Lives,
    pub disks: SharedDisks,
}

/// Slots that a segment has at most.
const MOST_SLOTS: u64 = 16;

/// Calls without an answer with which a history is looked at as a whole: each doubles what may have
/// happened.
const MOST_UNKNOWN: usize = 8;

/// The time a call has: far more than anything takes, so that one without an answer is a finding.
pub const DEADLINE: Duration = Duration::from_millis(200);

/// Instants of a world as histories have them: never the same twice.
fn instants(clock: SimClock) -> impl Fn() -> u64 + Clone + Send + 'static {
    let begun = clock.now();
    move || u64::try_from(clock.now().saturating_duration_since(begun).as_nanos()).unwrap_or(u64::MAX - 1)
}

/// A configuration of a client: by any plan, with or without a hot cache.
pub fn any_way(random: &mut Random) -> (String, ClientConfig) {
    let base = ClientConfig::default().with_deadline(DEADLINE);
    let mut ways = every_way(base.clone(), 64 << 10);
    ways.push(("small budget".to_owned(), base.with_cache(CacheConfig::of(SMALL_BUDGET))));
    let at = random.below(ways.len() as u64) as usize;
    ways.swap_remove(at)
}

/// The least budget that a table of few segments can do with.
pub const SMALL_BUDGET: u64 = 12 << 10;

/// A budget as tight for keys of this kind as the given one is for integers, of whose directories a
/// page takes 4 KiB.
pub fn fitting<K: KeySpace>(config: CacheConfig) -> CacheConfig {
    config.with_budget(config.budget + 3 * (K::PAGE_BYTES - U64Keys::PAGE_BYTES) as u64)
}

/// One of those who work, who works no longer once this is dropped, however that comes.
struct Ends(Arc<AtomicUsize>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs one process after another until one is not killed before it has done everything.
fn run_one_to_its_end(world: &mut World, mut spawn: impl FnMut(&mut World) -> ProcessId) -> Verdict {
    for _ in 0..100 {
        let process = spawn(world);
        if !world.run()?.killed.contains(&process) {
            return Ok(());
        }
    }
    Err("no process gets to its end".into())
}

/// Runs a world and checks its history and its memory node.
pub fn play(world: &mut World, play: &Play, tally: &RefCell<Tally>) -> Verdict {
    match play.bytes {
        true => play_over::<ByteKeys>(world, play, tally),
        false => play_over::<U64Keys>(world, play, tally),
    }
}

fn play_over<K: NumberedKeys>(world: &mut World, play: &Play, tally: &RefCell<Tally>) -> Verdict {
    let (stage, node) = Stage::<K>::add(world, play.node.clone());
    let instants = instants(world.sim().clock());
    let mut logs: Vec<Log<_>> = Vec::new();
    // Drawn apart, so that a seed's world is the same by whatever means its readers read.
    let mut random = Random::new(world.seed() ^ 0x04ea_de45);
    let mut readers = 0;
    let (working, paged) = (Arc::new(AtomicUsize::new(play.parts.len())), Arc::new(AtomicUsize::new(0)));
    if play.node.answers {
        let (stage, working) = (stage.clone(), Arc::clone(&working));
        world.spawn("follower", move |mut process| stage.follow(&mut process, &working));
    }
    for (number, part) in (0..).zip(&play.parts) {
        let has_reader = random.below(2) == 0;
        readers += u64::from(has_reader);
        let log = Arc::new(Mutex::new(Recorder::new(number, part.name.clone(), instants.clone())));
        logs.push(Arc::clone(&log));
        let mut part = part.clone();
        part.config.cache = part.config.cache.map(fitting::<K>);
        let (ends, paged) = (Ends(Arc::clone(&working)), Arc::clone(&paged));
        world.spawn(&part.name.clone(), move |process| {
            let _ends = ends;
            let mut caller = Caller::<K, _>::new(process, node, log, (u64::from(number), has_reader), part);
            caller.run();
            let stats = caller.client.cache_stats().ok().flatten();
            paged.fetch_add(stats.is_some_and(|stats| stats.paged).into(), Ordering::Relaxed);
        });
    }
    world.run()?;
    let mut number = play.parts.len() as u32;
    let mut log_of = |name: &str| {
        logs.push(Arc::new(Mutex::new(Recorder::new(number, name, instants.clone()))));
        number += 1;
        (Arc::clone(&logs[logs.len() - 1]), u64::from(number - 1))
    };
    let part = Part {
        name: "last".to_owned(),
        config: ClientConfig::default().with_deadline(DEADLINE),
        mix: Mix::READS,
        calls: 0,
        in_flight: 1,
        keys: play.keys.clone(),
        queue: Queue::default(),
        rest: (Duration::ZERO, 0),
    };
    if play.node.troubles > 0 {
        let disks = Arc::clone(&tally.borrow().disks);
        run_one_to_its_end(world, |world| {
            let (log, part) = (log_of("last writer"), (part.clone(), play.fills()));
            failing_disks::end::<K, _>(world, (&stage, node), log, part, &disks)
        })?;
        stage.end_of_troubles();
    }
    run_one_to_its_end(world, |world| {
        let ((last, number), part) = (log_of("last reader"), part.clone());
        world.spawn("last reader", move |process| {
            Caller::<K, _>::new(process, node, last, (number, true), part).read_all();
        })
    })?;
    if !world.settle(1_000_000) {
        return Err("the memory node does not come to rest".into());
    }
    let lives = stage.audit().map_err(|error| format!("the audit finds: {error}"))?;
    let initial = play.node.loaded.iter().map(|key| (*key, first_value(*key)));
    let logs = logs.iter().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner).clone());
    let history = History::merge(initial, logs);
    judge(&history, tally)?;
    let mut tally = tally.borrow_mut();
    tally.add(play, &history, lives);
    stage.add_disk_to(&mut tally.disks.lock().unwrap_or_else(PoisonError::into_inner));
    tally.readers += readers;
    tally.paged += paged.load(Ordering::Relaxed) as u64;
    Ok(())
}

/// Whether a history has an order: each key's, and that of all where it is about neighbours.
fn judge(history: &History, tally: &RefCell<Tally>) -> Verdict {
    let checked = check(history)?;
    if let Some(violation) = checked.violations.first() {
        return Err(format!("the history has no order: {violation}").into());
    }
    assert!(checked.is_linearizable(), "a history of a few hundred operations is decided");
    let neighbours =
        history.operations().iter().filter(|o| matches!(o.call, Call::Floor | Call::Ceiling)).count() as u64;
    let unknown = history.operations().iter().filter(|o| o.outcome == Outcome::Unknown).count();
    if neighbours > 0 && unknown <= MOST_UNKNOWN {
        let mut tally = tally.borrow_mut();
        tally.neighbours += neighbours;
        tally.looked_at += 1;
        match check_whole(history) {
            Whole::Ordered { .. } => tally.whole += 1,
            Whole::Undecided => {}
            Whole::Disordered { operation } => {
                let operation = history.operations()[operation];
                return Err(format!("the history has no order as a whole: {operation:?}").into());
            }
        }
    }
    Ok(())
}

impl Tally {
    fn add(&mut self, play: &Play, history: &History, lives: Lives) {
        let count = |outcome| history.operations().iter().filter(|o| o.outcome == outcome).count() as u64;
        self.worlds += 1;
        self.of_bytes += u64::from(play.bytes);
        self.operations += history.operations().len() as u64;
        let answered = |o: &&Operation| matches!(o.outcome, Outcome::Scanned(_) | Outcome::Counted(_));
        for operation in history.operations().iter().filter(answered) {
            self.scans_back += u64::from(matches!(operation.call, Call::ScanBack { .. }));
            self.counts += u64::from(matches!(operation.call, Call::Count { .. }));
            self.endless += u64::from(operation.call == Call::Count { end: u64::MAX });
            if let Call::ScanRange { is_down, .. } = operation.call {
                self.ranges[usize::from(is_down)] += 1;
            }
            let Outcome::Scanned(scanned) = operation.outcome else { continue };
            let is_key_alone = |record: &(u64, u64)| record.1 == UNSEEN;
            self.keys_alone += u64::from(history.records(scanned).first().is_some_and(is_key_alone));
            let of_all = [(Call::Ceiling, 0), (Call::Floor, u64::MAX)];
            self.ends += u64::from(of_all.contains(&(operation.call, operation.key)));
        }
        let by_groups = |o: &&Operation| o.outcome == Outcome::Absent && o.plan == Some(Plan::Groups);
        self.absent_by_groups += history.operations().iter().filter(by_groups).count() as u64;
        self.answering += u64::from(play.node.answers);
        let by_node = |o: &&Operation| o.plan == Some(Plan::AtNode);
        self.by_node += history.operations().iter().filter(by_node).count() as u64;
        self.unknown += count(Outcome::Unknown);
        let queues = || play.parts.iter().map(|part| &part.queue).filter(|queue| !queue.keys.is_empty());
        let fills = play.fills();
        self.fillers += u64::from(fills);
        self.queues += u64::from(queues().any(|queue| !queue.fills()));
        let is_refused = |o: &&Operation| o.outcome == Outcome::Refused && o.call.writes();
        let refused = history.operations().iter().filter(is_refused).count() as u64;
        match fills {
            true => self.refused_when_full += refused,
            false => self.refused += refused,
        }
        for queue in queues() {
            let (first, last) = (queue.keys[0], queue.keys[queue.keys.len() - 1]);
            let of_queue = history.operations().iter().filter(|o| (first..=last).contains(&o.key));
            let oldest =
                of_queue.filter(|o| o.call == Call::Delete && o.outcome == Outcome::Done).count() as u64;
            self.oldest += oldest;
            // Keys that follow one another, with none between: among this many there is a segment's
            // whole range.
            self.emptied += oldest / (2 * MOST_SLOTS);
        }
        self.lives.resumed += lives.resumed;
        self.lives.restored += lives.restored;
        self.lives.finished_changes += lives.finished_changes;
        self.lives.redone += lives.redone;
        self.lives.wrapped += lives.wrapped;
        self.lives.rebuilds += lives.rebuilds;
        self.lives.checkpoint += lives.checkpoint;
    }
}
