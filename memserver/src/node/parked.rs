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

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Stored, TableRecord, ValueExtent};
use fpcache_fabric::{ClientId, NodeMemory};

use crate::dedup::DedupSession;
use crate::durability::Lsn;
use crate::loader::ChunkPlace;
use crate::node::MemoryNode;
use crate::transit::{Held, MOST_REPLY};

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
    /// A key that is looked up, whose place nobody has had fetched.
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
pub(crate) enum Until {
    /// The table's next turn.
    Turn,
    /// So many of the operations that wait for the disk have been done since the beginning.
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

impl Until {
    /// Whether other writes must wait meanwhile.
    fn is_exclusive(self) -> bool {
        matches!(self, Self::Quiet | Self::Room | Self::LogRoom | Self::NextPiece | Self::Durable)
    }
}

/// An external value on its way to the log, for an operation that is decided when all of it is
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    pub(crate) extent: ValueExtent,
    /// The entry with its first piece.
    pub(crate) first: Option<Lsn>,
    /// Bytes that are in the log.
    pub(crate) written: u32,
}

/// A write that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) session: DedupSession,
    /// Its next operation.
    pub(crate) next: usize,
    /// How many operations of all requests must have been done before all of its own are.
    pub(crate) entries: u64,
    /// The value of its next operation, if that is on its way.
    pub(crate) put: Option<Put>,
}

/// How far a request is.
#[derive(Debug)]
pub(crate) enum Progress {
    New,
    Write(Going),
    /// A lookup: bytes of keys that are done, keys that are left, and the reply so far, which is
    /// short until it has room.
    Get {
        at: usize,
        left: u32,
        body: Vec<u8>,
        room: Option<Held>,
    },
    Chunk(ChunkPlace),
    /// A load whose directory is being written.
    Finish,
    /// A load whose table is there, and is being brought to the disk.
    Commit(Box<TableRecord>),
}

impl Progress {
    /// How far that is: grows whenever a request gets on.
    fn place(&self) -> usize {
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
    pub(crate) progress: Progress,
    pub(crate) until: Until,
    /// Counts the request's bytes, if it is long.
    pub(crate) held: Option<Held>,
}

impl Parked {
    /// Whose write it is, if it has begun.
    fn session(&self) -> Option<u64> {
        match &self.progress {
            Progress::Write(going) => Some(going.session.client),
            _ => None,
        }
    }
}

/// The parked requests of a table.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// For which other writes wait.
    first: Option<Parked>,
    rest: VecDeque<Parked>,
    /// Those that got on in this turn: their next one is after the others'.
    moved: VecDeque<Parked>,
    /// Replies to those that are done.
    replies: VecDeque<(ClientId, Vec<u8>, Option<Held>)>,
}

impl Queue {
    fn all(&self) -> impl Iterator<Item = &Parked> {
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
        self.first.as_ref().is_some_and(|parked| parked.until == Until::Durable)
    }

    /// The first entry of the log with a piece of a value whose mutation is still to be written.
    pub(crate) fn first_piece(&self) -> Option<Lsn> {
        let Progress::Write(going) = &self.first.as_ref()?.progress else { return None };
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
    pub(crate) fn push_reply(&mut self, client: ClientId, reply: Vec<u8>, room: Option<Held>) {
        self.replies.push_back((client, reply, room));
    }

    pub(crate) fn next_reply(&mut self) -> Option<(ClientId, Vec<u8>)> {
        self.replies.pop_front().map(|(client, reply, _)| (client, reply))
    }

    /// Drops the requests of a client that has disconnected, except one whose records are being
    /// made durable: others wait for that.
    fn take_of(&mut self, client: ClientId) -> Vec<Parked> {
        let is_its =
            |parked: &Parked| parked.client == client && !matches!(parked.progress, Progress::Commit(_));
        let mut gone: Vec<Parked> = self.first.take_if(|parked| is_its(parked)).into_iter().collect();
        for _ in 0..self.rest.len() {
            let Some(parked) = self.rest.pop_front() else { break };
            if is_its(&parked) { gone.push(parked) } else { self.rest.push_back(parked) }
        }
        gone
    }
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Begins a turn.
    pub(crate) fn renew_allowance(&mut self) {
        self.allowance = (self.allowance + QUANTUM).min(QUANTUM);
    }

    #[inline]
    pub(crate) fn charge(&mut self, nanoseconds: i64) {
        self.allowance -= nanoseconds;
    }

    /// Whether the table has used up what it may use before its next turn.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.allowance <= 0
    }

    /// Whether an earlier request of this client is in hand.
    pub(crate) fn is_in_hand(&self, session: u64) -> bool {
        let place = self.sessions.place_of(session);
        place.is_some_and(|place| self.pending.has_request_at(place)) || self.parked.has_begun(session)
    }

