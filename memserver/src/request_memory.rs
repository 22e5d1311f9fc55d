//! Limits on memory for long requests and replies in progress, and for operations that wait for the
//! disk.
//!
//! A parked request is kept with its bytes, and so is the partial reply of a lookup. All tables
//! share one limit for requests and one for replies. A request beyond the limit waits in its ring,
//! and a lookup without room for its reply waits with its request alone. The limits are separate
//! because a lookup that has room for its reply ends without waiting for anything, which frees the
//! room again. What is [short](SHORT_BODY) is not counted: every connection may have one request
//! and one reply of that length.
//!
//! Operations that wait for the disk have a third limit and are counted one by one, because a short
//! request may have a thousand. Values that are sent ahead of their requests have a fourth, by
//! their number: their bytes are in the tables' regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fpcache_fabric::SHORT_BODY;

/// Bytes of long requests that are kept at most, and of replies.
const MOST: usize = 8 << 20;
/// Bytes of the longest reply to a lookup: more than a client has room for.
pub(crate) const MOST_REPLY: usize = 1 << 20;

/// Values that may be on their way ahead of requests to all tables. What is kept of them takes up
/// to 16 MiB.
pub(crate) const MOST_VALUES_OF_ALL: usize = 16 << 10;
/// Values that each table may have in transit in any case.
const FEW_VALUES: usize = 16;

/// Bytes that are kept, and how many values: by [`TransitKind`].
type TransitBytes = [AtomicUsize; 4];

/// What a table keeps of requests and replies, beside what all tables of its memory node do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transit {
    all: Arc<TransitBytes>,
    own: Arc<TransitBytes>,
}

/// Which of the bounds counts.
#[derive(Clone, Copy, Debug)]
enum TransitKind {
    Request,
    Reply,
    Operations,
    Values,
}

/// Bytes that are kept, or a value, until this is dropped.
#[derive(Debug)]
pub(crate) struct TransitGuard {
    transit: Transit,
    body: TransitKind,
    bytes: usize,
}

impl Drop for TransitGuard {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

impl TransitGuard {
    /// Counts this many bytes more.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.transit.count(self.body, bytes);
        self.bytes += bytes;
    }

    /// Counts this many bytes less.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        for kept in [&self.transit.all, &self.transit.own] {
            kept[self.body as usize].fetch_sub(bytes, Ordering::Relaxed);
        }
        self.bytes -= bytes;
    }
}

impl Transit {
    /// For another table of the same memory node.
    pub(crate) fn beside(&self) -> Self {
        Self { all: Arc::clone(&self.all), own: Arc::default() }
    }

    /// Whether a request of this many bytes can be kept.
    pub(crate) fn has_room_for_request(&self, bytes: usize) -> bool {
        self.has_room(TransitKind::Request, bytes)
    }

    /// Whether a reply of this many bytes can be kept.
    pub(crate) fn has_room_for_reply(&self, bytes: usize) -> bool {
        self.has_room(TransitKind::Reply, bytes)
    }

    /// Whether another operation can wait for the disk. A few of each table always can, so that no
    /// table waits for the disks of others.
    #[inline]
    pub(crate) fn has_room_for_operation(&self) -> bool {
        self.own[TransitKind::Operations as usize].load(Ordering::Relaxed) < SHORT_BODY
            || self.has_room(TransitKind::Operations, SHORT_BODY + 1)
    }

    /// Whether another value can be sent ahead. A few of each table always can.
    pub(crate) fn has_room_for_value(&self) -> bool {
        let [all, own] = self.kept(TransitKind::Values);
        own < FEW_VALUES || own < MOST_VALUES_OF_ALL.saturating_sub(all)
    }

    /// Counts a value that is sent ahead.
    pub(crate) fn hold_value(&self) -> TransitGuard {
        self.keep(TransitKind::Values, 1)
    }

    /// Counts operations that wait for the disk, none so far.
    pub(crate) fn hold_operations(&self) -> TransitGuard {
        self.keep(TransitKind::Operations, 0)
    }

    /// A table gets no more than is left: however long its requests wait, for a disk for example,
    /// others have room.
    fn has_room(&self, body: TransitKind, bytes: usize) -> bool {
        let [all, own] = self.kept(body);
        // The first one always has, however long requests may be.
        bytes <= SHORT_BODY || all == 0 || own + bytes <= MOST.saturating_sub(all)
    }

    /// What all tables keep, and this one.
    fn kept(&self, body: TransitKind) -> [usize; 2] {
        [&self.all, &self.own].map(|kept| kept[body as usize].load(Ordering::Relaxed))
    }

    /// Counts a request that is kept, if it is long.
    pub(crate) fn keep_request(&self, bytes: usize) -> Option<TransitGuard> {
        (bytes > SHORT_BODY).then(|| self.keep(TransitKind::Request, bytes))
    }

    /// Counts a reply that is to be put together; `None` if there is no room for it.
    pub(crate) fn keep_reply(&self, bytes: usize) -> Option<TransitGuard> {
        self.has_room_for_reply(bytes).then(|| self.keep(TransitKind::Reply, bytes))
    }

    fn keep(&self, body: TransitKind, bytes: usize) -> TransitGuard {
        self.count(body, bytes);
        TransitGuard { transit: self.clone(), body, bytes }
    }

    fn count(&self, body: TransitKind, bytes: usize) {
        for kept in [&self.all, &self.own] {
            kept[body as usize].fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_table_leaves_room_for_others_and_what_is_dropped_is_free_again() {
        let first = Transit::default();
        let second = first.beside();
        let mut held: Vec<TransitGuard> = (0..4).map(|_| first.keep_reply(MIB).expect("room")).collect();
        assert!(first.keep_reply(MIB).is_none(), "as much as is left");
        held.extend((0..2).map(|_| second.keep_reply(MIB).expect("room left by the first")));
        assert!(second.keep_reply(MIB).is_none());
        assert!(second.has_room_for_request(MIB), "requests have room of their own");
        held.clear();
        assert!(second.keep_reply(MIB).is_some());
    }

    #[test]
    fn a_table_that_waits_for_its_disk_leaves_operations_of_others_room() {
        let tables: Vec<Transit> =
            std::iter::successors(Some(Transit::default()), |t| Some(t.beside())).take(40).collect();
        let mut held = Vec::new();
        for table in &tables {
            let mut of_table = table.hold_operations();
            let mut bytes = 0;
            while table.has_room_for_operation() {
                of_table.grow(300);
                bytes += 300;
            }
            assert!(bytes >= SHORT_BODY, "each has some");
            held.push((of_table, bytes));
        }
        let all: usize = held.iter().map(|(_, bytes)| bytes).sum();
        assert!(all <= MOST + tables.len() * (SHORT_BODY + 300), "{all} bytes");
        let (first, bytes) = &mut held[0];
        first.shrink(*bytes);
        assert!(tables[0].has_room_for_operation());
        held.clear();
        assert_eq!(tables[0].all[TransitKind::Operations as usize].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn short_requests_always_have_room() {
        let transit = Transit::default();
        let held: Vec<_> = (0..64).map(|_| transit.keep_request(MIB)).collect();
        assert!(!transit.has_room_for_request(SHORT_BODY + 1));
        assert!(transit.has_room_for_request(SHORT_BODY) && transit.keep_request(SHORT_BODY).is_none());
        drop(held);
        assert!(transit.has_room_for_request(MIB));
    }
}
