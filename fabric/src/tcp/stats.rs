//! Statistics of a memory node's sockets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::counters::{HangUp, WaitCounts};
use super::node::ServingState;

/// Counts of a memory node's sockets since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketStats {
    /// Threads that serve sockets.
    pub io_threads: u64,
    /// How long such a thread looks for more before it sleeps, while that pays off.
    pub spin: Duration,
    /// Waits that ended while the thread still looked.
    pub waits_spun: u64,
    /// Waits that ended in sleep.
    pub waits_slept: u64,
    /// Time spent looking, of all threads.
    pub spun: Duration,
    /// Connections that were let in and are there now.
    pub connections: u64,
    hang_ups: [u64; HangUp::ALL.len()],
}

impl SocketStats {
    /// How many were hung up on, or not let in, for this reason.
    #[must_use]
    pub fn hang_ups(&self, reason: HangUp) -> u64 {
        self.hang_ups[reason as usize]
    }
}

/// Where a memory node's sockets are counted, also while it serves. Those who were hung up on or
/// not let in are told to [`Service::rejected`](crate::Service::rejected) besides, each with the
/// reason, unless they come faster than that.
#[derive(Clone)]
pub struct SocketCounters {
    pub(super) shared: Arc<ServingState>,
}

impl SocketCounters {
    /// How many have been hung up on or not let in so far.
    #[must_use]
    pub fn hang_ups(&self) -> u64 {
        HangUp::ALL.into_iter().map(|reason| self.shared.hang_ups.of(reason)).sum()
    }

    /// Connections that were let in and are there now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Relaxed)
    }

    /// All counts. Each is exact; together they are of about the same time.
    #[must_use]
    pub fn snapshot(&self) -> SocketStats {
        let waits = |count: fn(&WaitCounts) -> &AtomicU64| -> u64 {
            self.shared.waits.iter().map(|waits| count(waits).load(Relaxed)).sum()
        };
        SocketStats {
            io_threads: self.shared.threads.len() as u64,
            spin: self.shared.options.spin,
            waits_spun: waits(|waits| &waits.paid_off),
            waits_slept: waits(|waits| &waits.slept),
            spun: Duration::from_nanos(waits(|waits| &waits.spun_ns)),
            connections: self.connections() as u64,
            hang_ups: HangUp::ALL.map(|reason| self.shared.hang_ups.of(reason)),
        }
    }
}

impl fmt::Debug for SocketCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketCounters").field("stats", &self.snapshot()).finish()
    }
}
