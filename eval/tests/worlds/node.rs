//! The real memory node in a simulated world, over all its lives.

mod durable;
mod flipped;
mod troubled;

use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fpcache::layout::{Grouping, REUSE_OFFSET, SlotWord};
use fpcache_client::{KeySpace, TableParameters, U64Keys};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_fabric::{ClientId, Clock, Handled, NodeMemory, Service, Work};
use fpcache_memserver::MemoryNode;
use fpcache_memserver::catalogue::answering::{Follower, Following};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::lease::Lease;
use fpcache_sim::{MemoryOptions, NodeId, NodeOptions, NodeStart, Process, Random, SimMemory, World};

#[cfg(not(feature = "sabotage"))]
use fpcache_memserver::catalogue::answering::answers;
#[cfg(feature = "sabotage")]
use fpcache_memserver::catalogue::answering::sabotaged_answers;

use crate::disk::Troubles;
use crate::flips::{Flipped, Flips};
use crate::memory_disk::MemoryDisk;

/// Bytes of the log's staging ring: so few that it goes round.
const RING_BYTES: u64 = 8 << 10;
/// Clients that the notes have room for. A place takes 16 KiB, and every life copies them.
const CLIENTS: usize = 12;
const CLIENT_BYTES: usize = 16 + 1024 * 16;
const NOTES_BYTES: usize = 4096 + RING_BYTES as usize + CLIENTS * CLIENT_BYTES;

/// What ends when a memory node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its process: memory and files stay.
    Process,
    /// The machine: memory is gone, of files stays what was synced.
    Machine,
    /// Now the one, now the other.
    Either,
}

/// How a memory node keeps what it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    pub sync: SyncPolicy,
    pub ending: Ending,
}

/// What a memory node is made of.
#[derive(Clone, Debug)]
pub struct NodeShape {
    pub region_bytes: usize,
    /// The keys it is loaded with; a key's value is [`first_value`].
    pub loaded: Vec<u64>,
    pub durability: Option<Durability>,
    /// A snapshot begins with one turn of its loop in this many, if there is a disk.
    pub snapshots: u64,
    /// Versions begin shortly before they wrap around; and are brought there again with one turn of
    /// the loop in this many. 0: they begin as they do.
    pub wraps: u64,
    /// What groups its records lie in.
    pub groups: Option<Grouping>,
    /// Whether fingerprints are stored beside its records.
    pub stores_fingerprints: bool,
    /// Whether threads of its own answer questions about its region.
    pub answers: bool,
    /// For how long readers may believe what they know of memory's reuse.
    pub lease: Duration,
    /// Bits that flip in its region.
    pub flips: Option<Flips>,
    /// Its disk has another trouble, or none, with one turn of its loop in this many; 0: never any.
    pub troubles: u64,
    /// What is broken on purpose.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<fpcache::sabotage::Sabotage>,
}

/// The bytes of a value.
fn value_of<K: NumberedKeys>(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientStore::<K>::encode(value, &mut bytes);
    bytes
}

/// The value a key is loaded with.
pub fn first_value(key: u64) -> u64 {
    key + 1
}

/// Bytes of a region that is about as tight for keys of this kind as one of `bytes` bytes is for
/// integers: for the size of the slots and of what lies outside them, and that of a directory's
/// page, of which there are one in use, one being written and one that waits.
fn region_bytes<K: NumberedKeys>(bytes: usize) -> usize {
    let geometry = K::small_segments().geometry();
    let pages = 3 * (K::PAGE_BYTES - U64Keys::PAGE_BYTES);
    bytes * (geometry.slot_bytes + K::OUTSIDE_BYTES) / U64Keys::small_segments().geometry().slot_bytes + pages
}

/// How many times as long as what may be used of it a region is that records are restored in: as a
/// real one but for the few mebibytes beside that, which are free of charge only there.
const LONGER: usize = 4;

impl NodeShape {
    /// Whether some of its lives begin with what the disk holds.
    fn starts_cold(&self) -> bool {
        let is_away = self.flips.is_some() && self.durability.is_some();
        is_away || self.durability.is_some_and(|durability| durability.ending != Ending::Process)
    }
}

