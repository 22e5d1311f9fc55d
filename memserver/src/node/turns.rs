//! The turns of a table: how much it may do in one, and how parked requests go on.

use fpcache::key_space::BuildKeys;
use fpcache::layout::Stored;
use fpcache_fabric::{ClientId, NodeMemory};

use crate::node::MemoryNode;
use crate::node::parked::{QUANTUM, RequestState, ValueToLog, WaitFor, WriteInProgress};
use crate::request_memory::MOST_REPLY;

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

    /// Evicts the replies of some clients, of those silent longest first: of one, and of others not
    /// heard of after this request. Whether there were any.
    pub(crate) fn evict_replies(&mut self, until: u64) -> bool {
        /// Clients of one step.
        const MOST: usize = 64;
        let begun = self.parked.begun();
        let Self { sessions, pending, .. } = self;
        let is_in_hand = |place, client| pending.has_request_at(place) || begun.contains(&client);
        let mut gone = 0;
        while gone < MOST
            && (gone == 0 || sessions.oldest_kept().is_some_and(|heard| heard <= until))
            && sessions.evict_oldest(is_in_hand)
        {
            gone += 1;
        }
        gone > 0
    }

    /// Why the log cannot be written, while it cannot: requests do not wait for it then.
    pub(crate) fn log_fails(&self) -> bool {
        self.wal.as_ref().is_some_and(|wal| wal.staging.failure().is_some())
    }

    /// Whether writes must wait: for another, or for segments to be replaced.
    #[inline]
    pub(crate) fn holds_writes(&self) -> bool {
        self.parked.holds_writes() || self.pauses_writes()
    }

    /// Whether writes wait until segments have been replaced. They do not wait for a disk that
    /// fails.
    #[inline]
    fn pauses_writes(&self) -> bool {
        self.quiet.is_wanted() && !self.log_fails() && !self.is_searching()
    }

    fn is_ready(&mut self, until: WaitFor) -> bool {
        let is_ready = match until {
            WaitFor::Turn | WaitFor::Room | WaitFor::NextPiece => true,
            WaitFor::Published(entries) => self.pending.has_published(entries),
            WaitFor::Answered(session) => !self.is_in_hand(session),
            WaitFor::Quiet => self.pending.is_empty(),
            WaitFor::ReplyRoom => return self.transit.has_room_for_reply(MOST_REPLY),
            WaitFor::OperationRoom => self.transit.has_room_for_operation(),
            WaitFor::LogRoom => self.wal.as_mut().is_none_or(|wal| wal.has_room()),
            WaitFor::Durable => return self.durable.is_some(),
        };
        is_ready || self.log_fails()
    }

    /// Goes on with parked requests, those that have waited longest first, until the allowance is
    /// used up.
    pub(crate) fn go_on(&mut self) {
        if self.parked.is_empty() || self.is_spent() {
            return;
        }
        let is_held = self.pauses_writes() && self.pending.is_empty();
        if let Some(first) = self.parked.first.take_if(|_| !is_held) {
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
        if self.parked.all().any(|parked| parked.until == WaitFor::LogRoom)
            && let Some(wal) = &mut self.wal
        {
            wal.staging.want_sync(wal.staging.last_lsn());
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
        !self.holds_writes() || matches!(self.parked.rest[at].progress, RequestState::Get { .. })
    }

    /// Drops what a client that has gone had parked. Operations that are done stay done.
    pub(crate) fn drop_parked_of(&mut self, client: ClientId) {
        let was_searching = self
            .parked
            .first
            .as_ref()
            .is_some_and(|first| first.client == client && first.until == WaitFor::Room);
        let gone = self.parked.take_of(client);
        if let (true, Some(table)) = (was_searching, self.state.table_mut()) {
            // Those that wait for room begin searches of their own.
            table.give_up_search();
        }
        for parked in gone {
            if let RequestState::Write(WriteInProgress { put: Some(put), .. }) = parked.progress {
                self.give_up_value(&put);
            }
        }
    }

    /// Gives up a value on its way to the log.
    pub(crate) fn give_up_value(&mut self, put: &ValueToLog) {
        let value = Stored::External(put.extent);
        self.take_back(&value);
        // Should that fail, the pieces stay in the log until something after them is done.
        let _ = self.skip_orphans(&value);
    }
}
