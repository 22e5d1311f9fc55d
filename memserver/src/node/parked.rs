//! Requests that take several turns.
//!
//! A table has an *allowance*: nanoseconds of the serving thread's time, estimated from counts of
//! what it does and renewed on each of its turns. A request that exceeds it, or whose next
//! operation must wait for the disk, is parked with its bytes and continues on a later turn, so
//! that other requests need not wait for it.
//!
//! Some requests wait for a state that further writes would prevent: that nothing waits for the
//! disk any more, or that the pieces of a value are contiguous in the log. Other writes to the same
//! table then wait for that request, which is called the *first*.

use std::collections::{HashSet, VecDeque};

use fpcache::layout::{TableRecord, ValueExtent};
use fpcache_fabric::ClientId;

use crate::dedup::DedupSession;
use crate::durability::Lsn;
use crate::loader::ChunkPlace;
use crate::request_memory::TransitGuard;

/// The allowance of a turn, in nanoseconds.
pub(crate) const QUANTUM: i64 = 300_000;

/// Bytes of a request that does not wait for the next turn, and what it may use.
pub(crate) const SHORT_REQUEST: usize = 1 << 10;
pub(crate) const SHORT_ALLOWANCE: i64 = 20_000;

/// What things cost, about, in nanoseconds: as measured at random places of a table far larger than
/// the processor's caches (`what_steps_take` in `memserver/tests/others_wait`, which tells both).
pub mod cost {
    /// An operation of a write, whose place the operations before it have had fetched.
    pub const OPERATION: i64 = 400;
    /// An operation that has waited for the disk, whose place has left the caches by then.
    pub const PUBLISHED: i64 = 600;
    /// A key that is looked up, whose place has not been fetched.
    pub const LOOKED_UP: i64 = 500;
    /// Another four bytes that are copied and summed up.
    pub const FOUR_BYTES: i64 = 1;
    /// Segments that are replaced by others.
    pub const REBUILD: i64 = 20_000;
    /// Each record that moves with them.
    pub const RECORD_MOVED: i64 = 150;
    /// A load that begins, beside its encoders.
    pub const LOAD_BEGUN: i64 = 20_000;
    /// A record of a load.
    pub const LOADED: i64 = 150;
    /// A step of what is done between requests.
    pub const STEP: i64 = 100_000;

    /// Bytes that are copied.
    #[inline]
    #[must_use]
    pub fn bytes(bytes: usize) -> i64 {
        bytes as i64 / 4 * FOUR_BYTES
    }
}

/// What a parked request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// The table's next turn.
    Turn,
    /// This many of the operations that wait for the disk have been done since the beginning.
    Published(u64),
    /// No other request of this client is in hand.
    Answered(u64),
    /// No operation waits for the disk.
    Quiet,
    /// The table's next turn, to continue its search for room.
    Room,
    /// The log has room for its next entry.
    LogRoom,
    /// The table's next turn, with nothing in the log between.
    NextPiece,
    /// There is room for a long reply.
    ReplyRoom,
    /// There is room for another operation that waits for the disk.
    OperationRoom,
    /// The records that were loaded are on the disk.
    Durable,
}

impl WaitFor {
    /// Whether other writes must wait meanwhile.
    pub(super) fn is_exclusive(self) -> bool {
        matches!(self, Self::Quiet | Self::Room | Self::LogRoom | Self::NextPiece | Self::Durable)
    }
}

/// An external value on its way to the log, for an operation that is decided when all of it is
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueToLog {
    pub(crate) extent: ValueExtent,
    /// The entry with its first piece.
    pub(crate) first: Option<Lsn>,
    /// Bytes that are in the log.
    pub(crate) written: u32,
}

/// A write that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteInProgress {
    pub(crate) session: DedupSession,
    /// Its next operation.
    pub(crate) next: usize,
    /// How many operations of all requests must have been done before all of its own are.
    pub(crate) entries: u64,
    /// The value of its next operation, if that is on its way.
    pub(crate) put: Option<ValueToLog>,
}

