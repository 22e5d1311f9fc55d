//! The memory node as a service: dispatch of requests, continuation of parked ones, and background
//! work in between.

use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::message::{ErrorCode, Refusal, Request, SocketStats, encode_reply};
use fpcache_fabric::{AccessError, ClientId, Handled, NodeMemory, SHORT_BODY, Service, Waker, Work};

use crate::loader::{Begin, LoadError};
use crate::node::long_work::LoadId;
use crate::node::parked::{Parked, QUANTUM, RequestState, SHORT_ALLOWANCE, SHORT_REQUEST, WaitFor, cost};
use crate::node::snapshotting::PAUSE;
use crate::node::{MemoryNode, NodeState};
use crate::table::error::TableError;
use crate::wal::Wal;

/// How far the answer to a request is.
pub(crate) enum Dispatched {
    /// It is there.
    Now,
    /// It comes when the disk has got so far.
    Later,
    /// The request made this progress, and continues after that.
    Waits(RequestState, WaitFor),
}

/// The refusal for a region that cannot be accessed: a bug.
pub(crate) fn internal(error: AccessError) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("the region could not be accessed: {error}"))
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    fn answer(
        &mut self,
        client: ClientId,
        request: &[u8],
        progress: RequestState,
        body: &mut Vec<u8>,
    ) -> Result<Dispatched, Refusal> {
        let id = |number| LoadId { client, number };
        match Request::decode::<K>(self.creation, request)? {
            Request::Stats => self.stats().encode(body),
            // The server of the sockets answers this.
            Request::Sockets => SocketStats::default().encode(body),
            Request::LoadBegin { load, parameters, expected_keys, encoders } => {
                self.may_begin()?;
                self.charge(cost::LOAD_BEGUN + cost::bytes(encoders.len()));
                let encoders = match encoders {
                    [] => K::Encoders::default(),
                    bytes => K::decode_encoders(bytes).map_err(|why| LoadError::Encoders(why).refusal())?,
                };
                self.begin(id(load), Begin { parameters, expected_keys, encoders })?;
            }
            Request::LoadChunk(load, chunk) => return self.take_chunk(id(load), &chunk, progress),
            Request::LoadCommit(load) => return self.step_commit(id(load), progress, body),
            Request::LoadAbort(load) => self.abort(id(load)),
            Request::Write(write) => {
                let going = if let RequestState::Write(going) = progress { Some(going) } else { None };
                return self.write(client, &write, going, body);
            }
            Request::Value(piece) => return self.take_piece(client, &piece),
            Request::Get(keys) => return self.get(&keys, progress, body),
        }
        Ok(Dispatched::Now)
    }

    /// Continues a request; returns it if it is not finished.
    pub(crate) fn resume(&mut self, parked: Parked) -> Option<Parked> {
        let Parked { client, request, progress, until, held } = parked;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let answer = self.answer(client, &request, progress, &mut body);
        if let (WaitFor::Room, Some(table)) = (until, self.state.table_mut())
            && !matches!(answer, Ok(Dispatched::Waits(_, WaitFor::Room)))
        {
            // It needs none any more.
            table.give_up_search();
        }
        let mut reply = Vec::new();
        let parked = match answer {
            Ok(Dispatched::Waits(progress, until)) => Some(Parked { client, request, progress, until, held }),
            Ok(Dispatched::Later) => None,
            Ok(Dispatched::Now) => {
                encode_reply(Ok(&body), &mut reply);
                None
            }
            Err(refusal) => {
                encode_reply(Err(&refusal), &mut reply);
                None
            }
        };
        if !reply.is_empty() {
            let room = self.room.take();
            self.parked.push_reply(client, reply, room);
        }
        self.keep_body(body);
        parked
    }

    /// Keeps the reply's buffer for the next, unless it is long: every table has one.
    fn keep_body(&mut self, mut body: Vec<u8>) {
        body.clear();
        body.shrink_to(SHORT_BODY);
        self.body = body;
    }

    pub(crate) fn no_table() -> Refusal {
        let why = "the table holds nothing yet: load a data set or make it an empty one first, for example by \
                   `fpcache-cli load ipv4` or `fpcache-cli create`";
        Refusal::new(ErrorCode::NoTable, why)
    }

    /// Does a little of what can be done between requests; the log has something to do at the
    /// instant `due`, if ever.
    fn work_between(&mut self, due: Option<Instant>) -> Work {
        if self.parked.awaits_durable() {
            self.charge(cost::STEP);
            return self.step_durable();
        }
        let is_giving_up = self.step_giving_up();
        self.charge(i64::from(is_giving_up) * cost::STEP);
        let Self { state: NodeState::Serving(table), pending, quiet, .. } = self else {
            return if is_giving_up { Work::More } else { Work::Nothing };
        };
        let is_quiet = pending.is_empty();
        let worked = table.work(is_quiet);
        let is_busy = matches!(worked, Ok(true));
        quiet.note_turn(is_quiet, (is_busy || !is_quiet) && table.has_segments_to_replace());
        match &worked {
            // The writes that need the room are told.
            Ok(_) | Err(TableError::NoRoom { .. }) => {}
            Err(error) => {
                let place = if let TableError::Damaged(damaged) = error { damaged.offset } else { 0 };
                let what = format_args!("work between requests failed: {error}");
                self.operator_log.work.tell(self.clock.now(), place, what);
            }
        }
        for damaged in table.skipped_damage.drain(..) {
            let what = format_args!("a segment is left as it is: {damaged}");
            self.operator_log.work.tell(self.clock.now(), damaged.offset, what);
        }
        // In its turn also while the table has work: under writes that never cease it always has.
        let snapshot = self.work_on_snapshot(due);
        self.charge(i64::from(is_busy) * cost::STEP + i64::from(snapshot == Work::More) * cost::STEP);
        if is_busy || is_giving_up { Work::More } else { self.until_lease_ends(snapshot) }
    }

    /// What is to be done, or earlier, when memory can be freed that waits for a lease.
    fn until_lease_ends(&mut self, work: Work) -> Work {
        let NodeState::Serving(table) = &mut self.state else { return work };
        match (table.room.reclaims_at(), work) {
            (Some(end), Work::Nothing) => Work::At(end),
            (Some(end), Work::At(at)) => Work::At(at.min(end)),
            _ => work,
        }
    }
}

