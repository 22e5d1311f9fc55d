//! Counts of what operations take.

use crate::nic::{Request, Verb};

/// What operations took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Operations that ended.
    pub operations: u64,
    /// Doorbell batches that were waited for.
    pub round_trips: u64,
    /// READs.
    pub reads: u64,
    /// WRITEs.
    pub writes: u64,
    /// Atomics.
    pub atomics: u64,
    /// Messages to processors.
    pub calls: u64,
    /// Pieces of work that memory nodes' processors did besides calls.
    pub background: u64,
    /// Payload from nodes.
    pub bytes_from: u64,
    /// Payload to nodes.
    pub bytes_to: u64,
    /// Operations that took a single round trip.
    pub single_trips: u64,
    /// Reads that another client's lookup answered.
    pub delegated: u64,
    /// Lookups that were answered, those of read-modify-writes too.
    pub lookups: u64,
    /// Of these, with no value.
    pub absent: u64,
}

impl Tally {
    pub(super) fn count(&mut self, requests: &[Request]) {
        self.round_trips += 1;
        for request in requests {
            let bytes = u64::from(request.bytes);
            match request.verb {
                Verb::Read => (self.reads, self.bytes_from) = (self.reads + 1, self.bytes_from + bytes),
                Verb::Write => (self.writes, self.bytes_to) = (self.writes + 1, self.bytes_to + bytes),
                Verb::Atomic | Verb::AtomicOnChip => {
                    self.atomics += 1;
                    self.bytes_to += 16;
                    self.bytes_from += 8;
                }
                Verb::Call { reply, .. } => {
                    self.calls += 1;
                    self.bytes_to += bytes;
                    self.bytes_from += u64::from(reply);
                }
            }
        }
    }

    /// Requests of every kind.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.atomics + self.calls
    }

    /// A count per operation.
    pub fn per_operation(&self, count: u64) -> f64 {
        count as f64 / self.operations.max(1) as f64
    }
}
