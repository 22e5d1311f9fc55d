//! Server-side lookups, by the memory node's processor: the last resort.

use std::borrow::Borrow;
use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordToken, SegmentAddress, ValueExtent};
use fpcache::message::keys::{key_bytes, put_key, take_key};
use fpcache::message::{AskedKeys, MessageError, Request, decode_reply};
use fpcache::read::{Outcome, ReadError, fetch_value};
use fpcache_fabric::{Connection, Deadline, FabricError};

use super::change_checks::check_key;
use super::recover::Retry;
use super::sending::send_for;
use super::{Connector, Core, HeldContext};
use crate::error::ClientError;

/// Bytes of a reply beside the values, per key and in all.
const REPLY_HEADS: (usize, usize) = (16, 8);
/// What a reply says of a key: that its value follows, or where that lies, or that there is no
/// value, or that its record is damaged.
const FOUND: u8 = 0;
const EXTERNAL: u8 = 1;
const ABSENT: u8 = 2;
const DAMAGED: u8 = 3;

/// The share of a call's time that is waited for the memory node's first answer, before it is asked
/// again.
const HEARD_WITHIN: u32 = 8;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Looks one key up.
    #[cold]
    pub(super) fn look_up_server_side<R>(
        &self,
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        retry: &mut Retry,
        mut take: impl FnMut(&Outcome, Option<&[u8]>) -> R,
    ) -> Result<R, ClientError> {
        let answer = self.ask_one(held, key, retry)?;
        let (version, value, reads) = self.whole(held, key, answer, retry)?;
        let outcome = Outcome::server_side(version, value.len() as u64, reads);
        Ok(take(&outcome, version.map(|_| &value[..])))
    }

    /// Whether one key is there.
    #[cold]
    pub(super) fn contains_server_side(
        &self,
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        retry: &mut Retry,
    ) -> Result<bool, ClientError> {
        Ok(self.ask_one(held, key, retry)?.version.is_some())
    }

    /// Tells the memory node that its newest directory is out of date here, by asking it for no key
    /// at all: it writes another one soon.
    #[cold]
    pub(super) fn ask_for_directory(&self, retry: &mut Retry) {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let connection = Arc::clone(&self.session().connection);
        Request::Get(AskedKeys { count: 0, bytes: &[] }).encode::<K>(connection.creation(), &mut request);
        // Whether it heard is seen by what the next attempt finds, also where its answer is late or
        // lost: then it is asked again.
        let soon = Deadline::after_on(&*self.clock, retry.within / HEARD_WITHIN);
        let _ = connection.call(&request, &mut reply, soon.earlier(retry.deadline(&*self.clock)));
    }

    /// Looks a group of keys up, and passes version and value of each to `take`, in their order,
    /// with the READs that it took.
    #[cold]
    pub(super) fn lookup_server_side<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        keys: impl Iterator<Item = &'k K::Key> + Clone,
        retry: &mut Retry,
        mut take: impl FnMut(Option<u32>, &[u8], u32),
    ) -> Result<(), ClientError> {
        let mut answers = Vec::new();
        self.ask_server(held, keys.clone(), retry, |answer| answers.push(answer))?;
        for (key, answer) in keys.zip(answers) {
            let (version, value, reads) = self.whole(held, key, answer, retry)?;
            take(version, &value, reads);
        }
        Ok(())
    }

    /// Asks for one key.
    fn ask_one(
        &self,
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        retry: &mut Retry,
    ) -> Result<NodeLookup, ClientError> {
        let mut answer = None;
        self.ask_server(held, std::iter::once(key), retry, |given| answer = Some(given))?;
        answer.ok_or_else(|| cut_short().into())
    }

    /// The version and the value of a key that was asked for, and the READs it took. One that is
    /// external is READ here; if it is not there any more, the record has changed, and is asked for
    /// again.
    fn whole(
        &self,
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        mut answer: NodeLookup,
        retry: &mut Retry,
    ) -> Result<(Option<u32>, Vec<u8>, u32), ClientError> {
        let mut attempts = 0;
        loop {
            let extent = match answer.value {
                Ok(value) => return Ok((answer.version, value, attempts)),
                Err(extent) => extent,
            };
            let deadline = retry.deadline(&*self.clock);
            let left = retry.left(&*self.clock);
            let value = self.with_table(held, left, |buffers, table| {
                let mut words = Vec::new();
                let value = fetch_value(&mut buffers.endpoint, table.view(), extent, &mut words)?;
                Ok(value.map(<[u8]>::to_vec))
            })?;
            attempts += 1;
            if let Some(value) = value {
                return Ok((answer.version, value, attempts));
            }
            if deadline.has_passed(self.clock.now()) {
                let last = ReadError::Contended { attempts };
                return Err(ClientError::Deadline { deadline: retry.within, last });
            }
            retry.pause(&*self.clock);
            answer = self.ask_one(held, key, retry)?;
        }
    }

    /// Requests keys, as many at once as fit request and reply, and passes on the answer for each.
    fn ask_server<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        keys: impl Iterator<Item = &'k K::Key>,
        retry: &mut Retry,
        mut take: impl FnMut(NodeLookup),
    ) -> Result<(), ClientError> {
        // The clock of the call begins here, if no attempt has failed before.
        retry.deadline(&*self.clock);
        let left = retry.left(&*self.clock);
        let (shape, creation) = self
            .with_table(held, left, |buffers, table| Ok((table.view().geometry().shape, buffers.creation)))?;
        let value_bytes = shape.value_bytes.unwrap_or(shape.room) as usize;
        let connection = Arc::clone(&self.session().connection);
        let room = Request::keys_bytes(connection.max_request());
        let fits_reply = connection.max_reply().saturating_sub(REPLY_HEADS.1) / (REPLY_HEADS.0 + value_bytes);
        // One that no table can hold has no place in a request either.
        let is_possible = |key: &K::Key| check_key::<K>(key).is_ok();
        let (mut keys, mut encoded, mut request, mut reply) =
            (keys.peekable(), Vec::new(), Vec::new(), Vec::new());
        while let Some(next) = keys.peek() {
            if !is_possible(next) {
                keys.next();
                take(NodeLookup { version: None, value: Ok(Vec::new()) });
                continue;
            }
            encoded.clear();
            let mut count = 0;
            while let Some(key) = keys.next_if(|key| {
                let has_room = encoded.len() + key_bytes::<K>(key) <= room && count < fits_reply;
                is_possible(key) && (count == 0 || has_room)
            }) {
                put_key::<K>(key, &mut encoded);
                count += 1;
            }
            // A request has far fewer keys than a u32 counts.
            let asked = AskedKeys { count: count as u32, bytes: &encoded };
            Request::Get(asked).encode::<K>(creation, &mut request);
            self.call_again(&connection, &request, &mut reply, retry)?;
            let mut answers = decode_reply(&reply)?;
            self.tally.server_side.add(count as u64);
            for asked in 0..count {
                if answers.first() == Some(&DAMAGED) {
                    return Err(damaged::<K>(&encoded, asked));
                }
                answers = take_answer(answers, &mut take).ok_or_else(cut_short)?;
            }
        }
        Ok(())
    }

    /// Sends a request that may be served more than once until it is answered, and waits twice as
    /// long each time: neither does one lost answer end the call, nor is a slow memory node asked
    /// again and again.
    fn call_again(
        &self,
        connection: &T::Connection,
        request: &[u8],
        reply: &mut Vec<u8>,
        retry: &mut Retry,
    ) -> Result<(), FabricError> {
        let deadline = retry.deadline(&*self.clock);
        let mut patience = retry.within / HEARD_WITHIN;
        loop {
            let part = || Deadline::after_on(&*self.clock, patience).earlier(deadline);
            match send_for(connection, request, reply, deadline, part) {
                Err(FabricError::DeadlinePassed { .. }) if !deadline.has_passed(self.clock.now()) => {
                    patience = patience.saturating_mul(2);
                }
                answered => return answered,
            }
        }
    }
}

