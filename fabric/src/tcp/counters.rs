//! Counters of a memory node's sockets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::error::FabricError;

/// Why a connection was hung up on, or not let in, as far as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HangUp {
    /// It sent bytes that are no frame, or asked for what it may not have.
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
    /// It has no token, a wrong one, one that was withdrawn, or one that does not let it do what it
    /// asked for; or it is another user's.
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

    /// The reason that a refusal of the service counts for.
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

    pub(super) fn of(&self, reason: HangUp) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }
}

/// The waits of one I/O thread, on a cache line of its own: it is the only writer.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct WaitCounts {
    pub(super) paid_off: AtomicU64,
    pub(super) slept: AtomicU64,
    pub(super) spun_ns: AtomicU64,
}

impl WaitCounts {
    /// Something came while the thread looked for it.
    pub(super) fn count_found(&self, spun: Duration) {
        bump(&self.paid_off, 1);
        bump(&self.spun_ns, spun.as_nanos() as u64);
    }

    /// Nothing did, and it goes to sleep.
    pub(super) fn count_sleep(&self, spun: Duration) {
        bump(&self.slept, 1);
        bump(&self.spun_ns, spun.as_nanos() as u64);
    }
}

fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}
