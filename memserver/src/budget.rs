//! Bytes that several regions share: what all tables of a memory node may use together.
//!
//! A region spans more than it uses; its pages take memory when they are first stored to. Before a table uses bytes after
//! the end it has ever used it obtains a *grant* of them: a stretch of some pages, for which the file system, where there is
//! one, sets space aside. So a full memory node, or a full disk, is an error of whoever wants more, and nobody else's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytesize::ByteSize;
use fpcache::layout::SUPERBLOCK_BYTES;
use fpcache_fabric::{Pages, SharedMemory};

/// Grants come in steps of this share of what is wanted in all, but of this many bytes at least and at most.
const STEP_SHARE: u64 = 8;
const STEP: (u64, u64) = (16 << 10, 1 << 20);
/// What steps are multiples of.
const PAGE: u64 = 4096;

/// What regions may use together.
#[derive(Debug)]
pub struct Budget {
    bytes: u64,
    granted: AtomicU64,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, granted: AtomicU64::new(0) })
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that regions have of it; more than there are in all if a store that was there already had more.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// Bytes that can yet be had.
    pub fn left(&self) -> u64 {
        self.bytes.saturating_sub(self.granted())
    }

    /// Takes `wanted` bytes, or what there is of them, but not less than `least`.
    fn take(&self, wanted: u64, least: u64) -> Option<u64> {
        let taken = wanted.min(self.left());
        (taken >= least).then(|| {
            self.claim(taken);
            taken
        })
    }

    /// Takes bytes whether they are there or not.
    fn claim(&self, bytes: u64) {
        self.granted.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.granted.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The bytes of a region that may be used: those before an end, which can be moved as far as the region reaches and the
/// budget lasts. One thread at a time moves it. What was granted goes back when this is dropped.
#[derive(Debug)]
pub struct Grant {
    region_bytes: u64,
    /// Bytes of the region that may be used in ordinary life. What a table has beyond them when it begins, it keeps.
    limit: u64,
    end: AtomicU64,
    /// Whether the table is being restored, which may take whatever it needs.
    is_restoring: AtomicBool,
    /// Whether the disk has refused to set space aside.
    is_disk_full: AtomicBool,
    shared: Option<Shared>,
}

/// Where more comes from.
#[derive(Debug)]
struct Shared {
    budget: Arc<Budget>,
    memory: Arc<SharedMemory>,
    /// Whether the region has its memory already, and takes all of it or nothing.
    is_reserved: bool,
}

impl Grant {
    /// All of a region that shares with nobody.
    pub fn whole(region_bytes: u64) -> Arc<Self> {
        Self::limited(region_bytes, region_bytes)
    }

    /// As [`whole`](Self::whole), of a region that is longer than what may be used of it in ordinary life.
    pub fn limited(region_bytes: u64, limit: u64) -> Arc<Self> {
        let limit = limit.min(region_bytes);
        Arc::new(Self {
            region_bytes,
            limit,
            end: AtomicU64::new(limit),
            is_restoring: AtomicBool::new(false),
            is_disk_full: AtomicBool::new(false),
            shared: None,
        })
    }

    /// The first page of a region, and more as it is wanted, up to `limit`. A region in reserved huge pages has its memory already, and is
    /// granted whole.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn of(budget: &Arc<Budget>, memory: &Arc<SharedMemory>, limit: u64) -> Result<Arc<Self>, Denied> {
        let grant = Self::none(budget, memory, limit);
        grant.cover(SUPERBLOCK_BYTES as u64)?;
        Ok(Arc::new(grant))
    }

    /// As [`of`](Self::of), for a region that was there before, whatever the budget says.
    ///
    /// # Errors
    /// [`Denied::Disk`].
    pub fn resumed(
        budget: &Arc<Budget>,
        memory: &Arc<SharedMemory>,
        limit: u64,
    ) -> Result<Arc<Self>, Denied> {
        let grant = Self::none(budget, memory, limit);
        grant.claim(SUPERBLOCK_BYTES as u64)?;
        Ok(Arc::new(grant))
    }

    fn none(budget: &Arc<Budget>, memory: &Arc<SharedMemory>, limit: u64) -> Self {
        let is_reserved = memory.pages() == Pages::Huge;
        let shared = Shared { budget: Arc::clone(budget), memory: Arc::clone(memory), is_reserved };
        let region_bytes = memory.len() as u64;
        Self {
            region_bytes,
            // One that has its memory already may use all of it.
            limit: if is_reserved { region_bytes } else { limit.min(region_bytes) },
            end: AtomicU64::new(0),
            is_restoring: AtomicBool::new(false),
            is_disk_full: AtomicBool::new(false),
            shared: Some(shared),
        }
    }

    /// Bytes of the region that may be used in ordinary life.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// From here on the table takes whatever it needs, as far as the region reaches and whatever the budget says: what lived
    /// within the limit may need more while it is restored.
    pub(crate) fn begin_restoring(&self) {
        self.is_restoring.store(true, Ordering::Relaxed);
    }

    /// From here on the limit and the budget hold.
    pub(crate) fn end_restoring(&self) {
        self.is_restoring.store(false, Ordering::Relaxed);
    }

    /// Whether the table is being restored: nobody reads it yet.
    pub(crate) fn is_restoring(&self) -> bool {
        self.is_restoring.load(Ordering::Relaxed)
    }

    /// Whether the disk has refused to set space aside for the region: at any time while it was restored, else the last time.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.is_disk_full.load(Ordering::Relaxed)
    }

    /// How far the region may be used now.
    fn bound(&self) -> u64 {
        if self.is_restoring() { self.region_bytes } else { self.limit }
    }

    /// Where the step ends that contains the byte before `end`.
    fn stepped(&self, end: u64) -> u64 {
        if self.shared.as_ref().is_some_and(|shared| shared.is_reserved) {
            return self.region_bytes;
        }
        let step = (end / STEP_SHARE).clamp(STEP.0, STEP.1).next_multiple_of(PAGE);
        let most = end.next_multiple_of(PAGE).min(self.region_bytes).max(self.bound());
        end.checked_next_multiple_of(step).unwrap_or(u64::MAX).min(most)
    }

    /// The end of the bytes that may be used.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// The region's memory, where it is shared, and the end.
    pub(crate) fn memory(&self) -> Option<(Arc<SharedMemory>, u64)> {
        self.shared.as_ref().map(|shared| (Arc::clone(&shared.memory), self.end()))
    }

    /// The end that could be had now.
    pub fn reach(&self) -> u64 {
        let reach = match &self.shared {
            Some(Shared { budget, .. }) if !self.is_restoring() => self.limit.min(self.end() + budget.left()),
            _ => self.bound(),
        };
        reach.max(self.end())
    }

    /// Bytes that a table is expected to have at most, which its change log should suit: all of its region, but a part of one
    /// that spans all that the tables share.
    pub(crate) fn expected_bytes(&self) -> u64 {
        const TABLES: u64 = 16;
        match &self.shared {
            Some(shared) if shared.budget.bytes <= self.limit => self.limit / TABLES,
            _ => self.limit,
        }
    }

    /// Whether the budget is also others'.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether more of the budget is granted than there is of it.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.budget.granted() > shared.budget.bytes)
    }

    /// Has at least the bytes before `end` granted. A comparison where they are.
    ///
    /// # Errors
    /// [`Denied`]; what was granted stays.
    #[inline]
    pub fn cover(&self, end: u64) -> Result<(), Denied> {
        if end <= self.end() { Ok(()) } else { self.extend(end) }
    }

    #[cold]
    fn extend(&self, wanted: u64) -> Result<(), Denied> {
        if self.is_restoring() {
            return self.claim(wanted);
        }
        self.take(wanted, self.limit, |budget, most, least| budget.take(most, least))
    }

    /// Has the bytes before `end`, which are in use already, granted whatever the budget says.
    ///
    /// # Errors
    /// [`Denied::Region`] and [`Denied::Disk`].
    pub(crate) fn claim(&self, end: u64) -> Result<(), Denied> {
        if end <= self.end() {
            return Ok(());
        }
        self.take(end, self.region_bytes, |budget, most, _| {
            budget.claim(most);
            Some(most)
        })
    }

    /// Takes what is missing to `wanted`, by a function that says how much of the most that is asked for it could have.
    fn take(
        &self,
        wanted: u64,
        bound: u64,
        take: impl FnOnce(&Budget, u64, u64) -> Option<u64>,
    ) -> Result<(), Denied> {
        let from = self.end();
        if wanted > bound {
            return Err(Denied::Region);
        }
        let Some(Shared { budget, memory, is_reserved }) = &self.shared else {
            self.end.store(self.stepped(wanted), Ordering::Relaxed);
            return Ok(());
        };
        let most = self.stepped(wanted) - from;
        let least = if *is_reserved { most } else { wanted - from };
        let taken = take(budget, most, least).ok_or(Denied::Budget)?;
        if let Err(error) = memory.reserve(from, taken) {
            budget.give_back(taken);
            // Whoever wanted it hears only that there is no room. Said once, not with every insert that is refused.
            if !self.is_disk_full.swap(true, Ordering::Relaxed) {
                eprintln!("fpcache-memserver: {error}");
            }
            return Err(Denied::Disk(error.to_string()));
        }
        if !self.is_restoring() {
            self.is_disk_full.store(false, Ordering::Relaxed);
        }
        self.end.store(from + taken, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what lies after the step that contains the byte before `end`, of which nothing is in use. What the operating
    /// system does not take back stays granted: others must not be promised memory that there is not.
    pub fn shrink_to(&self, end: u64) {
        let (end, before) = (self.stepped(end), self.end());
        let Some(Shared { budget, memory, .. }) = &self.shared else { return };
        // A memory node may write its region.
        if end < before && memory.discard_from(end).unwrap_or(false) {
            self.end.store(end, Ordering::Relaxed);
            budget.give_back(before - end);
        }
    }

    /// Gives back the memory after the end, which a process before this one may have used. Readers must have been told.
    pub(crate) fn discard_rest(&self) {
        if let Some(Shared { memory, .. }) = &self.shared {
            // Where the operating system does not take it back it is used again when the end comes to it: nothing but the room
            // is at stake, for readers know that it is nobody's.
            let _ = memory.discard_from(self.end());
        }
    }

    /// What helps a table that needs a region of `needed` bytes and did not get it.
    pub(crate) fn remedy(&self, needed: u64) -> String {
        let Some(Shared { budget, .. }) = &self.shared else {
            return format!("start the memory node with --capacity {} or more", round_up(needed));
        };
        let others = budget.granted().saturating_sub(self.end());
        match others {
            // A region that was made smaller than the memory node.
            _ if needed > self.limit && needed.saturating_add(others) <= budget.bytes => {
                format!("create the table with --region-bytes {} or more", round_up(needed))
            }
            0 => format!("start the memory node with --capacity {} or more", round_up(needed)),
            _ => format!(
                "drop other tables, which have {}, or start the memory node with --capacity {} or more",
                ByteSize(others).display().iec(),
                round_up(needed.saturating_add(others))
            ),
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.budget.give_back(self.end());
        }
    }
}

/// Why no more of a region was granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It ends there.
    #[error("the region ends there")]
    Region,
    /// The budget is used up.
    #[error(
        "other tables have what the memory node may use: drop some, or restart it with a larger --capacity"
    )]
    Budget,
    /// The disk has no room.
    #[error("{0}")]
    Disk(String),
}

