//! Memory of loads that were given up, on its way back to the budget.
//!
//! It is returned in steps that delay no request. When the budget does not suffice for a request,
//! the steps for what is missing are taken at once.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A region's share of the budget, of which nothing but the beginning is in use.
pub(super) trait Spare: Send + Sync {
    /// Bytes that the region holds beyond its beginning.
    fn spare(&self) -> u64;

    /// Gives back a little of them; `true` if there is more. No other thread must move the region's
    /// end meanwhile.
    fn shrink_by_a_step(&self) -> bool;
}

/// Regions of which nothing but the beginning is in use any more.
#[derive(Debug, Default)]
pub(super) struct Returning {
    regions: Mutex<Vec<Weak<dyn Spare>>>,
    /// Bytes that they will give back.
    bytes: AtomicU64,
}

impl Returning {
    /// Bytes that regions will give back, and do at once if they are wanted.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The regions. Only the holder of this lock moves their ends.
    fn regions(&self) -> MutexGuard<'_, Vec<Weak<dyn Spare>>> {
        // A region is there or not.
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes which regions there are, or how much they have, and counts their bytes again.
    fn change<R>(&self, change: impl FnOnce(&mut Vec<Weak<dyn Spare>>) -> R) -> R {
        // Those that end with this are dropped after the lock, which they may want.
        let mut alive: Vec<Arc<dyn Spare>> = Vec::new();
        let mut regions = self.regions();
        let changed = change(&mut regions);
        regions.retain(|region| {
            region.upgrade().is_some_and(|region| {
                let has_more = region.spare() > 0;
                alive.push(region);
                has_more
            })
        });
        self.bytes.store(alive.iter().map(|region| region.spare()).sum(), Ordering::Relaxed);
        drop(regions);
        changed
    }

    /// Adds a region.
    pub(super) fn add(&self, region: Arc<dyn Spare>) {
        self.change(|regions| {
            if !regions.iter().any(|there| ptr::addr_eq(there.as_ptr(), Arc::as_ptr(&region))) {
                regions.push(Arc::downgrade(&region));
            }
        });
    }

    /// Takes a region off, which is to be used again or is gone.
    pub(super) fn remove(&self, region: &dyn Spare) {
        self.change(|regions| regions.retain(|there| !ptr::addr_eq(there.as_ptr(), region)));
    }

    /// Has a region give back a little of what it holds, as `step` does; `true` if there is more.
    pub(super) fn step(&self, step: impl FnOnce() -> bool) -> bool {
        self.change(|_| step())
    }

    /// Has regions give back what they hold until there is enough.
    pub(super) fn return_now(&self, is_enough: impl Fn() -> bool) {
        let mut held = Vec::new();
        self.change(|regions| {
            while !is_enough()
                && let Some(region) = regions.pop()
            {
                let Some(there) = region.upgrade() else { continue };
                while !is_enough() && there.shrink_by_a_step() {}
                // What the operating system does not take back stays granted, and is not asked for
                // again.
                if there.spare() > 0 && is_enough() {
                    regions.push(region);
                }
                held.push(there);
            }
        });
    }
}