/// How far a request is.
#[derive(Debug)]
pub(crate) enum RequestState {
    New,
    Write(WriteInProgress),
    /// A lookup: bytes of keys that are done, keys that are left, and the reply so far, which is
    /// short until it has room.
    Get {
        at: usize,
        left: u32,
        body: Vec<u8>,
        room: Option<TransitGuard>,
    },
    Chunk(ChunkPlace),
    /// A load whose directory is being written.
    Finish,
    /// A load whose table is there, and is being brought to the disk.
    Commit(Box<TableRecord>),
}

impl RequestState {
    /// How far that is: grows whenever a request gets on.
    pub(super) fn place(&self) -> usize {
        match self {
            Self::New => 0,
            Self::Write(going) => 1 + going.next,
            Self::Get { at, .. } | Self::Chunk(ChunkPlace { at, .. }) => 1 + at,
            Self::Finish => 1,
            Self::Commit(_) => 2,
        }
    }
}

/// A parked request.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) client: ClientId,
    pub(crate) request: Vec<u8>,
    pub(crate) progress: RequestState,
    pub(crate) until: WaitFor,
    /// Counts the request's bytes, if it is long.
    pub(crate) held: Option<TransitGuard>,
}

impl Parked {
    /// Whose write it is, if it has begun.
    fn session(&self) -> Option<u64> {
        match &self.progress {
            RequestState::Write(going) => Some(going.session.client),
            _ => None,
        }
    }
}

/// The parked requests of a table.
#[derive(Debug, Default)]
pub(crate) struct ParkedRequests {
    /// For which other writes wait.
    pub(super) first: Option<Parked>,
    pub(super) rest: VecDeque<Parked>,
    /// Those that got on in this turn: their next one comes after those of the others.
    pub(super) moved: VecDeque<Parked>,
    /// Replies to those that are done.
    replies: VecDeque<(ClientId, Vec<u8>, Option<TransitGuard>)>,
}

impl ParkedRequests {
    pub(super) fn all(&self) -> impl Iterator<Item = &Parked> {
        self.first.iter().chain(&self.rest).chain(&self.moved)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    /// Whether writes must wait.
    #[inline]
    pub(crate) fn holds_writes(&self) -> bool {
        self.first.is_some()
    }

    /// Whether a write of this client has begun.
    pub(crate) fn has_begun(&self, session: u64) -> bool {
        self.all().any(|parked| parked.session() == Some(session))
    }

    /// The clients whose writes have begun.
    pub(crate) fn begun(&self) -> HashSet<u64> {
        self.all().filter_map(Parked::session).collect()
    }

    /// Whether a load waits until its records are on the disk.
    pub(crate) fn awaits_durable(&self) -> bool {
        self.first.as_ref().is_some_and(|parked| parked.until == WaitFor::Durable)
    }

    /// The first entry of the log with a piece of a value whose mutation is still to be written.
    pub(crate) fn first_piece(&self) -> Option<Lsn> {
        let RequestState::Write(going) = &self.first.as_ref()?.progress else { return None };
        going.put.and_then(|put| put.first)
    }

    /// Parks a request; `moved` if it has had its turn.
    pub(crate) fn park(&mut self, parked: Parked, moved: bool) {
        if self.first.is_none() && parked.until.is_exclusive() {
            self.first = Some(parked);
        } else if moved {
            self.moved.push_back(parked);
        } else {
            self.rest.push_back(parked);
        }
    }

    /// A reply that has what it had room for until it is taken.
    pub(crate) fn push_reply(&mut self, client: ClientId, reply: Vec<u8>, room: Option<TransitGuard>) {
        self.replies.push_back((client, reply, room));
    }

    pub(crate) fn next_reply(&mut self) -> Option<(ClientId, Vec<u8>)> {
        self.replies.pop_front().map(|(client, reply, _)| (client, reply))
    }

    /// Drops the requests of a client that has disconnected, except one whose records are being
    /// made durable: others wait for that.
    pub(super) fn take_of(&mut self, client: ClientId) -> Vec<Parked> {
        let is_its =
            |parked: &Parked| parked.client == client && !matches!(parked.progress, RequestState::Commit(_));
        let mut gone: Vec<Parked> = self.first.take_if(|parked| is_its(parked)).into_iter().collect();
        for _ in 0..self.rest.len() {
            let Some(parked) = self.rest.pop_front() else { break };
            if is_its(&parked) { gone.push(parked) } else { self.rest.push_back(parked) }
        }
        gone
    }
}