type Node<K> = MemoryNode<K, SimMemory>;

/// A region and a recovery area, and what they had at some instant of a life.
#[derive(Debug)]
struct PastMemory {
    memories: Vec<Arc<SimMemory>>,
    bytes: Vec<Vec<u8>>,
}

impl PastMemory {
    fn of(memories: &[Arc<SimMemory>]) -> Self {
        Self { memories: memories.to_vec(), bytes: Vec::new() }
    }

    /// Keeps what they have now, as a file system does that writes it back.
    fn keep(&mut self) {
        let read = |memory: &Arc<SimMemory>| {
            memory.flush();
            let mut bytes = vec![0; memory.len() as usize];
            memory.read_bytes(0, &mut bytes).unwrap();
            bytes
        };
        self.bytes = self.memories.iter().map(read).collect();
    }

    /// They have what was kept.
    fn bring_back(&self, memories: &[Arc<SimMemory>]) {
        for (memory, bytes) in memories.iter().zip(&self.bytes) {
            memory.write_bytes(0, bytes).unwrap();
            memory.flush();
        }
    }
}

/// What outlives a memory node's lives.
#[derive(Debug)]
struct Kept<K: NumberedKeys> {
    disk: MemoryDisk,
    troubles: Troubles,
    /// Lives that could not begin while the disk was in trouble, but when that was over.
    refused_starts: u64,
    memories: Option<PastMemory>,
    /// Whether the next life finds memory as it was then.
    goes_back: bool,
    /// Lives that found it so.
    went_back: u64,
    /// Starts of the machine, and the one that the memory is of.
    boots: u64,
    memory_of: u64,
    random: Random,
    node: Option<Arc<Mutex<Node<K>>>>,
    /// What brings up to date what questions are answered by, until its process takes it.
    following: Option<Following>,
    /// Lives that began with the memory of the one before, and with what the disk held.
    resumed: u64,
    restored: u64,
    finished_changes: u64,
    redone: u64,
    /// Times that versions were brought near their end.
    wraps: u64,
    flipped: Flipped,
    /// Whether the next life finds the notes of the one before, and no region.
    region_is_away: bool,
    /// Whether a snapshot begins with the next turn.
    wants_snapshot: bool,
}

/// A memory node of a simulated world.
#[derive(Clone, Debug)]
pub struct Stage<K: NumberedKeys> {
    shape: Arc<NodeShape>,
    kept: Arc<Mutex<Kept<K>>>,
}

/// What happened to a memory node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lives {
    pub resumed: u64,
    pub restored: u64,
    pub finished_changes: u64,
    pub redone: u64,
    /// Times that versions began anew, or one less.
    pub wrapped: u64,
    /// Of its last life.
    pub rebuilds: u64,
    pub checkpoint: u64,
}

