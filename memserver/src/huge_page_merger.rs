//! A thread that merges the pages of regions into huge ones.
//!
//! A random read of a large region nearly always misses the TLB, and with ordinary pages the page
//! walk takes one level more than with huge ones, mostly from memory. Whatever the kernel's
//! settings, a process may have its own pages merged (`MADV_COLLAPSE`), and all processes that map
//! the region benefit. Only ranges that are fully granted are merged, so tables take no more memory
//! than before. Nothing is merged in advance, so no request waits for pages to be cleared. A
//! request that touches a page while it is merged waits for up to a millisecond.
//!
//! A merge occupies a processor: for 0.65 ms if the machine has free huge pages, for 5 to 10 ms in
//! a guest whose host has to find one first. Other threads on that processor wait. So the thread
//! merges for a hundredth of the time while requests arrive, and for half of it otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fpcache_fabric::{Pages, SharedMemory};

use crate::budget::Grant;
use crate::priority::lower_priority;

/// How often the regions are looked at when there is nothing to merge.
const IDLE: Duration = Duration::from_millis(500);
/// After which pages that could not be merged are tried again, the first time and at most: nothing
/// was stored to them yet, or the kernel has no huge page left, or cannot.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// How many times as long as a merge took the thread rests while requests come.
const BUSY_RESTS: u32 = 100;

/// Merges pages on a thread of its own, which ends with this value.
#[derive(Debug)]
pub(crate) struct PageMerger {
    work: Arc<Work>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Work {
    state: Mutex<MergerState>,
    changed: Condvar,
    /// Whether a request came since the thread last looked.
    has_request: AtomicBool,
}

#[derive(Debug, Default)]
struct MergerState {
    has_ended: bool,
    regions: Vec<MergedRegion>,
}

/// A region, merged up to an offset.
#[derive(Debug)]
struct MergedRegion {
    grant: Weak<Grant>,
    next: u64,
    /// The first page that could not be merged, and when it is tried again, with those after it.
    again: Option<(u64, Instant)>,
    pause: Duration,
}

impl PageMerger {
    /// Begins, with no region yet; `None` if there can be no thread.
    pub(crate) fn start() -> Option<Self> {
        let work = Arc::<Work>::default();
        let own = Arc::clone(&work);
        let named = std::thread::Builder::new().name("fpcache-pages".to_owned());
        let thread = named.stack_size(128 << 10).spawn(move || own.run()).ok()?;
        Some(Self { work, thread: Some(thread) })
    }

    /// Merges what of a region is granted and will be, if its pages are to be merged.
    pub(crate) fn watch(&self, memory: &SharedMemory, grant: &Arc<Grant>) {
        if memory.pages() == Pages::Advised {
            self.work.state().regions.push(MergedRegion::new(grant));
            self.work.changed.notify_all();
        }
    }

    /// Tells that a request came, so that merges leave its like the processors.
    #[inline]
    pub(crate) fn request_came(&self) {
        let came = &self.work.has_request;
        // Most find that another one has told.
        if !came.load(Ordering::Relaxed) {
            came.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for PageMerger {
    fn drop(&mut self) {
        self.work.state().has_ended = true;
        self.work.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked; if it had, nothing would be lost.
            let _ = thread.join();
        }
    }
}

impl Work {
    fn state(&self) -> MutexGuard<'_, MergerState> {
        // Every change of it is one assignment, or one of a vector.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        lower_priority();
        let mut state = self.state();
        while !state.has_ended {
            let Some((index, memory, offset)) = state.next_page(Instant::now()) else {
                state = self.rest(state, IDLE);
                continue;
            };
            drop(state);
            let begun = Instant::now();
            let merged = memory.merge_pages(offset);
            drop(memory);
            let took = begun.elapsed();
            state = self.state();
            state.regions[index].went(merged, Instant::now());
            state = self.rest_after(state, |state| self.rest(state, took));
        }
    }

    /// Leaves the processor to others after a merge, by resting once, and again while requests
    /// come.
    fn rest_after<S>(&self, mut state: S, mut rest: impl FnMut(S) -> S) -> S {
        for _ in 0..BUSY_RESTS {
            self.has_request.store(false, Ordering::Relaxed);
            state = rest(state);
            if !self.has_request.load(Ordering::Relaxed) {
                break;
            }
        }
        state
    }

    fn rest<'s>(
        &'s self,
        state: MutexGuard<'s, MergerState>,
        pause: Duration,
    ) -> MutexGuard<'s, MergerState> {
        match state.has_ended {
            true => state,
            false => self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0,
        }
    }
}

