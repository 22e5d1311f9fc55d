//! A table in the catalogue, with keys of either kind.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::layout::{DROPPED, REUSE_OFFSET, SUPERBLOCK_BYTES};
use fpcache::map::{MappedRange, RangeMap};
use fpcache::message::{NodeStats, TableInfo};
use fpcache::sabotage::Sabotage;
use fpcache_fabric::descriptors::TakenDescriptors;
use fpcache_fabric::{AccessError, Export, NodeMemory, Pages, Service, SharedMemory, Waker};

use crate::budget::Grant;
use crate::lease::Lease;
use crate::node::MemoryNode;
use crate::recovery::Recovery;
use crate::wal::MissingLog;

/// The memory node of one table.
pub(crate) trait Hosted: Service + Any + fmt::Debug {
    /// Its counters.
    fn stats(&self) -> NodeStats;

    /// Its region.
    fn region(&self) -> &Arc<SharedMemory>;

    /// Which bytes of its region it may have used.
    fn grant(&self) -> Arc<Grant>;

    /// The lease that its readers have of what they know of memory's reuse.
    fn lease(&self) -> Lease {
        Lease::default()
    }

    /// When the client was heard of whose replies are let go next, if the table keeps any.
    fn oldest_replies(&mut self) -> Option<u64> {
        None
    }

    /// Evicts the replies of some clients, of those silent longest first: of one, and of others not
    /// heard of after `until`. Whether there were any.
    fn evict_replies(&mut self, until: u64) -> bool {
        let _ = until;
        false
    }

    /// Has it serve the keys of a range only; says whether these can be.
    fn own(&mut self, _map: &RangeMap, _range: &MappedRange) -> bool {
        false
    }

    /// Whether this is broken on purpose.
    fn breaks(&self, _what: Sabotage) -> bool {
        false
    }

    /// Breaks the protocol on purpose from here on.
    #[cfg(feature = "sabotage")]
    fn sabotage(&mut self, _sabotage: Option<Sabotage>) {}

    /// Brings its log to the disk for good; what the disk lacks of it then, if anything.
    fn end_log(&mut self) -> Option<MissingLog> {
        None
    }
}

impl<K: BuildKeys> Hosted for MemoryNode<K> {
    fn stats(&self) -> NodeStats {
        Self::stats(self)
    }

    fn region(&self) -> &Arc<SharedMemory> {
        Self::region(self)
    }

    fn grant(&self) -> Arc<Grant> {
        Arc::clone(&self.state.superblock().grant)
    }

    fn lease(&self) -> Lease {
        self.state.superblock().lease.clone()
    }

    fn oldest_replies(&mut self) -> Option<u64> {
        self.sessions.oldest_kept()
    }

    fn evict_replies(&mut self, until: u64) -> bool {
        Self::evict_replies(self, until)
    }

    fn own(&mut self, map: &RangeMap, range: &MappedRange) -> bool {
        Self::own(self, map, range)
    }

    fn breaks(&self, what: Sabotage) -> bool {
        self.state.superblock().breaks(what)
    }

    #[cfg(feature = "sabotage")]
    fn sabotage(&mut self, sabotage: Option<Sabotage>) {
        Self::sabotage(self, sabotage);
    }

    fn end_log(&mut self) -> Option<MissingLog> {
        let lacks_snapshot = self.state.table().is_some() && !self.has_snapshot;
        self.wal.as_mut()?.end(lacks_snapshot)
    }
}

/// A table that is served.
#[derive(Debug)]
pub(crate) struct HostedTable {
    pub(crate) name: TableName,
    pub(crate) kind: KeyKind,
    pub(crate) node: Box<dyn Hosted>,
    pub(crate) export: Export,
    /// What its threads wake the loop with.
    pub(crate) waker: Waker,
    /// What it was recovered from, if it is durable.
    pub(crate) recovery: Option<Recovery>,
    /// What it has of the process's descriptors. The last field: given back when they are closed.
    pub(crate) descriptors: Option<TakenDescriptors>,
    /// The map it goes by, if it is a range of a table over several memory nodes.
    pub(crate) map: Option<Arc<RangeMap>>,
}

impl HostedTable {
    /// What it tells of itself.
    pub(crate) fn info(&self) -> TableInfo {
        let stats = self.node.stats();
        TableInfo {
            name: self.name,
            kind: self.kind,
            keys: stats.keys,
            region_bytes: stats.region_bytes,
            used_bytes: stats.used_bytes,
            clients: stats.clients,
        }
    }

    /// Has it go by this map, of which it is a range; says whether it is.
    pub(crate) fn adopt_map(&mut self, map: Arc<RangeMap>) -> bool {
        let is_range = map
            .ranges
            .iter()
            .find(|range| map.table(range).as_ref() == Ok(&self.name))
            .is_some_and(|range| map.kind == self.kind && self.node.own(&map, range));
        if is_range {
            self.map = Some(map);
        }
        is_range
    }