impl<K: BuildKeys, M: NodeMemory> Service for MemoryNode<K, M> {
    fn has_room(&self, _: ClientId, request_bytes: usize) -> bool {
        self.transit.has_room_for_request(request_bytes)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.requests += 1;
        let held = self.transit.clone();
        let park = |progress, until| {
            let held = held.keep_request(request.len());
            Parked { client, request: request.to_vec(), progress, until, held }
        };
        // A short one is served at once, as one of each ring is in every round.
        let owed = if self.is_spent() { Some(self.allowance) } else { None };
        if owed.is_some() {
            if request.len() > SHORT_REQUEST {
                self.parked.park(park(RequestState::New, WaitFor::Turn), false);
                return Handled::Later;
            }
            self.allowance = SHORT_ALLOWANCE;
        }
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let handled = match self.answer(client, request, RequestState::New, &mut body) {
            Ok(Dispatched::Later) => Handled::Later,
            Ok(Dispatched::Waits(progress, until)) => {
                self.parked.park(park(progress, until), false);
                Handled::Later
            }
            Ok(Dispatched::Now) => {
                encode_reply(Ok(&body), reply);
                Handled::Now
            }
            Err(refusal) => {
                encode_reply(Err(&refusal), reply);
                Handled::Now
            }
        };
        if let Some(owed) = owed {
            // But for what it took beyond what it may: a segment that was replaced. Short requests,
            // however many, leave the others something of the next turn.
            self.allowance = (owed + self.allowance.min(0)).max(owed.min(-QUANTUM / 2));
        }
        self.keep_body(body);
        handled
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.next_written(reply)
    }

    fn work(&mut self) -> Work {
        self.renew_allowance();
        let may_work = !self.is_spent();
        let due = self.wal.as_mut().and_then(Wal::work);
        // A failure here repeats, and is reported, when a request needs it.
        let _ = self.publish_synced();
        self.go_on();
        if let Some((last, wal)) = self.pending.last().zip(self.wal.as_mut()) {
            wal.staging.want_sync(last);
        }
        // What is done between requests has its turn however many are parked.
        let work = if may_work { self.work_between(due) } else { Work::More };
        match work {
            _ if self.has_more_to_publish() => Work::More,
            _ if self.parked.is_empty() => work,
            Work::More => Work::More,
            _ if self.can_go_on() => Work::More,
            // The disk wakes the loop where it has a thread of its own.
            Work::Nothing => Work::At(self.clock.now() + PAUSE),
            Work::At(at) => Work::At(at.min(self.clock.now() + PAUSE)),
        }
    }

    fn waker(&self) -> Option<Waker> {
        self.waker.clone()
    }

    fn connected(&mut self, _: ClientId, _: &[u8]) {
        self.clients += 1;
    }

    fn disconnected(&mut self, client: ClientId) {
        self.clients = self.clients.saturating_sub(1);
        self.abort_of(client);
        self.drop_parked_of(client);
        self.drop_uploads_of(client);
    }
}