    /// Lets the replies of some clients go, of those silent longest first: of one, and of others
    /// not heard of after this request. Whether there were any.
    pub(crate) fn let_replies_go(&mut self, until: u64) -> bool {
        /// Clients of one step.
        const MOST: usize = 64;
        let begun = self.parked.begun();
        let Self { sessions, pending, .. } = self;
        let is_in_hand = |place, client| pending.has_request_at(place) || begun.contains(&client);
        let mut gone = 0;
        while gone < MOST
            && (gone == 0 || sessions.oldest_kept().is_some_and(|heard| heard <= until))
            && sessions.let_go(is_in_hand)
        {
            gone += 1;
        }
        gone > 0
    }

    /// Why the log cannot be written, while it cannot: nobody waits for it then.
    pub(crate) fn log_fails(&self) -> bool {
        self.wal.as_ref().is_some_and(|wal| wal.failure().is_some())
    }

    fn is_ready(&mut self, until: Until) -> bool {
        let is_ready = match until {
            Until::Turn | Until::Room | Until::NextPiece => true,
            Until::Published(entries) => self.pending.has_published(entries),
            Until::Answered(session) => !self.is_in_hand(session),
            Until::Quiet => self.pending.is_empty(),
            Until::ReplyRoom => return self.transit.has_room_for_reply(MOST_REPLY),
            Until::OperationRoom => self.transit.has_room_for_operation(),
            Until::LogRoom => self.wal.as_mut().is_none_or(|wal| wal.has_room()),
            Until::Durable => return self.durable.is_some(),
        };
        is_ready || self.log_fails()
    }

    /// Goes on with parked requests, those that have waited longest first, until the allowance is
    /// used up.
    pub(crate) fn go_on(&mut self) {
        if self.parked.is_empty() || self.is_spent() {
            return;
        }
        if let Some(first) = self.parked.first.take() {
            let gone_on = if self.is_ready(first.until) { self.resume(first) } else { Some(first) };
            if let Some(parked) = gone_on {
                self.parked.park(parked, true);
            }
        }
        let mut at = 0;
        while at < self.parked.rest.len() && !self.is_spent() {
            let until = self.parked.rest[at].until;
            let ready =
                if self.may_go_on(at) && self.is_ready(until) { self.parked.rest.remove(at) } else { None };
            let Some(parked) = ready else {
                at += 1;
                continue;
            };
            let before = parked.progress.place();
            match self.resume(parked) {
                Some(parked) if before == parked.progress.place() && !parked.until.is_exclusive() => {
                    self.parked.rest.insert(at, parked);
                    at += 1;
                }
                Some(parked) => self.parked.park(parked, true),
                None => {}
            }
        }
        let mut moved = std::mem::take(&mut self.parked.moved);
        self.parked.rest.append(&mut moved);
        if self.parked.all().any(|parked| parked.until == Until::LogRoom)
            && let Some(wal) = &mut self.wal
        {
            wal.want_synced(wal.last());
        }
    }

    /// Whether a parked request can continue on the next turn.
    pub(crate) fn can_go_on(&mut self) -> bool {
        let first = self.parked.first.as_ref().map(|first| first.until);
        first.is_some_and(|until| self.is_ready(until))
            || (0..self.parked.rest.len()).any(|at| {
                let until = self.parked.rest[at].until;
                self.may_go_on(at) && self.is_ready(until)
            })
    }

    /// Whether a parked request need not wait for the first: lookups need not.
    fn may_go_on(&self, at: usize) -> bool {
        !self.parked.holds_writes() || matches!(self.parked.rest[at].progress, Progress::Get { .. })
    }

    /// Drops what a client that has gone had parked. Operations that are done stay done.
    pub(crate) fn drop_parked_of(&mut self, client: ClientId) {
        let was_searching = self
            .parked
            .first
            .as_ref()
            .is_some_and(|first| first.client == client && first.until == Until::Room);
        let gone = self.parked.take_of(client);
        if let (true, Some(table)) = (was_searching, self.state.table_mut()) {
            // Those that wait for room begin searches of their own.
            table.give_up_search();
        }
        for parked in gone {
            if let Progress::Write(Going { put: Some(put), .. }) = parked.progress {
                self.give_up_value(&put);
            }
        }
    }

    /// Gives up a value on its way to the log.
    pub(crate) fn give_up_value(&mut self, put: &Put) {
        let value = Stored::External(put.extent);
        self.take_back(&value);
        // Should that fail, the pieces stay in the log until something after them is done.
        let _ = self.skip_orphans(&value);
    }
}
