//! Clients that repeat their requests, in the lives of a table: what was done is not done again,
//! and the reply is what it was.

use std::borrow::Borrow;

use crate::common::keys::TestKeys;
use crate::common::requests::{Writer, call_from, statuses, value};
use crate::common::world::Node;
use fpcache::layout::RecordToken;
use fpcache::message::{ErrorCode, Sent, WriteBatch, WriteKind, WriteOperation, WriteStatus};
use fpcache_fabric::ClientId;

use super::{Random, Value};

/// A client with a key that no other writes.
pub struct Asking {
    client: u64,
    pub key: u64,
    requests: u64,
    last: Option<Asked>,
    /// Whether a memory node that may not remember its last request has begun since.
    pub may_be_forgotten: bool,
}

/// A request that was made at least once.
struct Asked {
    kind: WriteKind,
    bytes: Vec<u8>,
    expected: RecordToken,
    /// The values that the key may have had before.
    before: Vec<Value>,
    /// How it ended, if that is known for good.
    status: Option<WriteStatus>,
}

impl Asking {
    pub fn new(number: u64) -> Self {
        let (client, key) = ((1 << 41) + number, 2000 + 50 * number);
        Self { client, key, requests: 0, last: None, may_be_forgotten: false }
    }

    /// Makes a new request, or repeats the last one. `may` has the values that the key may have,
    /// and has those afterwards.
    pub fn ask<T: TestKeys>(
        &mut self,
        node: &mut Node<T>,
        random: &mut Random,
        may: &mut Vec<Value>,
    ) -> String {
        let is_again = self.last.is_some() && random.below(2) == 0;
        if !is_again {
            self.begin::<T>(node, random, may);
        }
        let Some(asked) = &mut self.last else { return String::new() };
        let mut batch = WriteBatch::default();
        let (key, value) = (T::key(self.key), Sent::Here(&asked.bytes));
        let Asked { kind, expected, .. } = *asked;
        batch.push::<T::Space>(&WriteOperation { kind, key: key.borrow(), hint: None, expected, value });
        let request = batch.request(self.client, self.requests, is_again);
        let reply = statuses(&call_from::<T>(node, ClientId(self.client), &request));
        let reply = reply.map(|statuses| statuses[0]);
        let new = (kind != WriteKind::Delete).then(|| asked.bytes.clone());
        let told = format!("{kind:?} {} by {}, request {}: {reply:?}", self.key, self.client, self.requests);
        if let Some(known) = asked.status {
            let is_open = match &reply {
                Err(refusal) if refusal.code == ErrorCode::Forgotten => self.may_be_forgotten,
                // The log cannot be written, and what the process before did may not be on the
                // disk.
                Err(refusal) => refusal.code == ErrorCode::NotDurable,
                Ok(_) => false,
            };
            assert!(is_open || reply == Ok(known), "{told}, but it was {known:?}");
            return told;
        }
        match reply {
            Ok(WriteStatus::Done) => *may = vec![new],
            // It was not done before, either.
            Ok(WriteStatus::Exists) => may.retain(|value| value.is_some() && *value != new),
            Ok(WriteStatus::Absent) => {
                assert!(asked.before.contains(&None), "{told}: it was there before");
                may.retain(Option::is_none);
            }
            Ok(WriteStatus::Differs) => may.retain(|value| *value != new),
            Ok(WriteStatus::NotDurable | WriteStatus::NoRoom) => {}
            Err(ref refusal) if refusal.code == ErrorCode::Forgotten => {
                assert!(self.may_be_forgotten, "{told}");
            }
            _ => may.push(new),
        }
        assert!(!may.is_empty(), "{told}: that cannot be");
        const FINAL: [WriteStatus; 4] =
            [WriteStatus::Done, WriteStatus::Exists, WriteStatus::Absent, WriteStatus::Differs];
        asked.status = reply.ok().filter(|status| FINAL.contains(status));
        told
    }

    fn begin<T: TestKeys>(&mut self, node: &mut Node<T>, random: &mut Random, may: &[Value]) {
        self.requests += 1;
        self.may_be_forgotten = false;
        let kinds = [WriteKind::Insert, WriteKind::Put, WriteKind::Delete, WriteKind::CompareAndSet];
        let kind = kinds[random.below(4) as usize];
        let bytes = match kind {
            WriteKind::Delete => Vec::new(),
            _ => value::<T>(self.key, self.requests, 8),
        };
        let found = Writer::<T>::new(1 << 40).get(node, self.key);
        let expected = found.map_or_else(RecordToken::default, |(_, token)| token);
        self.last = Some(Asked { kind, bytes, expected, before: may.to_vec(), status: None });
    }
}