/// The next whole number of a binary unit, so that a remedy that is shown is always enough.
pub(crate) fn round_up(bytes: u64) -> String {
    for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= 4 * unit {
            return format!("{}{name}", bytes.div_ceil(unit));
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_fabric::HugePages;
    use proptest::prelude::*;

    fn region(bytes: usize) -> Arc<SharedMemory> {
        Arc::new(SharedMemory::create_memfd("test", bytes, HugePages::No).expect("memory").0)
    }

    #[test]
    fn regions_take_steps_of_one_budget_and_give_them_back() {
        let budget = Budget::new(1 << 20);
        let (a, b) = (region(1 << 20), region(1 << 20));
        let first = Grant::of(&budget, &a, u64::MAX).expect("room");
        assert_eq!((first.end(), budget.granted()), (16 << 10, 16 << 10));
        first.cover(900 << 10).expect("room");
        let second = Grant::of(&budget, &b, u64::MAX).expect("room");
        assert_eq!(second.reach(), (1 << 20) - first.end(), "what the first has left");
        assert_eq!(second.cover(second.reach() + 8), Err(Denied::Budget));
        assert_eq!(second.end(), 16 << 10, "nothing was taken");
        second.cover(second.reach()).expect("room, though no whole step");
        assert_eq!(budget.left(), 0);
        drop(first);
        assert_eq!(budget.granted(), second.end());
        second.cover(1 << 20).expect("room again");
        assert_eq!(second.cover((1 << 20) + 8), Err(Denied::Region));
        b.store_relaxed(512 << 10, 7).expect("inside");
        second.shrink_to(4096);
        assert_eq!((budget.granted(), b.load_relaxed(512 << 10).expect("inside")), (16 << 10, 0));
        drop(second);
        assert_eq!(budget.granted(), 0);
    }

    #[test]
    fn what_the_operating_system_does_not_take_back_stays_granted() {
        let (memory, fd) = SharedMemory::create_memfd("test", 1 << 20, HugePages::No).expect("memory");
        rustix::fs::fcntl_add_seals(&fd, rustix::fs::SealFlags::FUTURE_WRITE).expect("a memory file");
        let budget = Budget::new(1 << 20);
        let grant = Grant::of(&budget, &Arc::new(memory), u64::MAX).expect("room");
        grant.cover(512 << 10).expect("room");
        let granted = budget.granted();
        grant.shrink_to(4096);
        assert_eq!((budget.granted(), grant.end()), (granted, granted));
    }

    #[test]
    fn what_a_store_has_already_is_granted_whatever_the_budget() {
        let budget = Budget::new(64 << 10);
        let memory = region(1 << 20);
        let grant = Grant::resumed(&budget, &memory, u64::MAX).expect("memory");
        grant.claim(100_000).expect("memory");
        assert_eq!(grant.claim((1 << 20) + 8), Err(Denied::Region));
        [99_992, 512 << 10].into_iter().for_each(|at| memory.store_relaxed(at, 7).expect("inside"));
        grant.discard_rest();
        let left = [99_992, 512 << 10].map(|at| memory.load_relaxed(at).expect("inside"));
        assert_eq!(left, [7, 0], "what another process had used behind it goes back");
        assert!(grant.end() >= 100_000 && budget.left() == 0);
        assert_eq!(grant.cover(grant.end() + 8), Err(Denied::Budget));
        let whole = Grant::whole(5000);
        assert_eq!(
            (whole.reach(), whole.cover(5000), whole.cover(5001)),
            (5000, Ok(()), Err(Denied::Region))
        );
    }

    #[test]
    fn what_is_restored_may_go_beyond_limit_and_budget_and_stays() {
        let budget = Budget::new(256 << 10);
        let memory = region(1 << 20);
        let grant = Grant::of(&budget, &memory, 128 << 10).expect("room");
        assert_eq!((grant.reach(), grant.cover((128 << 10) + 8)), (128 << 10, Err(Denied::Region)));
        grant.begin_restoring();
        assert_eq!(grant.reach(), 1 << 20);
        grant.cover(600 << 10).expect("whatever the budget says");
        grant.end_restoring();
        let end = grant.end();
        assert!(end >= 600 << 10 && grant.reach() == end && budget.granted() == end);
        assert_eq!(grant.cover(end + 8), Err(Denied::Region));
        grant.shrink_to(300_000);
        assert!((300_000..320_000).contains(&grant.end()), "{}", grant.end());
        grant.shrink_to(1000);
        assert_eq!((grant.end(), grant.reach(), budget.left()), (16 << 10, 128 << 10, 240 << 10));
        let alone = Grant::limited(1 << 20, 64 << 10);
        assert_eq!((alone.reach(), alone.cover((64 << 10) + 8)), (64 << 10, Err(Denied::Region)));
        alone.begin_restoring();
        alone.cover(100 << 10).expect("as far as the memory reaches");
        alone.end_restoring();
        assert!(alone.reach() == alone.end() && alone.end() >= 100 << 10);
    }

    #[test]
    fn remedies_count_what_others_have() {
        let budget = Budget::new(1 << 20);
        let (a, b) = (region(1 << 20), region(256 << 10));
        let alone = Grant::of(&budget, &a, u64::MAX).expect("room");
        assert!(alone.remedy(8 << 20).contains("--capacity 8MiB"), "{}", alone.remedy(8 << 20));
        alone.cover(512 << 10).expect("room");
        let small = Grant::of(&budget, &b, u64::MAX).expect("room");
        assert!(small.remedy(400 << 10).contains("--region-bytes 400KiB"), "{}", small.remedy(400 << 10));
        let remedy = small.remedy(8 << 20);
        assert!(
            remedy.contains("drop other tables, which have 512.0 KiB") && remedy.contains("9MiB"),
            "{remedy}"
        );
    }

    proptest! {
        #[test]
        fn grants_add_up_to_what_the_budget_counts(steps in prop::collection::vec((0usize..4, 0u64..600_000, any::<bool>()), 1..60)) {
            let budget = Budget::new(1_000_000);
            let memories: Vec<_> = (0..4).map(|_| region(500_000)).collect();
            let mut grants: Vec<Option<Arc<Grant>>> = vec![None; 4];
            for (which, end, grows) in steps {
                match &grants[which] {
                    None => grants[which] = Grant::of(&budget, &memories[which], u64::MAX).ok(),
                    Some(grant) if grows => {
                        let reach = grant.reach();
                        prop_assert_eq!(grant.cover(end).is_ok(), end <= reach);
                        prop_assert!(end > reach || grant.end() >= end);
                    }
                    Some(grant) if end < 300_000 => grant.shrink_to(end),
                    Some(_) => grants[which] = None,
                }
                let sum: u64 = grants.iter().flatten().map(|grant| grant.end()).sum();
                prop_assert_eq!(budget.granted(), sum);
                prop_assert!(sum <= budget.bytes());
            }
        }
    }
}
