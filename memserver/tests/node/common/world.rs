//! A memory node whose process and machine end whenever a test wants it, and what is left of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use fpcache::layout::TableParameters;
use fpcache_fabric::{AccessError, FileIdentity, NodeMemory, SharedMemory};
use fpcache_memserver::durability::{Disk, DiskError, SyncPolicy};
use fpcache_memserver::store::{
    Background, Memories, Startup, UNKNOWN_BOOT, bytes_to_restore, recovery_area_bytes, restore, resume,
    sync_previous_log, why_unusable,
};
use fpcache_memserver::{MemoryNode, RecoverError, Recovery};

use super::keys::TestKeys;
use super::requests::{Writer, value};
use crate::memory_disk::MemoryDisk;
use crate::watched_disk::{BeforeChange, WatchedDisk};

pub const RING: u64 = 64 << 10;
pub const REGION: usize = 512 << 10;
const PAGE: usize = 4096;

/// The stores, and the changes of the disk, that a process has left before it ends.
#[derive(Debug)]
pub struct Stores {
    left: AtomicU64,
    changes: AtomicU64,
    /// Whether there was to be another.
    is_over: AtomicBool,
}

impl Stores {
    fn endless() -> Self {
        let endless = || AtomicU64::new(u64::MAX);
        Self { left: endless(), changes: endless(), is_over: AtomicBool::new(false) }
    }

    /// From here on it has `left`.
    pub fn store(&self, left: u64, order: Ordering) {
        self.left.store(left, order);
        self.changes.store(u64::MAX, order);
        self.is_over.store(false, order);
    }

    /// From here on it has so many stores, or so many changes of the disk and as many stores as it
    /// likes.
    pub fn end_after(&self, end: End) {
        self.store(if let End::Stores(left) = end { left } else { u64::MAX }, Ordering::Relaxed);
        if let End::Changes(left) = end {
            self.changes.store(left, Ordering::Relaxed);
        }
    }

    /// Whether the process has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// How many it has.
    pub fn load(&self, order: Ordering) -> u64 {
        self.left.load(order)
    }

    /// Whether there was one left.
    fn take(&self) -> bool {
        let was_left =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        self.is_over.fetch_or(!was_left, Ordering::Relaxed);
        was_left
    }
}

/// What a process has left before it ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Stores(u64),
    Changes(u64),
}

/// Memory whose owner ends after a number of stores: it goes on without noticing, but what it
/// stores then has never been.
#[derive(Clone, Debug)]
pub struct Mortal {
    /// As the owner sees it.
    own: Arc<SharedMemory>,
    /// As it is left behind.
    left_behind: Arc<SharedMemory>,
    /// The pages of it that something was stored to: to read each of the others as well would cost
    /// more, in page faults, than all else that a world does.
    stored: Arc<[AtomicBool]>,
    left: Arc<Stores>,
}

impl Mortal {
    pub fn new(len: usize, left: &Arc<Stores>) -> Arc<Self> {
        let memory = || Arc::new(SharedMemory::anonymous(len).expect("memory"));
        let stored = (0..len.div_ceil(PAGE)).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { own: memory(), left_behind: memory(), stored, left: Arc::clone(left) })
    }

    /// The memory that the owner left behind.
    pub fn heir(&self) -> Arc<Self> {
        let len = SharedMemory::len(&self.own);
        let heir = Self::new(len, &self.left);
        let mut bytes = [0; PAGE];
        for at in (0..len).step_by(PAGE).filter(|at| self.is_stored(*at as u64).load(Ordering::Relaxed)) {
            let page = &mut bytes[..(len - at).min(PAGE)];
            self.left_behind.read_bytes(at as u64, page).expect("inside");
            heir.own.write_bytes(at as u64, page).expect("inside");
            heir.left_behind.write_bytes(at as u64, page).expect("inside");
            heir.is_stored(at as u64).store(true, Ordering::Relaxed);
        }
        heir
    }

    fn is_stored(&self, offset: u64) -> &AtomicBool {
        &self.stored[offset as usize / PAGE]
    }

    /// Whether a store to a word is left behind.
    fn lives(&self, offset: u64) -> bool {
        let lives = self.left.take();
        if lives {
            self.is_stored(offset).store(true, Ordering::Relaxed);
        }
        lives
    }
}