/// What the memory node says of a key: the version of its record, and the value, or where it lies.
struct NodeLookup {
    version: Option<u32>,
    value: Result<Vec<u8>, ValueExtent>,
}

/// Takes the answer for one key: status, length, token, value or its place; returns what lies
/// after.
fn take_answer<'a>(bytes: &'a [u8], take: &mut impl FnMut(NodeLookup)) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_first_chunk::<{ REPLY_HEADS.0 }>()?;
    let bytes = u32::from_le_bytes(*head[4..].first_chunk()?);
    let version = RecordToken::from_bits(u64::from_le_bytes(*head.last_chunk()?)).version();
    let (version, value, after) = match head[0] {
        FOUND => {
            let (value, after) = rest.split_at_checked(bytes as usize)?;
            (Some(version), Ok(value.to_vec()), after)
        }
        EXTERNAL => {
            let (place, after) = rest.split_first_chunk::<{ ValueExtent::REFERENCE_BYTES }>()?;
            let [checksum, address] = *place.as_chunks::<8>().0 else { return None };
            let address = SegmentAddress::from_bits(u64::from_le_bytes(address));
            let checksum = u64::from_le_bytes(checksum);
            (Some(version), Err(ValueExtent { address, bytes, checksum }), after)
        }
        ABSENT => (None, Ok(Vec::new()), rest),
        _ => return None,
    };
    take(NodeLookup { version, value });
    Some(after)
}

