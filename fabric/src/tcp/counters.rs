//! What a memory node counts of its sockets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::node::Shared;
use crate::error::FabricError;

/// Why a connection was hung up on, or not let in, as far as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HangUp {
    /// What it sent is no frame, or asks for what it may not have.
    BadFrame,
    /// It did not greet in time.
    NoGreeting,
    /// It did not send the rest of a frame in time.
    SlowFrame,
    /// It did not read its replies in time.
    UnreadReplies,
    /// It did nothing for long.
    Idle,
    /// It speaks another protocol or another version of this one, or TLS with it has failed.
    OtherProtocol,
    /// It has no token, a wrong one, one that was withdrawn, or one that does not let it do what it asked for; or it is another
    /// user's.
    NoRight,
    /// There were too many connections, or too many that had not greeted.
    TooMany,
    /// It asked for a region, or to join a client, that there is not.
    NoRegion,
    /// The operating system had nothing left for it.
    NoResources,
}

impl HangUp {
    /// All reasons, in the order of their counts.
    pub const ALL: [Self; 10] = [
        Self::BadFrame,
        Self::NoGreeting,
        Self::SlowFrame,
        Self::UnreadReplies,
        Self::Idle,
        Self::OtherProtocol,
        Self::NoRight,
        Self::TooMany,
        Self::NoRegion,
        Self::NoResources,
    ];

    /// What a refusal of the service counts as.
    pub(super) const fn of_refusal(error: &FabricError) -> Self {
        match error {
            FabricError::NoSuchRegion { .. } => Self::NoRegion,
            FabricError::TokenRefused { .. } => Self::NoRight,
            _ => Self::NoResources,
        }
    }
}

/// Counts of those who were hung up on or not let in.
#[derive(Debug, Default)]
pub(super) struct HangUpCounts([AtomicU64; HangUp::ALL.len()]);

impl HangUpCounts {
    pub(super) fn add(&self, reason: HangUp) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    fn of(&self, reason: HangUp) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }
}

/// What one I/O thread has waited, on a cache line of its own: it is the only writer.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct WaitCounts {
    paid_off: AtomicU64,
    slept: AtomicU64,
    spun_ns: AtomicU64,
}

impl WaitCounts {
    /// Something came while the thread looked for it.
    pub(super) fn paid_off(&self, spun: Duration) {
        bump(&self.paid_off, 1);
        bump(&self.spun_ns, spun.as_nanos() as u64);
    }

    /// Nothing did, and it goes to sleep.
    pub(super) fn sleeps(&self, spun: Duration) {
        bump(&self.slept, 1);
        bump(&self.spun_ns, spun.as_nanos() as u64);
    }
}

fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

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

/// Where a memory node's sockets are counted, also while it serves. Those who were hung up on or not let in are told to
/// [`Service::rejected`](crate::Service::rejected) besides, each with the reason, unless they come faster than that.
#[derive(Clone)]
pub struct SocketCounters {
    pub(super) shared: Arc<Shared>,
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