impl NodeMemory for Mortal {
    fn len(&self) -> u64 {
        NodeMemory::len(&*self.own)
    }

    fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        NodeMemory::read_bytes(&*self.own, offset, out)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.own.write_bytes(offset, bytes)?;
        // Word by word, each of which may be the last.
        let mut at = 0;
        while at < bytes.len() {
            let end = ((offset as usize + at) / 8 * 8 + 8 - offset as usize).min(bytes.len());
            if self.lives(offset + at as u64) {
                self.left_behind.write_bytes(offset + at as u64, &bytes[at..end])?;
            }
            at = end;
        }
        Ok(())
    }

    fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError> {
        (0..count as u64).try_for_each(|i| self.store_relaxed(offset + 8 * i, value))
    }

    fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        self.own.load_relaxed(offset)
    }

    fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        self.own.load_acquire(offset)
    }

    fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.own.store_relaxed(offset, value)?;
        if self.lives(offset) { self.left_behind.store_relaxed(offset, value) } else { Ok(()) }
    }

    fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.store_relaxed(offset, value)
    }

    fn release(&self) {}
}

/// A disk that takes nothing from a process that has ended.
type MortalDisk = WatchedDisk<Arc<Stores>>;

impl BeforeChange for Arc<Stores> {
    fn before_change(&self, name: &str) -> Result<(), DiskError> {
        let take = |left: u64| left.checked_sub(1).filter(|_| !self.is_over());
        if self.changes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Ok(());
        }
        self.left.store(0, Ordering::Relaxed);
        self.is_over.store(true, Ordering::Relaxed);
        Err(DiskError::new("writing", name, std::io::Error::other("the process has ended")))
    }
}

pub type Node<T> = MemoryNode<<T as TestKeys>::Space, Mortal>;

pub fn startup(sync: SyncPolicy, incarnation: u64) -> Startup {
    let (boot, node, now) = ([3; 16], 0, Instant::now());
    Startup { sync, ring_bytes: RING, boot, incarnation, lineage: 77, node, now }
}

/// A region and notes that a machine's end has taken: nothing of them is left.
pub fn lost(left: &Arc<Stores>) -> (Arc<Mortal>, Arc<Mortal>) {
    (Mortal::new(REGION, left), Mortal::new(recovery_area_bytes(RING) as usize, left))
}

#[derive(Clone)]
pub struct World {
    pub left: Arc<Stores>,
    pub region: Arc<Mortal>,
    pub recovery_area: Arc<Mortal>,
    pub disk: MemoryDisk,
    pub sync: SyncPolicy,
    pub boot: [u8; 16],
    pub lives: u64,
}

impl World {
    pub fn new(sync: SyncPolicy, seed: u64) -> Self {
        let left = Arc::new(Stores::endless());
        let region = Mortal::new(REGION, &left);
        let recovery_area = Mortal::new(recovery_area_bytes(RING) as usize, &left);
        let boot = startup(sync, 0).boot;
        Self { left, region, recovery_area, disk: MemoryDisk::new(seed), sync, boot, lives: 0 }
    }

    pub fn memories(&self) -> Memories<Mortal> {
        Memories::new(Arc::clone(&self.region), Arc::clone(&self.recovery_area)).limited(REGION as u64)
    }

    fn mortal_disk(&self) -> MortalDisk {
        WatchedDisk { disk: self.disk.clone(), before: Arc::clone(&self.left) }
    }

    /// Goes on with the memory that is there, in a process that ends after some stores.
    pub fn begin_and_end_after<T: TestKeys>(&mut self, stores: u64) {
        self.lives += 1;
        (self.region, self.recovery_area) = (self.region.heir(), self.recovery_area.heir());
        self.disk = self.disk.restart();
        let startup = startup(self.sync, self.lives);
        assert_eq!(why_unusable(&self.memories(), &self.disk, &startup).expect("a disk"), None);
        self.left.store(stores, Ordering::Relaxed);
        let begun: Result<(Node<T>, Recovery), _> =
            resume(self.memories(), self.mortal_disk(), &startup, Background::Inline);
        drop(begun);
    }

    /// The machine ends, which leaves the notes as they are, and takes the region.
    pub fn crash_keeping_notes(&mut self) {
        self.disk = self.disk.crash();
        if self.boot != UNKNOWN_BOOT {
            self.boot[0] += 1;
        }
        self.recovery_area = self.recovery_area.heir();
        self.region = Mortal::new(REGION, &self.left);
    }