impl<K: NumberedKeys> Stage<K> {
    /// Adds a memory node to a world.
    pub fn add(world: &mut World, shape: NodeShape) -> (Self, NodeId) {
        let mut random = Random::new(world.seed() ^ 0x5eed_0fd1);
        let survives = shape.durability.is_some();
        let memory = |options: MemoryOptions| if survives { options.surviving() } else { options };
        let limit = region_bytes::<K>(shape.region_bytes);
        let memories = vec![
            memory(MemoryOptions::region(if shape.starts_cold() { limit * LONGER } else { limit })),
            memory(MemoryOptions::private(NOTES_BYTES)),
        ];
        let kept = Kept {
            disk: MemoryDisk::new(random.bits()),
            troubles: Troubles::default(),
            refused_starts: 0,
            memories: None,
            goes_back: false,
            went_back: 0,
            boots: 1,
            memory_of: 1,
            random,
            node: None,
            following: None,
            resumed: 0,
            restored: 0,
            finished_changes: 0,
            redone: 0,
            wraps: 0,
            flipped: Flipped::default(),
            region_is_away: false,
            wants_snapshot: false,
        };
        let stage = Self { shape: Arc::new(shape), kept: Arc::new(Mutex::new(kept)) };
        let (serving, dying) = (stage.clone(), stage.clone());
        let lease = Some((REUSE_OFFSET, stage.shape.lease)).filter(|(_, lease)| !lease.is_zero());
        let options = NodeOptions { lease, ..NodeOptions::new(memories) };
        let id = world.add_node(options, move |start| serving.serve(&start)).unwrap();
        world.on_death(id, move |_| dying.die());
        (stage, id)
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K>> {
        // A memory node that panicked has failed the test already.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn die(&self) {
        let mut kept = self.kept();
        kept.node = None;
        let machine = match self.shape.durability.map(|durability| durability.ending) {
            None | Some(Ending::Process) => false,
            Some(Ending::Machine) => true,
            Some(Ending::Either) => kept.random.below(2) == 0,
        };
        kept.disk = if machine { kept.disk.crash() } else { kept.disk.restart() };
        kept.boots += u64::from(machine);
        if self.shape.troubles > 0 {
            let Kept { disk, troubles, random, .. } = &mut *kept;
            if random.below(3) == 0 {
                troubles.fail_reads(disk, random);
            }
            // A file system that went away and came back; of what was acknowledged the disk has all,
            // and no client reads what was there before.
            let may_go_back = self.shape.durability.is_some_and(|durability| {
                durability.sync == SyncPolicy::Always && durability.ending == Ending::Either
            });
            let is_kept = kept.memories.as_ref().is_some_and(|past| !past.bytes.is_empty());
            kept.goes_back = !machine && may_go_back && is_kept && kept.random.below(2) == 0;
        }
        // The file of the recovery area may have got to the disk, and be as it was.
        kept.region_is_away |= machine && self.shape.troubles > 0 && kept.random.below(2) == 0;
    }

    fn serve(&self, start: &NodeStart) -> Box<dyn Service> {
        #[allow(unused_mut, reason = "only a broken one is changed")]
        let mut node = match self.shape.durability {
            None => self.begin(start),
            Some(durability) => self.go_on(start, durability),
        };
        #[cfg(feature = "sabotage")]
        node.sabotage(self.shape.sabotage);
        if start.life == 1 && self.shape.wraps > 0 {
            self.near_the_end(&mut node);
        }
        if self.shape.answers {
            self.answer(start);
        }
        let mut kept = self.kept();
        let node = Arc::new(Mutex::new(node));
        kept.node = Some(Arc::clone(&node));
        let snapshots = self.shape.durability.map_or(0, |_| self.shape.snapshots);
        Box::new(Served { node, random: kept.random.split(), snapshots, stage: self.clone() })
    }

    /// Has questions answered in this life, by views as real memory nodes have.
    fn answer(&self, start: &NodeStart) {
        let (follower, following) = Follower::by_hand(Arc::new(start.clock.clone()));
        let region = start.region.clone();
        let open = move || Ok(region.reader());
        #[cfg(not(feature = "sabotage"))]
        let answers = answers::<K, _>(open, &follower);
        #[cfg(feature = "sabotage")]
        let answers = sabotaged_answers::<K, _>(open, &follower, self.shape.sabotage);
        start.region.answer_by(answers);
        self.kept().following = Some(following);
    }

    /// Brings up to date what questions are answered by, as a process of its own, until no client
    /// works any more.
    pub fn follow(&self, process: &mut Process, working: &AtomicUsize) {
        let mut following = None;
        while working.load(Ordering::Relaxed) > 0 {
            let rest = process.random.between(1, 40);
            process.sleep(Duration::from_micros(rest));
            following = self.kept().following.take().or(following);
            if let Some(following) = &following {
                following.follow_next();
            }
        }
    }

    /// Has versions wrap around soon, if they do not anyway.
    fn near_the_end(&self, node: &mut Node<K>) {
        let mut kept = self.kept();
        let soon = SlotWord::VERSIONS - kept.random.between(1, 40) as u32;
        if node.next_version() < SlotWord::VERSIONS / 2 {
            node.count_versions_from(soon);
            kept.wraps += 1;
        }
    }

    fn begin(&self, start: &NodeStart) -> Node<K> {
        assert_eq!(start.life, 1, "without durability nothing is left to go on with");
        let now = start.clock.now();
        let node = MemoryNode::new(Arc::clone(&start.memories[0]), start.life, 0, now).unwrap();
        self.load(node.with_clock(Arc::new(start.clock.clone())).with_lease(self.lease(start)))
    }

    fn lease(&self, start: &NodeStart) -> Lease {
        Lease::new(self.shape.lease, Arc::new(start.clock.clone()))
    }

    fn load(&self, mut node: Node<K>) -> Node<K> {
        let keys: Vec<K::Owned> = self.shape.loaded.iter().map(|number| K::key(*number)).collect();
        // Models that suit the keys, or know nothing of them and learn.
        let learns = self.shape.loaded.len() % 2 == 1;
        let encoders = match learns {
            false => K::train(keys.iter().map(Borrow::borrow), 0),
            true => K::Encoders::default(),
        };
        let values: Vec<Vec<u8>> =
            self.shape.loaded.iter().map(|key| value_of::<K>(first_value(*key))).collect();
        let NodeShape { groups, stores_fingerprints, .. } = *self.shape;
        let parameters = TableParameters { groups, stores_fingerprints, ..K::small_segments() };
        node.load_records(parameters, encoders, keys.into_iter().zip(values)).unwrap();
        if learns {
            node.retrain_at(self.shape.loaded.len() as u64);
        }
        node
    }

    /// Lives that began with the memory of the one before, and with what the disk held.
    pub fn lives(&self) -> (u64, u64) {
        let kept = self.kept();
        (kept.resumed, kept.restored)
    }

    /// Checks every byte of the table, and says what happened to the memory node.
    pub fn audit(&self) -> Result<Lives, String> {
        let kept = self.kept();
        let node = kept.node.as_ref().ok_or("it is not up")?;
        let node = node.lock().unwrap_or_else(PoisonError::into_inner);
        node.audit().map_err(|error| error.to_string())?.ok_or("it has no table")?;
        let stats = node.stats();
        let Kept { resumed, restored, finished_changes, redone, wraps, .. } = *kept;
        let (rebuilds, checkpoint) = (stats.rebuilds, stats.checkpoint);
        let wrapped = wraps - u64::from(node.next_version() > SlotWord::VERSIONS / 2);
        Ok(Lives { resumed, restored, finished_changes, redone, wrapped, rebuilds, checkpoint })
    }
}

/// A memory node as the world's service, whose owner may look at it when the world rests.
struct Served<K: NumberedKeys> {
    node: Arc<Mutex<Node<K>>>,
    random: Random,
    snapshots: u64,
    stage: Stage<K>,
}

impl<K: NumberedKeys> Served<K> {
    fn node(&self) -> MutexGuard<'_, Node<K>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: NumberedKeys> Service for Served<K> {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.node().handle(client, request, reply)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.node().next_reply(reply)
    }

    fn work(&mut self) -> Work {
        let begins = self.snapshots > 0 && self.random.below(self.snapshots) == 0;
        let begins = std::mem::take(&mut self.stage.kept().wants_snapshot) || begins;
        let wraps = self.stage.shape.wraps;
        let wraps = wraps > 0 && self.random.below(wraps) == 0;
        let flips = self.stage.shape.flips.as_ref().filter(|flips| self.random.below(flips.often) == 0);
        let flips = flips.map(|flips| (flips, self.random.split()));
        let troubles = self.stage.shape.troubles;
        if troubles > 0 && self.random.below(troubles) == 0 {
            let mut kept = self.stage.kept();
            kept.troubles.change(&kept.disk, &mut self.random);
            kept.memories.iter_mut().for_each(PastMemory::keep);
        }
        let mut node = self.node();
        if let Some((flips, mut random)) = flips {
            self.stage.kept().flipped.one_more(flips, &mut node, &mut random);
        }
        if wraps {
            self.stage.near_the_end(&mut node);
        }
        if begins {
            node.begin_snapshot();
        }
        node.work()
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        self.node().connected(client, region);
    }

    fn disconnected(&mut self, client: ClientId) {
        self.node().disconnected(client);
    }
}
