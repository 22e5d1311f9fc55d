//! A memory node of a few records, which does with requests what a script says.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fpcache::message::keys::take_key;
use fpcache::message::{ErrorCode, Refusal, Request, Write, encode_reply};
use fpcache_client::{RecordToken, WriteKind, WriteReply, WriteStatus};
use fpcache_fabric::{ClientId, Handled, Service};
use fpcache_memserver::MemoryNode;

use crate::common::{TestKeys, wait_until};

/// What the memory node does with a write.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Makes it, and answers once this is set.
    Late(Arc<AtomicBool>),
    /// Makes it and ends without an answer.
    Die,
    Refuse(ErrorCode),
    /// Says this of every operation.
    Say(WriteStatus),
    Garble,
}

/// A write request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) client: u64,
    pub(super) request: u64,
    pub(super) sent_before: bool,
    pub(super) kinds: Vec<WriteKind>,
}

/// What outlives a memory node's process.
pub(super) struct State<K: TestKeys> {
    pub(super) script: VecDeque<Act>,
    pub(super) came: Vec<Came>,
    pub(super) records: BTreeMap<K::Owned, (u32, Vec<u8>)>,
    pub(super) version: u32,
    pub(super) replies: HashMap<u64, (u64, Vec<u8>)>,
}

impl<K: TestKeys> Default for State<K> {
    fn default() -> Self {
        let (script, came, records) = (VecDeque::new(), Vec::new(), BTreeMap::new());
        Self { script, came, records, version: 0, replies: HashMap::new() }
    }
}

impl<K: TestKeys> State<K> {
    pub(super) fn token(&self, key: &K::Key) -> Option<RecordToken> {
        let (version, value) = self.records.get(key)?;
        Some(RecordToken::of(*version, &K::shape(Some(8)).identity::<K>(key, value)))
    }

    /// Makes a request's changes, or repeats what was said of them.
    pub(super) fn write(&mut self, write: &Write<'_>) -> Result<Vec<u8>, Refusal> {
        match self.replies.get(&write.client) {
            Some((request, reply)) if *request == write.request => return Ok(reply.clone()),
            Some((request, _)) if *request > write.request => {
                return Err(Refusal::new(ErrorCode::Invalid, "an old request"));
            }
            None if write.sent_before => return Err(Refusal::new(ErrorCode::Forgotten, "who are you?")),
            _ => {}
        }
        let mut reply = Vec::new();
        for operation in write.operations::<K>() {
            let o = operation.unwrap();
            let key: &K::Key = o.key.borrow();
            let (there, differs) = (self.records.contains_key(key), self.token(key) != Some(o.expected));
            let status = match o.kind {
                WriteKind::Insert if there => WriteStatus::Exists,
                WriteKind::Update | WriteKind::Delete | WriteKind::CompareAndSet if !there => {
                    WriteStatus::Absent
                }
                WriteKind::CompareAndSet if differs => WriteStatus::Differs,
                _ => WriteStatus::Done,
            };
            if status == WriteStatus::Done {
                self.version += 1;
                match o.kind {
                    WriteKind::Delete => _ = self.records.remove(key),
                    _ => _ = self.records.insert(key.to_owned(), (self.version, o.value.bytes().to_vec())),
                }
            }
            reply.extend(WriteReply { status, token: self.token(key) }.encode());
        }
        self.replies.insert(write.client, (write.request, reply.clone()));
        Ok(reply)
    }
}

/// Loads as the real one does; changes and lookups are the test's.
pub(super) struct Fake<K: TestKeys> {
    pub(super) node: MemoryNode<K>,
    pub(super) state: Arc<Mutex<State<K>>>,
}

impl<K: TestKeys> Service for Fake<K> {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        match Request::decode::<K>(0, request) {
            Ok(Request::Write(write)) => {
                let mut state = self.state.lock().unwrap();
                let kinds = write.operations::<K>().map(|o| o.unwrap().kind).collect();
                let Write { client, request, sent_before, count, .. } = write;
                state.came.push(Came { client, request, sent_before, kinds });
                let act = state.script.pop_front();
                let said = match &act {
                    Some(Act::Refuse(code)) => Err(Refusal::new(*code, "as the test has it")),
                    Some(Act::Say(status)) => {
                        Ok(WriteReply { status: *status, token: None }.encode().repeat(count as usize))
                    }
                    Some(Act::Garble) => Ok(vec![99; 16]),
                    _ => state.write(&write),
                };
                drop(state);
                if let Some(Act::Late(may_answer)) = &act {
                    wait_until(|| may_answer.load(Ordering::Relaxed));
                }
                encode_reply(said.as_deref(), reply);
                assert!(!matches!(act, Some(Act::Die)), "as the test has it");
                Handled::Now
            }
            Ok(Request::Get(keys)) => {
                let state = self.state.lock().unwrap();
                let (mut body, mut rest) = (Vec::new(), keys.bytes);
                for _ in 0..keys.count {
                    let (key, after) = take_key::<K>(rest).unwrap();
                    rest = after;
                    let record = state.records.get(key.borrow());
                    let value = record.map_or(&[][..], |(_, value)| value);
                    body.extend([if record.is_some() { 0 } else { 2 }, 0, 0, 0]);
                    body.extend((value.len() as u32).to_le_bytes());
                    body.extend(state.token(key.borrow()).map_or(0, RecordToken::to_bits).to_le_bytes());
                    body.extend(value);
                }
                encode_reply(Ok(&body), reply);
                Handled::Now
            }
            _ => self.node.handle(client, request, reply),
        }
    }
}
