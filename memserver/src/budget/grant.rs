//! A region's share of the budget: how much of the region its table may use. The grant grows as the
//! table does, and shrinks when memory at the region's end is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytesize::ByteSize;
use fpcache::layout::SUPERBLOCK_BYTES;
use fpcache_fabric::{MemoryError, Pages, SharedMemory};
use tracing::error;

use super::returning::Spare;
use super::{Budget, Denied, round_up};
use crate::files::REGION_FILE;

/// Grants come in steps of this share of what is wanted in all, but of this many bytes at least and
/// at most.
const STEP_SHARE: u64 = 8;

const STEP: (u64, u64) = (16 << 10, 1 << 20);

/// What steps are multiples of.
const PAGE: u64 = 4096;

/// The bytes of a region that may be used: those before an end, which can be moved as far as the
/// region reaches and the budget lasts. One thread at a time moves it. What was granted goes back
/// when this is dropped.
#[derive(Debug)]
pub struct Grant {
    region_bytes: u64,
    /// Bytes of the region that may be used in ordinary life. What a table has beyond them when it
    /// begins, it keeps.
    limit: u64,
    end: AtomicU64,
    /// Whether the table is being restored, which may take whatever it needs.
    is_restoring: AtomicBool,
    /// Whether the disk has refused to set space aside.
    is_disk_full: AtomicBool,
    shared: Option<BudgetSource>,
}

/// Where more comes from.
#[derive(Debug)]
struct BudgetSource {
    budget: Arc<Budget>,
    memory: Arc<SharedMemory>,
    /// Whether the region has its memory already, and takes all of it or nothing.
    is_reserved: bool,
}

impl Grant {
    /// All of a region that shares its budget with no other.
    pub fn whole(region_bytes: u64) -> Arc<Self> {
        Self::limited(region_bytes, region_bytes)
    }

    /// As [`whole`](Self::whole), of a region that is longer than what may be used of it in
    /// ordinary life.
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

