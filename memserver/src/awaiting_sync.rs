//! Operations that wait for the disk before readers see them (`--fsync always`), and the requests
//! they belong to.
//!
//! Entries are published in the order in which they were decided. Later operations on the same keys
//! wait for them; all others join in: however many requests arrive while the disk syncs, one sync
//! serves them all.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Stored, ValueExtent};
use fpcache::message::WriteReply;
use fpcache_fabric::ClientId;

use crate::dedup::DedupSession;
use crate::durability::Lsn;
use crate::request_memory::{Transit, TransitGuard};
use crate::table::segments::decide::{MutationKind, SlotMutation};

/// What becomes of an operation.
#[derive(Debug)]
pub(crate) enum PendingOutcome<K: BuildKeys> {
    /// Nothing changes; but the reply comes after those to the operations before.
    Reply(WriteReply),
    /// A slot changes once its entries are on the disk.
    SlotMutation { lsns: Lsns, mutation: SlotMutation<K, K::Owned>, value: OwnedValue },
}

/// The entries of the log for one mutation: the pieces of its value, and the mutation itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lsns {
    pub(crate) first: Lsn,
    pub(crate) last: Lsn,
}

/// A record's value until its slot changes.
#[derive(Debug)]
pub(crate) enum OwnedValue {
    Here(Vec<u8>),
    ExternalValues(ValueExtent),
}

impl From<&Stored<'_>> for OwnedValue {
    fn from(value: &Stored<'_>) -> Self {
        match value {
            Stored::Here(value) => Self::Here(value.to_vec()),
            Stored::External(extent) => Self::ExternalValues(*extent),
        }
    }
}

impl OwnedValue {
    pub(crate) fn as_stored(&self) -> Stored<'_> {
        match self {
            Self::Here(value) => Stored::Here(value),
            Self::ExternalValues(extent) => Stored::External(*extent),
        }
    }
}

/// One operation that waits.
#[derive(Debug)]
pub(crate) struct PendingOperation<K: BuildKeys> {
    pub(crate) session: DedupSession,
    pub(crate) operation: usize,
    pub(crate) outcome: PendingOutcome<K>,
}

impl<K: BuildKeys> PendingOperation<K> {
    /// Bytes that it takes while it waits. The queue may have twice the places that it needs, and
    /// so may the set of keys.
    fn bytes(&self) -> usize {
        let beside = match &self.outcome {
            PendingOutcome::Reply(_) => 0,
            PendingOutcome::SlotMutation { mutation, value, .. } => {
                let value = if let OwnedValue::Here(value) = value { value.len() } else { 0 };
                2 * (size_of::<K::Owned>() + K::encoded_len(mutation.key.borrow())) + value
            }
        };
        2 * size_of::<Self>() + beside
    }
}

/// Entries that there is always room for: the memory of more is given back when nothing waits.
const KEPT: usize = 256;

/// A request that waits for its operations.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    client: ClientId,
    session: DedupSession,
    /// How many entries must have been published since the beginning.
    entries: u64,
}

/// What waits for the disk.
#[derive(Debug)]
pub(crate) struct Pending<K: BuildKeys> {
    entries: VecDeque<PendingOperation<K>>,
    keys: HashSet<K::Owned>,
    requests: VecDeque<Waiting>,
    /// How many of the entries change or remove a record.
    updates: usize,
    removals: usize,
    /// How many of these two there are of the client at each place.
    by_place: Vec<u32>,
    /// Entries ever added, and ever published.
    added: u64,
    published: u64,
    /// Counts the entries' bytes.
    held: Option<TransitGuard>,
}

impl<K: BuildKeys> Default for Pending<K> {
    fn default() -> Self {
        let (entries, keys, requests) = (VecDeque::new(), HashSet::new(), VecDeque::new());
        Self {
            entries,
            keys,
            requests,
            updates: 0,
            removals: 0,
            by_place: Vec::new(),
            added: 0,
            published: 0,
            held: None,
        }
    }
}