    /// Its memory node, if its keys are those of `K`.
    pub(crate) fn node_mut<K: BuildKeys>(&mut self) -> Option<&mut MemoryNode<K>> {
        let node: &mut dyn Any = &mut *self.node;
        node.downcast_mut()
    }
}

/// The region of a table that is not served any more.
#[derive(Debug)]
pub(crate) struct LeftRegion {
    region: Arc<SharedMemory>,
    /// Whether the disk has the table too.
    is_durable: bool,
    /// Whether it is left as it is, on purpose.
    stays: bool,
    /// What may have been used of it. After the region: others are not promised memory that is
    /// still there.
    grant: Arc<Grant>,
    lease: Lease,
    /// The last field: given back when the region's are closed.
    _descriptors: Option<TakenDescriptors>,
}

impl LeftRegion {
    /// What is left of a table once it is not served.
    pub(super) fn of(table: HostedTable) -> Self {
        let HostedTable { node, descriptors, recovery, .. } = table;
        let (region, grant, lease) = (Arc::clone(node.region()), node.grant(), node.lease());
        let (is_durable, stays) = (recovery.is_some(), node.breaks(Sabotage::DropLeavesRegion));
        let left = Self { region, is_durable, stays, grant, lease, _descriptors: descriptors };
        // Its threads end here.
        drop(node);
        // All of it goes back at once.
        left.grant.end_returning();
        left
    }

    /// See [`give_up`].
    pub(super) fn give_up(&self) -> Result<(), AccessError> {
        if self.stays {
            return Ok(());
        }
        give_up(&self.region, self.grant.end(), self.lease.clone())
    }
}

impl Drop for LeftRegion {
    /// After a panic nobody has it to be given up when the table is dropped again. One that the
    /// disk has is given up by its file then; until it is dropped there, the table is as it was.
    fn drop(&mut self) {
        if thread::panicking() && !self.is_durable {
            let _ = self.give_up();
        }
    }
}

/// Gives up the region of a process that has ended, of which it is no longer known how much was
/// used: nobody reads it by a network card. In what is shorter than a superblock there are no
/// records.
pub(crate) fn give_up_all(region: &SharedMemory) -> Result<(), AccessError> {
    if region.len() < SUPERBLOCK_BYTES {
        Ok(())
    } else {
        give_up(region, region.len() as u64, Lease::default())
    }
}

/// Gives up the region of a table that was dropped, whose bytes before `used` may have been used.
/// Its readers find out by the reuse sequence, which no directory reaches: once their lease has
/// ended none of them takes "absent" for an answer, and only then there are zeros. The memory goes
/// back to the operating system while they still map it, or is overwritten where the operating
/// system does not take it: no record is left that one of them could take for a live one.
pub(crate) fn give_up(region: &SharedMemory, used: u64, mut lease: Lease) -> Result<(), AccessError> {
    let begin = SUPERBLOCK_BYTES as u64;
    if region.reserve(0, begin).is_err() {
        // A disk that is full has never given it these pages: a store to them would end the
        // process, and nothing of it can have been read.
        return Ok(());
    }
    region.store_relaxed(REUSE_OFFSET, DROPPED)?;
    region.flush();
    lease.begin();
    lease.wait();
    // Zeros for those who have it copied, before they could have pages taken for it again.
    region.set_backed_end(begin);
    let page = if region.pages() == Pages::Huge { HUGE_PAGE } else { rustix::param::page_size() };
    erase_beside_superblock(region, page)?;
    if !(discard_in_steps(region, begin, used)? && region.discard_from(used.max(begin))?) {
        region.erase(begin, used.min(region.len() as u64))?;
    }
    Ok(())
}

/// Makes zeros of the rest of the page that the superblock lies in, which stays: only whole pages
/// go back to the operating system, and `page` is how long these are.
fn erase_beside_superblock(region: &SharedMemory, page: usize) -> Result<(), AccessError> {
    region.erase(SUPERBLOCK_BYTES as u64, region.len().min(page) as u64)
}

/// Gives the memory between these offsets back to the operating system, in steps of a tenth of a
/// millisecond after which this thread rests as long as each took: others want the processor, too.
/// `false` if it is not taken.
fn discard_in_steps(region: &SharedMemory, begin: u64, end: u64) -> Result<bool, AccessError> {
    const STEP: u64 = HUGE_PAGE as u64;
    /// After a step that took less, over memory that was never used, it does not rest.
    const LEAST_REST: Duration = Duration::from_micros(20);
    let end = end.min(region.len() as u64);
    for start in (begin / STEP..end.div_ceil(STEP)).map(|step| step * STEP) {
        let began = Instant::now();
        if !region.discard_between(start.max(begin), start + STEP)? {
            return Ok(false);
        }
        let took = began.elapsed();
        if took > LEAST_REST {
            thread::sleep(took);
        }
    }
    Ok(true)
}

