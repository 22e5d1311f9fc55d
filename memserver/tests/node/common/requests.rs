//! Requests to a memory node, put straight into its hands.

use std::borrow::Borrow;
use std::marker::PhantomData;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordToken, SegmentAddress, ValueExtent};
use fpcache::message::keys::put_key;
use fpcache::message::{
    AskedKeys, ErrorCode, Refusal, Request, Sent, WriteBatch, WriteKind, WriteOperation, WriteReply,
    WriteStatus, decode_reply, encode_reply,
};
use fpcache_fabric::{ClientId, Handled, NodeMemory, Service};
use fpcache_memserver::MemoryNode;

use super::keys::{Integers, KeyRef, TestKeys};

/// The value of the key of this number after its `n`-th write, of at most `most` bytes.
pub fn value<T: TestKeys>(key: u64, n: u64, most: usize) -> Vec<u8> {
    let word = (key ^ n.wrapping_mul(0x5851_f42d_4c95_7f2d)).to_le_bytes();
    word.iter().copied().cycle().take(T::value_len(key, n, most)).collect()
}

/// A memory node whose region can be looked into.
pub trait Readable: Service {
    fn read(&self, offset: u64, len: usize) -> Vec<u8>;
}

impl<K: BuildKeys, M: NodeMemory> Readable for MemoryNode<K, M> {
    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region().read_bytes(offset, &mut bytes).expect("inside the region");
        bytes
    }
}

/// A client that writes, one operation at a time. Keys go by their numbers.
#[derive(Debug)]
pub struct Writer<T: TestKeys = Integers> {
    client: u64,
    requests: u64,
    kind: PhantomData<T>,
}

impl<T: TestKeys> Writer<T> {
    pub fn new(client: u64) -> Self {
        Self { client, requests: 0, kind: PhantomData }
    }

    /// Sends one operation and returns the reply to it.
    pub fn one(
        &mut self,
        node: &mut impl Service,
        kind: WriteKind,
        key: u64,
        expected: RecordToken,
        value: &[u8],
    ) -> WriteReply {
        self.try_one(node, kind, key, expected, value).expect("a reply")
    }

    /// The same for a key that may have no number.
    pub fn one_of(
        &mut self,
        node: &mut impl Service,
        kind: WriteKind,
        key: &KeyRef<T>,
        expected: RecordToken,
        value: &[u8],
    ) -> WriteReply {
        self.requests += 1;
        self.send(node, kind, key, expected, value, false).expect("a reply")
    }

    /// Sends one operation to a memory node that may refuse it.
    pub fn try_one(
        &mut self,
        node: &mut impl Service,
        kind: WriteKind,
        key: u64,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<WriteReply, Refusal> {
        self.requests += 1;
        self.send(node, kind, T::key(key).borrow(), expected, value, false)
    }

    /// Sends the last request again.
    pub fn again(
        &mut self,
        node: &mut impl Service,
        kind: WriteKind,
        key: u64,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<WriteReply, Refusal> {
        self.send(node, kind, T::key(key).borrow(), expected, value, true)
    }

    fn send(
        &self,
        node: &mut impl Service,
        kind: WriteKind,
        key: &KeyRef<T>,
        expected: RecordToken,
        value: &[u8],
        sent_before: bool,
    ) -> Result<WriteReply, Refusal> {
        let mut batch = WriteBatch::default();
        batch.push::<T::Space>(&WriteOperation { kind, key, hint: None, expected, value: Sent::Here(value) });
        let reply = call::<T>(node, &batch.request(self.client, self.requests, sent_before));
        Ok(WriteReply::decode(decode_reply(&reply)?).expect("a whole reply"))
    }

    /// What the memory node's processor finds.
    pub fn get(&self, node: &mut impl Readable, key: u64) -> Option<(Vec<u8>, RecordToken)> {
        self.get_of(node, T::key(key).borrow())
    }

    /// Whether the memory node's processor finds that a key's record is damaged.
    pub fn finds_damage(&self, node: &mut impl Readable, key: u64) -> bool {
        let (head, _) = self.asked(node, T::key(key).borrow());
        head[0] == 3
    }

    fn asked(&self, node: &mut impl Readable, key: &KeyRef<T>) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = Vec::new();
        put_key::<T::Space>(key, &mut bytes);
        let reply = call::<T>(node, &Request::Get(AskedKeys { count: 1, bytes: &bytes }));
        let (head, value) = decode_reply(&reply).expect("a reply").split_at(16);
        (head.to_vec(), value.to_vec())
    }

    /// The same for a key that may have no number.
    pub fn get_of(&self, node: &mut impl Readable, key: &KeyRef<T>) -> Option<(Vec<u8>, RecordToken)> {
        let (head, value) = self.asked(node, key);
        let word = |at: &[u8]| u64::from_le_bytes(*at.first_chunk().expect("eight bytes"));
        let token = RecordToken::from_bits(word(&head[8..]));
        match head[0] {
            0 => Some((value, token)),
            1 => {
                let address = SegmentAddress::from_bits(word(&value[8..]));
                let bytes = (word(&head) >> 32) as u32;
                let extent = ValueExtent { address, bytes, checksum: word(&value) };
                let value = node.read(address.offset(), bytes as usize);
                assert!(extent.is_proof_of(&value), "the value that lies outside is not there");
                Some((value, token))
            }
            2 => None,
            other => panic!("it is not there, and not absent: {other}"),
        }
    }
}

/// A batch of writes.
pub fn batch<T: TestKeys>(writes: &[(WriteKind, u64, &[u8])]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for (kind, key, value) in writes {
        let expected = RecordToken::default();
        let key = T::key(*key);
        batch.push::<T::Space>(&WriteOperation {
            kind: *kind,
            key,
            hint: None,
            expected,
            value: Sent::Here(value),
        });
    }
    batch
}

/// Sends a request and does not wait for what comes later.
pub fn post<T: TestKeys>(
    node: &mut impl Service,
    client: ClientId,
    request: &Request<'_>,
) -> (Handled, Vec<u8>) {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    request.encode::<T::Space>(0, &mut bytes);
    let handled = node.handle(client, &bytes, &mut reply);
    (handled, reply)
}

/// How the operations of a reply ended.
pub fn statuses(reply: &[u8]) -> Result<Vec<WriteStatus>, Refusal> {
    let replies = decode_reply(reply)?.chunks_exact(WriteReply::BYTES);
    Ok(replies.map(|reply| WriteReply::decode(reply).expect("a whole reply").status).collect())
}

/// Rounds of work after which a memory node is taken not to reply any more.
const PATIENCE: usize = 100;

/// Has a request served, now or later.
pub fn call<T: TestKeys>(node: &mut impl Service, request: &Request<'_>) -> Vec<u8> {
    call_from::<T>(node, ClientId(1), request)
}

/// The same for a connection of this number.
pub fn call_from<T: TestKeys>(node: &mut impl Service, client: ClientId, request: &Request<'_>) -> Vec<u8> {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    request.encode::<T::Space>(0, &mut bytes);
    if node.handle(client, &bytes, &mut reply) == Handled::Later {
        for _ in 0..PATIENCE {
            if node.next_reply(&mut reply).is_some() {
                return reply;
            }
            node.work();
        }
        encode_reply(Err(&Refusal::new(ErrorCode::Internal, "no reply")), &mut reply);
    }
    reply
}