/// The error for the key of this number among those that were asked for.
#[cold]
fn damaged<K: BuildKeys>(mut asked: &[u8], number: usize) -> ClientError {
    let mut keys = std::iter::from_fn(|| {
        let (key, rest) = take_key::<K>(asked)?;
        asked = rest;
        Some(K::show(key.borrow()))
    });
    ClientError::Damaged { key: keys.nth(number).unwrap_or_default(), node: None }
}

fn cut_short() -> MessageError {
    MessageError::Malformed("the reply to a lookup is cut short".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_in_the_drawn_order() {
        let token = RecordToken::of(7, b"key and value").to_bits().to_le_bytes();
        let head = |status: u8, bytes: u8| [&[status, 0, 0, 0, bytes, 0, 0, 0][..], &token].concat();
        let here = [head(FOUND, 3), b"abc".to_vec()].concat();
        let outside = [head(EXTERNAL, 200), vec![1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]].concat();
        let absent = [&[ABSENT][..], &[0; 15]].concat();
        let reply = [here, outside, absent, vec![9; 16]].concat();
        let (mut taken, mut rest) = (Vec::new(), &reply[..]);
        while let Some(after) = take_answer(rest, &mut |answer| taken.push((answer.version, answer.value))) {
            rest = after;
        }
        let extent = ValueExtent { address: SegmentAddress::from_bits(2), bytes: 200, checksum: 1 };
        let expected = [(Some(7), Ok(b"abc".to_vec())), (Some(7), Err(extent)), (None, Ok(Vec::new()))];
        assert_eq!((taken, rest), (expected.to_vec(), &[9; 16][..]), "an unknown status ends it");
        for cut in 0..reply.len() - 16 {
            let (mut count, mut rest) = (0, &reply[..cut]);
            while let Some(after) = take_answer(rest, &mut |_| count += 1) {
                rest = after;
            }
            assert!(count < 3, "cut at {cut}");
        }
    }

    #[test]
    fn the_error_for_a_damaged_record_names_its_key() {
        use fpcache::key_space::ByteKeys;

        let mut asked = Vec::new();
        [&b"a"[..], b"bc", b"d"].iter().for_each(|key| put_key::<ByteKeys>(key, &mut asked));
        let error = damaged::<ByteKeys>(&asked, 1).to_string();
        assert!(error.contains("bc") && error.contains("damaged"), "{error}");
    }

    #[cfg(feature = "embedded")]
    #[test]
    fn keys_that_no_table_can_hold_are_absent_and_nobody_is_asked_for_them() {
        use std::time::Duration;

        use fpcache::key_space::ByteKeys;

        use crate::client::{TableClient, Transport};
        use crate::one_node::with_direct;

        let client = TableClient::<ByteKeys>::embedded(4 << 20).expect("memory");
        client.put("b", b"12345678").expect("room");
        let long = vec![b'a'; 5000];
        let keys: [&[u8]; 4] = [&long, b"b", &long, b"c"];
        let Transport::One(direct) = &client.transport else { panic!("it is one memory node's") };
        with_direct!(direct, core => core.here(|held| {
            let mut retry = Retry::new(Duration::from_secs(10));
            let mut found = Vec::new();
            let find = |version: Option<u32>, value: &[u8], _| found.push(version.map(|_| value.to_vec()));
            core.lookup_server_side(held, keys.iter().copied(), &mut retry, find).expect("an answer");
            assert_eq!(found, [None, Some(b"12345678".to_vec()), None, None]);
            assert_eq!(core.counters().server_side, 2, "the keys that a table can hold");
            assert!(!core.contains_server_side(held, &long, &mut retry).expect("an answer"));
            assert_eq!(core.counters().server_side, 2);
        }));
    }
}