impl MergerState {
    /// A huge page that is granted whole and has not been merged, and the number of its region.
    /// Regions change their numbers here alone.
    fn next_page(&mut self, now: Instant) -> Option<(usize, Arc<SharedMemory>, u64)> {
        self.regions.retain(|region| region.grant.strong_count() > 0);
        self.regions.iter_mut().enumerate().find_map(|(index, region)| {
            let (memory, end) = region.grant.upgrade()?.memory()?;
            // What was given back is merged again when it is granted again.
            region.next =
                region.next.min(end / SharedMemory::HUGE_PAGE_BYTES * SharedMemory::HUGE_PAGE_BYTES);
            if let Some((page, _)) = region.again.take_if(|(_, at)| *at <= now) {
                region.next = region.next.min(page);
            }
            let fits = end - region.next >= SharedMemory::HUGE_PAGE_BYTES;
            fits.then_some((index, memory, region.next))
        })
    }
}

impl MergedRegion {
    fn new(grant: &Arc<Grant>) -> Self {
        Self { grant: Arc::downgrade(grant), next: 0, again: None, pause: PAUSES.0 }
    }

    fn went(&mut self, merged: bool, now: Instant) {
        if !merged && self.again.is_none() {
            self.again = Some((self.next, now + self.pause));
            self.pause = (2 * self.pause).min(PAUSES.1);
        }
        self.next += SharedMemory::HUGE_PAGE_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use fpcache_fabric::HugePages;

    use super::*;
    use crate::budget::Budget;

    const PAGE: u64 = SharedMemory::HUGE_PAGE_BYTES;

    #[test]
    fn what_is_granted_whole_is_merged_once_and_again_after_it_was_given_back() {
        let (budget, bytes) = (Budget::new(64 << 20), 64 << 20);
        let memory =
            Arc::new(SharedMemory::create_memfd("test", bytes, HugePages::Merged).expect("memory").0);
        let grant = Grant::of(&budget, &memory, u64::MAX).expect("room");
        let (mut state, now) =
            (MergerState { has_ended: false, regions: vec![MergedRegion::new(&grant)] }, Instant::now());
        assert!(state.next_page(now).is_none(), "a page is granted");
        grant.cover(3 * PAGE - 1).expect("room");
        let mut merged = Vec::new();
        while let Some((index, _, offset)) = state.next_page(now) {
            merged.push(offset);
            state.regions[index].went(true, now);
        }
        assert_eq!(merged, [0, PAGE, 2 * PAGE]);
        grant.shrink_to(PAGE);
        assert!(state.next_page(now).is_none());
        grant.cover(2 * PAGE).expect("room");
        assert_eq!(state.next_page(now).map(|(.., offset)| offset), Some(PAGE));
        // It fails, and is tried again after a while.
        state.regions[0].went(false, now);
        assert!(state.next_page(now).is_none());
        let later = now + PAUSES.0;
        assert_eq!(state.next_page(later).map(|(.., offset)| offset), Some(PAGE));
        drop(grant);
        assert!(state.next_page(later).is_none() && state.regions.is_empty(), "it is gone");
    }

    #[test]
    fn merges_rest_longer_while_requests_come() {
        let merger = PageMerger { work: Arc::default(), thread: None };
        let rests = |with_requests: u32| {
            merger.work.rest_after(0, |rests| {
                if rests < with_requests {
                    merger.request_came();
                }
                rests + 1
            })
        };
        assert_eq!([rests(0), rests(3), rests(u32::MAX)], [1, 4, BUSY_RESTS]);
    }

    #[test]
    fn a_merger_ends_at_once_and_keeps_no_region() {
        let merger = PageMerger::start().expect("a thread");
        let memory = SharedMemory::create_memfd("test", 16 << 20, HugePages::Merged).expect("memory").0;
        let memory = Arc::new(memory);
        let grant = Grant::of(&Budget::new(16 << 20), &memory, u64::MAX).expect("room");
        grant.cover(16 << 20).expect("room");
        merger.watch(&memory, &grant);
        drop(grant);
        drop(merger);
        assert_eq!(Arc::strong_count(&memory), 1);
    }
}
