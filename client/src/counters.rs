//! Counters of what a client does besides plain lookups and requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of what a client did to keep up with the memory node. All handles of a client share
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Times the directory was brought up to date from the change log.
    pub refreshes: u64,
    /// Times the table was fetched again because the change log did not reach far enough back.
    pub reopens: u64,
    /// Keys that the memory node's processor looked up because the directory was repeatedly out of
    /// date.
    pub server_side: u64,
    /// Lookups and scans that were retried, for any reason.
    pub retries: u64,
    /// Reconnections.
    pub reconnects: u64,
    /// Write requests that were sent again because no reply came.
    pub resent: u64,
}

/// The counts as they are counted, off the path of answers that come at once.
#[derive(Debug, Default)]
pub(crate) struct LiveCounters {
    pub(crate) refreshes: Count,
    pub(crate) reopens: Count,
    pub(crate) server_side: Count,
    pub(crate) retries: Count,
    pub(crate) reconnects: Count,
    pub(crate) resent: Count,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl LiveCounters {
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            refreshes: self.refreshes.get(),
            reopens: self.reopens.get(),
            server_side: self.server_side.get(),
            retries: self.retries.get(),
            reconnects: self.reconnects.get(),
            resent: self.resent.get(),
        }
    }
}
