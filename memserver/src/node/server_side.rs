//! Lookups by the memory node, for clients that cannot do them one-sided: key by key, while the
//! table's allowance lasts.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::Stored;
use fpcache::message::keys::take_key;
use fpcache::message::{AskedKeys, ErrorCode, Refusal};
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{NodeMemory, SHORT_BODY};

use crate::node::parked::{RequestState, WaitFor, cost};
use crate::node::serving::Dispatched;
use crate::node::{MemoryNode, NodeState};
use crate::request_memory::{MOST_REPLY, TransitGuard};
use crate::table::error::TableError;

/// Bytes of a reply to a key, without its value.
const LEAST: usize = 16;
/// Bytes by which the last record may exceed the longest reply.
const LONGEST_RECORD: usize = 1 << 16;

/// How far a lookup is.
struct LookupPosition {
    /// Bytes of the keys that are done.
    at: usize,
    /// Keys that are left.
    left: u32,
    room: Option<TransitGuard>,
    /// `at`, `left` and the bytes of the reply, as they were when that was short.
    short: (usize, u32, usize),
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Looks keys up. A reply that is short, or that is there without a wait, takes no room from
    /// others; else it goes on when it has some.
    pub(crate) fn get(
        &mut self,
        keys: &AskedKeys<'_>,
        progress: RequestState,
        body: &mut Vec<u8>,
    ) -> Result<Dispatched, Refusal> {
        let too_long =
            || Refusal::new(ErrorCode::Invalid, "the result would exceed the maximum length of a reply");
        let is_new = !matches!(progress, RequestState::Get { .. });
        let is_wish = keys.count > 0 || !self.state.superblock().breaks(Sabotage::WishOfNoKey);
        if is_new
            && is_wish
            && let NodeState::Serving(table) = &mut self.state
        {
            // A client that asks here has a directory too old for the change log. One that scans
            // asks for no key, and for this alone.
            table.want_checkpoint();
        }
        let mut place = match progress {
            RequestState::Get { at, left, body: before, room } => {
                *body = before;
                LookupPosition { at, left, room, short: (at, left, body.len()) }
            }
            _ if keys.count as usize > MOST_REPLY / LEAST => return Err(too_long()),
            _ => LookupPosition { at: 0, left: keys.count, room: None, short: (0, keys.count, 0) },
        };
        while place.left > 0 {
            let needs_room = body.len() > SHORT_BODY && (self.is_spent() || !is_new);
            if needs_room && place.room.is_none() && !self.find_room(&mut place, body) {
                return Ok(place.waits(body, WaitFor::ReplyRoom));
            }
            if self.is_spent() {
                return Ok(place.waits(body, WaitFor::Turn));
            }
            let before = body.len();
            if before <= SHORT_BODY {
                place.short = (place.at, place.left, before);
            }
            let rest = keys.bytes.get(place.at..).and_then(|bytes| take_key::<K>(bytes));
            let Some((key, after)) = rest else {
                return Err(Refusal::new(
                    ErrorCode::Invalid,
                    "the request has fewer keys than its count says",
                ));
            };
            self.get_one(key.borrow(), body)?;
            if body.len() > MOST_REPLY {
                return Err(too_long());
            }
            (place.at, place.left) = (keys.bytes.len() - after.len(), place.left - 1);
            self.charge(cost::LOOKED_UP + cost::bytes(body.len() - before));
        }
        if place.at < keys.bytes.len() {
            return Err(Refusal::new(ErrorCode::Invalid, "the request has more keys than its count says"));
        }
        self.room = place.room;
        Ok(Dispatched::Now)
    }

    /// Finds room for a long reply; if there is none, what is more than short is given up and
    /// looked up again later.
    fn find_room(&self, place: &mut LookupPosition, body: &mut Vec<u8>) -> bool {
        place.room = self.transit.keep_reply(MOST_REPLY);
        let (capacity, kept) = match place.room {
            Some(_) => (MOST_REPLY + LONGEST_RECORD, body.len()),
            None => {
                (place.at, place.left) = (place.short.0, place.short.1);
                (place.short.2, place.short.2)
            }
        };
        let mut exact = Vec::with_capacity(capacity);
        exact.extend_from_slice(&body[..kept]);
        *body = exact;
        place.room.is_some()
    }

    fn get_one(&mut self, key: &K::Key, body: &mut Vec<u8>) -> Result<(), Refusal> {
        const FOUND: u8 = 0;
        const EXTERNAL: u8 = 1;
        const ABSENT: u8 = 2;
        const DAMAGED: u8 = 3;
        self.check_owned(key)?;
        let NodeState::Serving(table) = &mut self.state else {
            return Err(Self::no_table());
        };
        let found = match table.segments.get(key) {
            Ok(found) => found,
            Err(TableError::Damaged(damaged)) => {
                table.counters.damaged_lookups += 1;
                self.tell_refused(&damaged);
                body.extend([DAMAGED]);
                body.extend([0; LEAST - 1]);
                return Ok(());
            }
            Err(error) => return Err(Refusal::new(ErrorCode::Internal, error.to_string())),
        };
        let (status, value_bytes, token) = match &found {
            None => (ABSENT, 0, 0),
            // A record that a reply has no room for cannot be: its slot is shorter than that.
            Some((token, Stored::Here(value))) => (FOUND, value.len() as u32, token.to_bits()),
            Some((token, Stored::External(extent))) => (EXTERNAL, extent.bytes, token.to_bits()),
        };
        body.extend([status, 0, 0, 0]);
        body.extend(value_bytes.to_le_bytes());
        body.extend(token.to_le_bytes());
        match found {
            Some((_, Stored::Here(value))) => body.extend_from_slice(value),
            Some((_, Stored::External(extent))) => {
                body.extend(extent.checksum.to_le_bytes());
                body.extend(extent.address.to_bits().to_le_bytes());
            }
            None => {}
        }
        Ok(())
    }
}

impl LookupPosition {
    /// Parks the lookup.
    fn waits(self, body: &mut Vec<u8>, until: WaitFor) -> Dispatched {
        let Self { at, left, room, .. } = self;
        Dispatched::Waits(RequestState::Get { at, left, body: std::mem::take(body), room }, until)
    }
}