    /// The first page of a region, and more as it is wanted, up to `limit`. A region in reserved
    /// huge pages has its memory already, and is granted whole.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn of(budget: &Arc<Budget>, memory: &Arc<SharedMemory>, limit: u64) -> Result<Arc<Self>, Denied> {
        let grant = Self::none(budget, memory, limit);
        grant.cover(SUPERBLOCK_BYTES as u64)?;
        Ok(Arc::new(grant))
    }

    /// As [`of`](Self::of), for a region that was there before, or a table to be restored, whatever
    /// the budget says.
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
        let shared = BudgetSource { budget: Arc::clone(budget), memory: Arc::clone(memory), is_reserved };
        let region_bytes = memory.len() as u64;
        memory.set_backed_end(0);
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

    /// From here on the table takes whatever it needs, as far as the region reaches and whatever
    /// the budget says: what lived within the limit may need more while it is restored.
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

    /// Whether the disk has refused to set space aside for the region: at any time while it was
    /// restored, else the last time.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.is_disk_full.load(Ordering::Relaxed)
    }

    /// Notes whether it has, where it was asked or need not be; whether it had before.
    fn note_disk_full(&self, is_full: bool) -> bool {
        if !is_full && self.is_restoring() {
            return self.is_disk_full();
        }
        self.is_disk_full.swap(is_full, Ordering::Relaxed)
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

    /// The furthest end that could be granted now.
    pub fn reach(&self) -> u64 {
        let reach = match &self.shared {
            Some(BudgetSource { budget, .. }) if !self.is_restoring() => {
                self.limit.min(self.end() + budget.available())
            }
            _ => self.bound(),
        };
        reach.max(self.end())
    }

    /// Bytes that a table is expected to have at most, which its change log should suit: all of its
    /// region, but a part of one that spans all that the tables share.
    pub(crate) fn expected_bytes(&self) -> u64 {
        const TABLES: u64 = 16;
        match &self.shared {
            Some(shared) if shared.budget.bytes <= self.limit => self.limit / TABLES,
            _ => self.limit,
        }
    }

    /// Whether the budget is shared with other regions.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether the region, and not the budget, is what ends there.
    pub(crate) fn is_at_limit(&self) -> bool {
        let is_shorter = |shared: &BudgetSource| self.limit < shared.budget.bytes;
        self.shared.as_ref().is_some_and(is_shorter) && self.reach() >= self.limit
    }

    /// Notes that the table could not have `bytes` bytes, unless its region ends before.
    pub(crate) fn miss(&self, bytes: u64) {
        if let Some(BudgetSource { budget, .. }) = &self.shared
            && !self.is_at_limit()
        {
            budget.miss(bytes);
        }
    }

    /// Whether the table is to keep little that it does not use: more of the budget is granted than
    /// there is of it, or some was denied while others hold some.
    pub(crate) fn is_short(&self) -> bool {
        self.shared.as_ref().is_some_and(|BudgetSource { budget, .. }| {
            let granted = budget.granted();
            granted > budget.bytes || budget.is_short() && granted > self.end()
        })
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

    /// Takes what is missing to `wanted`, by a function that says how much of the most that is
    /// asked for it could have.
    fn take(
        &self,
        wanted: u64,
        bound: u64,
        take: impl FnOnce(&Budget, u64, u64) -> Option<u64>,
    ) -> Result<(), Denied> {
        let from = self.end();
        if wanted > bound {
            self.note_disk_full(false);
            return Err(Denied::Region);
        }
        let Some(BudgetSource { budget, memory, is_reserved }) = &self.shared else {
            self.end.store(self.stepped(wanted), Ordering::Relaxed);
            return Ok(());
        };
        let most = self.stepped(wanted) - from;
        let least = if *is_reserved { most } else { wanted - from };
        let Some(mut taken) = take(budget, most, least) else {
            self.note_disk_full(false);
            return Err(Denied::Budget);
        };
        let mut reserved = memory.reserve(from, taken);
        if reserved.is_err() && least < taken && memory.reserve(from, least).is_ok() {
            // A disk that has no room for a whole step may have what is needed, or have given it
            // before.
            budget.refund(taken - least);
            (taken, reserved) = (least, Ok(()));
        }
        if let Err(error) = reserved {
            budget.refund(taken);
            // Reported once, not with every insert that is refused.
            if !self.note_disk_full(true) {
                error!("{}", no_space_for_region(&error));
            }
            return Err(Denied::Disk(error.to_string()));
        }
        self.note_disk_full(false);
        self.end.store(from + taken, Ordering::Relaxed);
        // Before anything is stored there.
        memory.set_backed_end(from + taken);
        Ok(())
    }

    /// From here on nothing but the beginning of the region is in use. What it holds beyond goes
    /// back in [steps](Self::step_returning), or at once if it is needed.
    pub(crate) fn begin_returning(self: &Arc<Self>) {
        if let Some(BudgetSource { budget, .. }) = &self.shared {
            budget.returning.add(Arc::clone(self) as Arc<dyn Spare>);
        }
    }

    /// From here on the region is used again, with what it still holds.
    pub(crate) fn end_returning(&self) {
        if let Some(BudgetSource { budget, .. }) = &self.shared {
            budget.returning.remove(self);
        }
    }

    /// Gives back a little of what a region holds of which nothing but the beginning is in use;
    /// `true` if there is more.
    pub(crate) fn step_returning(&self) -> bool {
        let Some(BudgetSource { budget, .. }) = &self.shared else { return false };
        self.spare() > 0 && budget.returning.step(|| self.shrink_by_a_step())
    }

    /// Gives back some of what lies after the step that contains the byte before `end`, of which
    /// nothing is in use: 2 MiB at most, the last first, about a tenth of a millisecond. `true` if
    /// there is more to give back. What the operating system does not take stays granted: others
    /// must not be promised memory that there is not.
    pub fn shrink_towards(&self, end: u64) -> bool {
        // A page that was merged goes back whole.
        const MOST: u64 = SharedMemory::HUGE_PAGE_BYTES;
        let (end, before) = (self.stepped(end), self.end());
        let Some(BudgetSource { budget, memory, .. }) = &self.shared else { return false };
        if end >= before {
            return false;
        }
        let next = end.max((before - 1) / MOST * MOST);
        // No access may take memory again for what goes back, or, where others have taken it, look
        // for some in vain.
        memory.set_backed_end(next);
        // A memory node may write its region.
        if memory.discard_from(next).unwrap_or(false) {
            self.end.store(next, Ordering::Relaxed);
            budget.give_back(before - next);
            next > end
        } else {
            memory.set_backed_end(before);
            false
        }
    }

    /// The same until there is no more.
    #[cfg(test)]
    pub(crate) fn shrink_to(&self, end: u64) {
        while self.shrink_towards(end) {}
    }

    /// Gives back the memory after the end, which a process before this one may have used. Readers
    /// must have been told.
    pub(crate) fn discard_rest(&self) {
        if let Some(BudgetSource { memory, .. }) = &self.shared {
            // Where the operating system does not take it back it is used again when the end comes
            // to it: only room is at stake, for readers know that it belongs to no table.
            let _ = memory.discard_from(self.end());
        }
    }

    /// What helps a table that needs a region of `needed` bytes and did not get it.
    pub(crate) fn remedy(&self, needed: u64) -> String {
        let Some(BudgetSource { budget, memory, .. }) = &self.shared else {
            return format!("start the memory node with --capacity {} or more", round_up(needed));
        };
        if self.is_disk_full() {
            return "make room on the file system of --region-dir (or of --data-dir without it), or name one there with more \
                    room"
                .into();
        }
        let others = budget.granted().saturating_sub(self.end());
        let larger = |needed: u64| {
            let larger = format!("start the memory node with --capacity {} or more", round_up(needed));
            match memory.file_identity() {
                Ok(Some(_)) => format!(
                    "stop the memory node, move the table's {REGION_FILE} away, as regions that are there keep their size, and {larger}"
                ),
                _ => larger,
            }
        };
        match others {
            // A region that was made smaller than the memory node.
            _ if needed > self.limit && needed.saturating_add(others) <= budget.bytes => {
                format!("create the table with --region-bytes {} or more", round_up(needed))
            }
            0 => larger(needed),
            _ => format!(
                "drop other tables, which use {}, or {}",
                ByteSize(others).display().iec(),
                larger(needed.saturating_add(others))
            ),
        }
    }
}

/// That the file system has no room for more of a region, whose size is not at fault.
fn no_space_for_region(error: &MemoryError) -> String {
    match error {
        MemoryError::NoSpace { path, len, source } => format!(
            "no room for {len} bytes more of {path} ({source}): records that need them are refused until there is room \
             on that file system"
        ),
        other => other.to_string(),
    }
}

impl Spare for Grant {
    fn spare(&self) -> u64 {
        self.end().saturating_sub(self.stepped(SUPERBLOCK_BYTES as u64))
    }

    fn shrink_by_a_step(&self) -> bool {
        self.shrink_towards(SUPERBLOCK_BYTES as u64)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(BudgetSource { budget, memory, .. }) = self.shared.take() {
            budget.returning.remove(self);
            // Others are not promised memory that is still there.
            drop(memory);
            budget.give_back(self.end());
        }
    }
}
