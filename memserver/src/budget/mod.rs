//! The memory budget that all tables of a memory node share.
//!
//! A region's address range is larger than the memory it uses; a page takes memory when it is first
//! stored to. Before a table uses more of its region it obtains a *grant* for some further pages,
//! for which the file system, if there is one, reserves space. When the memory node or the disk is
//! full, only the table that needs more gets an error.

mod grant;
mod returning;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use grant::Grant;
use returning::Returning;

/// What regions may use together.
#[derive(Debug)]
pub struct Budget {
    bytes: u64,
    granted: AtomicU64,
    /// The most bytes that a table was denied at once; 0 once as many are left again, or came back.
    missed: AtomicU64,
    /// Bytes that came back since that last grew.
    returned: AtomicU64,
    /// Whether that has grown since it was last asked for.
    is_missed_anew: AtomicBool,
    returning: Returning,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            granted: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            is_missed_anew: AtomicBool::new(false),
            returning: Returning::default(),
        })
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that regions have of it; more than there are in all if a store that was there already
    /// had more.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// Bytes that no region has.
    pub fn left(&self) -> u64 {
        self.bytes.saturating_sub(self.granted())
    }

    /// Bytes available: those not granted, and those being returned.
    fn available(&self) -> u64 {
        (self.bytes + self.returning.bytes()).saturating_sub(self.granted())
    }

    /// Takes `wanted` bytes, or as much of them as is left, but not less than `least`.
    fn take(&self, wanted: u64, least: u64) -> Option<u64> {
        if self.left() < least && self.returning.bytes() > 0 {
            self.returning.return_now(|| self.left() >= least);
        }
        // Other threads take some, too.
        let of_left = |granted: u64| wanted.min(self.bytes.saturating_sub(granted));
        let taken = self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted| {
            let taken = of_left(granted);
            (taken >= least).then(|| granted + taken)
        });
        if taken.is_err() {
            self.miss(least);
        }
        taken.map(of_left).ok()
    }

    /// Notes that a table was denied `bytes` bytes.
    fn miss(&self, bytes: u64) {
        if self.missed.fetch_max(bytes, Ordering::Relaxed) < bytes {
            self.returned.store(0, Ordering::Relaxed);
            self.is_missed_anew.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a table was denied bytes, and as many are still not there.
    fn is_short(&self) -> bool {
        self.missed.load(Ordering::Relaxed) > self.left()
    }

    /// Whether a table was denied more than any before, since this was last called.
    #[inline]
    pub(crate) fn take_missed_anew(&self) -> bool {
        self.is_missed_anew.load(Ordering::Relaxed) && self.is_missed_anew.swap(false, Ordering::Relaxed)
    }

    /// Takes bytes whether they are there or not.
    fn claim(&self, bytes: u64) {
        self.granted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back what was taken and could not be used.
    fn refund(&self, bytes: u64) {
        self.granted.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.refund(bytes);
        let returned = self.returned.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let missed = self.missed.load(Ordering::Relaxed);
        // More may have been wanted than there ever is; who still wants it is denied again.
        if missed > 0 && missed <= self.left().max(returned) {
            let _ = self.missed.compare_exchange(missed, 0, Ordering::Relaxed, Ordering::Relaxed);
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
        "other tables use the rest of the capacity: drop some, or restart the memory node with a larger --capacity"
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
pub(crate) mod tests;