    /// A memory node that goes on in whatever way it can.
    pub fn begin<T: TestKeys>(&mut self) -> (Node<T>, Recovery) {
        self.try_begin::<T>().unwrap_or_else(|error| panic!("nothing is damaged: {error}"))
    }

    /// The same, where the disk may fail it.
    pub fn try_begin<T: TestKeys>(&mut self) -> Result<(Node<T>, Recovery), RecoverError> {
        self.left.store(u64::MAX, Ordering::Relaxed);
        self.begin_with_what_is_left::<T>().expect("it does not end")
    }

    /// A start whose process ends after this, or once it has begun; what that found, if it did.
    pub fn begin_and_end<T: TestKeys>(&mut self, end: End) -> Option<Recovery> {
        self.left.end_after(end);
        self.begin_with_what_is_left::<T>()?.ok().map(|(_, recovery)| recovery)
    }

    fn begin_with_what_is_left<T: TestKeys>(&mut self) -> Option<Begun<T>> {
        self.lives += 1;
        (self.region, self.recovery_area) = (self.region.heir(), self.recovery_area.heir());
        self.disk = self.disk.restart();
        let startup = Startup { boot: self.boot, ..startup(self.sync, self.lives) };
        let why = match why_unusable(&self.memories(), &self.disk, &startup) {
            Ok(None) => {
                return Some(resume(self.memories(), self.mortal_disk(), &startup, Background::Inline));
            }
            Ok(Some(why)) => why,
            Err(error) => return Some(Err(error)),
        };
        let recovery_area = match self.recovery_area_after_the_last(&startup) {
            Ok(recovery_area) => recovery_area,
            Err(error) => return Some(Err(error)),
        };
        if self.left.is_over() {
            return None;
        }
        let names = self.disk.list().expect("a folder");
        let restores = names.iter().any(|name| name.starts_with("snapshot-"));
        let bytes = if restores { bytes_to_restore(REGION as u64) as usize } else { REGION };
        (self.region, self.recovery_area) = (Mortal::new(bytes, &self.left), recovery_area);
        Some(restore(self.memories(), self.mortal_disk(), &startup, Background::Inline, Some(why)))
    }

    /// A new recovery area, once the disk has what only the last one had.
    fn recovery_area_after_the_last(&self, startup: &Startup) -> Result<Arc<Mortal>, RecoverError> {
        let disk = self.mortal_disk();
        let left = sync_previous_log(&self.recovery_area, FileIdentity::default(), &disk, startup)?;
        let recovery_area = Mortal::new(recovery_area_bytes(RING) as usize, &self.left);
        left.note(&recovery_area)?;
        Ok(recovery_area)
    }
}

type Begun<T> = Result<(Node<T>, Recovery), RecoverError>;

pub fn parameters<T: TestKeys>() -> TableParameters {
    TableParameters { epsilon: 4, max_slots: 64, ..T::parameters(8) }
}

pub fn load<T: TestKeys>(node: &mut Node<T>, keys: u64) {
    load_with::<T>(node, keys, parameters::<T>());
}

/// The same, into a table with other parameters.
pub fn load_with<T: TestKeys>(node: &mut Node<T>, keys: u64, parameters: TableParameters) {
    let records = loaded::<T>(keys).into_iter().map(|(key, value)| (T::key(key), value));
    let records: Vec<_> = records.collect();
    node.load_records(parameters, T::encoders(), records.into_iter()).expect("room");
}

/// Everything in the table, the numbers of whose keys are multiples of five, or lie where most
/// writes go.
pub fn contents<T: TestKeys>(node: &mut Node<T>, writer: &Writer<T>) -> BTreeMap<u64, Vec<u8>> {
    let numbers = (0..5000).filter(|n| n % 5 == 0 || (700..800).contains(n) || *n > 4990);
    let found: BTreeMap<_, _> =
        numbers.filter_map(|key| writer.get(node, key).map(|(value, _)| (key, value))).collect();
    assert_eq!(found.len() as u64, node.stats().keys, "there are other keys");
    found
}

pub fn loaded<T: TestKeys>(keys: u64) -> BTreeMap<u64, Vec<u8>> {
    (0..keys).map(|i| (i * 50, value::<T>(i * 50, 0, 8))).collect()
}