/// Bytes of the largest pages there are.
const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::tests::memory_that_stays;
    use crate::catalogue::{Catalogue, CatalogueConfig};
    use fpcache_fabric::{Clock, HugePages};
    use std::sync::Mutex;

    /// A clock that looks, when somebody sleeps, at the reuse sequence of a region, a record in it,
    /// and up to where it is backed.
    #[derive(Debug)]
    struct Witness {
        region: Arc<SharedMemory>,
        now: Mutex<Instant>,
        seen: Mutex<Vec<[u64; 3]>>,
    }

    impl Clock for Witness {
        fn now(&self) -> Instant {
            *self.now.lock().expect("nobody panics")
        }

        fn sleep(&self, duration: Duration) {
            let word = |at| self.region.load_relaxed(at).expect("inside");
            let seen = [word(REUSE_OFFSET), word(SUPERBLOCK_BYTES as u64), self.region.backed_end()];
            self.seen.lock().expect("nobody panics").push(seen);
            *self.now.lock().expect("nobody panics") += duration;
        }
    }

    /// A reader by a network card believed the reuse sequence that it knew, saw zeros and took a
    /// key for absent.
    #[test]
    fn a_dropped_table_reads_as_zeros_only_after_the_lease() {
        const BYTES: u64 = 1 << 20;
        let region = SharedMemory::create_memfd("test", BYTES as usize, HugePages::No).expect("memory").0;
        let region = Arc::new(region);
        region.fill_words(0, BYTES as usize / 8, 7).expect("it may be written");
        region.set_backed_end(BYTES);
        let (now, seen) = (Mutex::new(Instant::now()), Mutex::new(Vec::new()));
        let witness = Arc::new(Witness { region: Arc::clone(&region), now, seen });
        let lease = Lease::new(Duration::from_millis(1), Arc::clone(&witness) as Arc<dyn Clock>);
        give_up(&region, BYTES, lease).expect("it may be written");
        assert_eq!(*witness.seen.lock().expect("nobody panics"), [[DROPPED, 7, BYTES]]);
        assert_eq!(region.load_relaxed(SUPERBLOCK_BYTES as u64), Ok(0));
    }

    /// What lay between the superblock and the end of its page was left, where pages are longer.
    #[test]
    fn nothing_is_left_beside_the_superblock_however_long_pages_are() {
        let len = 4 * HUGE_PAGE;
        for page in [4 << 10, 16 << 10, 64 << 10, HUGE_PAGE, 2 * len] {
            let (region, _) = SharedMemory::create_memfd("test", len, HugePages::No).expect("memory");
            let begin = SUPERBLOCK_BYTES as u64;
            region.fill_words(0, len / 8, 7).expect("it may be written");
            erase_beside_superblock(&region, page).expect("it may be written");
            let end = page.min(len) as u64;
            let is_gone = |at: u64| region.load_relaxed(at).expect("inside") == 0;
            assert!((begin..end).step_by(8).all(is_gone), "{page}");
            let mut kept = (0..begin).chain(end..len as u64).step_by(8);
            assert!(!kept.any(is_gone), "{page}");
        }
    }

    #[test]
    fn a_drop_takes_as_long_as_the_lease_of_the_tables_readers() {
        let lease = Duration::from_millis(50);
        let config = CatalogueConfig { lease, ..CatalogueConfig::of(1 << 20) };
        let mut catalogue = Catalogue::open(&config).expect("memory");
        let name = "t0".parse().expect("a name");
        catalogue.create(name, KeyKind::U64, None).expect("room");
        let began = Instant::now();
        catalogue.drop_table(&name).expect("it is there");
        assert!(began.elapsed() >= lease);
    }

    #[test]
    fn nothing_is_left_of_a_dropped_table_also_where_no_memory_goes_back() {
        for goes_back in [true, false] {
            let region = match goes_back {
                true => SharedMemory::create_memfd("test", 1 << 20, HugePages::No).expect("memory").0,
                false => memory_that_stays(1 << 20),
            };
            let used = (900 << 10) + 24;
            let places = [4096, 4104, 8192, 512 << 10, used - 8];
            places.into_iter().for_each(|at| region.store_relaxed(at, 7).expect("inside"));
            assert_eq!(region.discard_from(1 << 19).expect("it may be written"), goes_back);
            give_up(&region, used, Lease::default()).expect("it may be written");
            assert!(
                places.into_iter().all(|at| region.load_relaxed(at).expect("inside") == 0),
                "{goes_back}"
            );
            assert_eq!(region.load_relaxed(REUSE_OFFSET).expect("inside"), DROPPED);
            assert_eq!(region.backed_end(), SUPERBLOCK_BYTES as u64, "nobody has pages taken for it again");
        }
    }
}