impl<K: BuildKeys> Pending<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether something waits that may give memory back: removals do, and where values are
    /// `outside` their slots, updates.
    pub(crate) fn may_free(&self, outside: bool) -> bool {
        self.removals > 0 || outside && self.updates > 0
    }

    /// Whether a change of this key waits.
    pub(crate) fn is_key_waiting(&self, key: &K::Key) -> bool {
        !self.keys.is_empty() && self.keys.contains(key)
    }

    /// Has an operation wait, which counts against what may wait of all tables together.
    pub(crate) fn add(&mut self, entry: PendingOperation<K>, transit: &Transit) {
        self.held.get_or_insert_with(|| transit.hold_operations()).grow(entry.bytes());
        if let PendingOutcome::SlotMutation { mutation, .. } = &entry.outcome {
            self.keys.insert(mutation.key.clone());
            self.updates += usize::from(mutation.kind == MutationKind::Update);
            self.removals += usize::from(mutation.kind == MutationKind::Remove);
        }
        self.added += 1;
        *self.at(entry.session.place) += 1;
        self.entries.push_back(entry);
    }

    /// The first entry of the log that is waited for.
    pub(crate) fn first(&self) -> Option<Lsn> {
        self.entries.iter().find_map(|entry| match entry.outcome {
            PendingOutcome::SlotMutation { lsns, .. } => Some(lsns.first),
            PendingOutcome::Reply(_) => None,
        })
    }

    /// The last entry of the log that is waited for.
    pub(crate) fn last(&self) -> Option<Lsn> {
        self.entries.iter().rev().find_map(|entry| match entry.outcome {
            PendingOutcome::SlotMutation { lsns, .. } => Some(lsns.last),
            PendingOutcome::Reply(_) => None,
        })
    }

    /// Whether there is an entry to publish, if the log is on the disk so far.
    pub(crate) fn has_next(&self, synced: Lsn) -> bool {
        self.entries.front().is_some_and(|entry| match entry.outcome {
            PendingOutcome::SlotMutation { lsns, .. } => lsns.last <= synced,
            PendingOutcome::Reply(_) => true,
        })
    }

    /// The next entry to publish, if the log is on the disk so far.
    pub(crate) fn next(&mut self, synced: Lsn) -> Option<PendingOperation<K>> {
        let entry = if self.has_next(synced) { self.entries.pop_front()? } else { return None };
        if let PendingOutcome::SlotMutation { mutation, .. } = &entry.outcome {
            self.keys.remove(mutation.key.borrow());
            self.updates -= usize::from(mutation.kind == MutationKind::Update);
            self.removals -= usize::from(mutation.kind == MutationKind::Remove);
        }
        if let Some(held) = &mut self.held {
            held.shrink(entry.bytes());
        }
        *self.at(entry.session.place) -= 1;
        if self.entries.is_empty() && self.entries.capacity() > KEPT {
            self.entries.shrink_to(KEPT);
            self.keys.shrink_to(KEPT);
        }
        self.published += 1;
        Some(entry)
    }

    /// How many entries were ever added.
    pub(crate) fn added(&self) -> u64 {
        self.added
    }

    /// Whether this many entries have been published since the beginning.
    #[inline]
    pub(crate) fn has_published(&self, entries: u64) -> bool {
        self.published >= entries
    }

    fn at(&mut self, place: usize) -> &mut u32 {
        if place >= self.by_place.len() {
            self.by_place.resize(place + 1, 0);
        }
        &mut self.by_place[place]
    }

    /// Whether operations of the client at this place wait, or its request for them.
    pub(crate) fn has_request_at(&self, place: usize) -> bool {
        self.by_place.get(place).is_some_and(|waiting| *waiting > 0)
    }

    /// A client waits for the reply to its request, until this many entries have been published.
    pub(crate) fn wait(&mut self, client: ClientId, session: DedupSession, entries: u64) {
        *self.at(session.place) += 1;
        self.requests.push_back(Waiting { client, session, entries });
    }

    /// The next waiting request; its operations keep waiting.
    pub(crate) fn give_up_next(&mut self) -> Option<ClientId> {
        let waiting = self.requests.pop_front()?;
        *self.at(waiting.session.place) -= 1;
        Some(waiting.client)
    }

    /// The next request all of whose operations are done.
    pub(crate) fn next_answered(&mut self) -> Option<(ClientId, DedupSession)> {
        let is_answered = self.requests.front()?.entries <= self.published;
        let waiting = if is_answered { self.requests.pop_front()? } else { return None };
        *self.at(waiting.session.place) -= 1;
        Some((waiting.client, waiting.session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::U64Keys;
    use fpcache::message::WriteStatus;

    #[test]
    fn what_waits_is_counted_as_it_is_added_and_its_memory_is_given_back() {
        let (mut pending, transit) = (Pending::<U64Keys>::default(), Transit::default());
        let session = DedupSession { client: 1, request: 1, place: 0 };
        let mut added = 0usize;
        while transit.has_room_for_operation() {
            let outcome = PendingOutcome::Reply(WriteReply { status: WriteStatus::Absent, token: None });
            pending.add(PendingOperation { session, operation: 0, outcome }, &transit);
            added += 1;
        }
        let places = pending.entries.capacity() * size_of::<PendingOperation<U64Keys>>();
        assert!((1 << 20..8 << 20).contains(&places), "{places} bytes for {added} operations");
        while pending.next(0).is_some() {
            added -= 1;
        }
        assert_eq!(added, 0);
        assert!(transit.has_room_for_operation() && pending.entries.capacity() <= 2 * KEPT);
    }
}
