//! Requests to a memory node, put straight into its hands.

use fpcache::key_space::U64Keys;
use fpcache::layout::RecordToken;
use fpcache::message::{
    ErrorCode, Refusal, Request, WriteBatch, WriteKind, WriteOperation, WriteReply, WriteStatus,
    decode_reply, encode_reply,
};
use fpcache_fabric::{ClientId, Handled, Service};

/// The value of a key after its `n`-th write.
pub fn value(key: u64, n: u64, bytes: usize) -> Vec<u8> {
    let word = (key ^ n.wrapping_mul(0x5851_f42d_4c95_7f2d)).to_le_bytes();
    word.iter().copied().cycle().take(bytes).collect()
}

/// A client that writes, one operation at a time.
#[derive(Debug)]
pub struct Writer {
    client: u64,
    requests: u64,
    value_bytes: u32,
}

impl Writer {
    pub fn new(client: u64, value_bytes: u32) -> Self {
        Self { client, requests: 0, value_bytes }
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
        self.send(node, kind, key, expected, value, false)
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
        self.send(node, kind, key, expected, value, true)
    }

    fn send(
        &self,
        node: &mut impl Service,
        kind: WriteKind,
        key: u64,
        expected: RecordToken,
        value: &[u8],
        sent_before: bool,
    ) -> Result<WriteReply, Refusal> {
        let mut batch = WriteBatch::new(self.value_bytes);
        let value = if kind == WriteKind::Delete { &[] } else { value };
        batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
        let reply = call(node, &batch.request(self.client, self.requests, sent_before));
        Ok(WriteReply::decode(decode_reply(&reply)?).expect("a whole reply"))
    }

    /// What the memory node's processor finds.
    pub fn get(&self, node: &mut impl Service, key: u64) -> Option<(Vec<u8>, RecordToken)> {
        let reply = call(node, &Request::Get(&key.to_le_bytes()));
        let body = decode_reply(&reply).expect("a reply");
        let (head, value) = body.split_at(16);
        let token = u64::from_le_bytes(head[8..].try_into().expect("eight bytes"));
        (head[0] == 0).then(|| (value.to_vec(), RecordToken::from_bits(token)))
    }
}

/// A batch of writes, whose values have eight bytes.
pub fn batch(writes: &[(WriteKind, u64, [u8; 8])]) -> WriteBatch {
    let mut batch = WriteBatch::new(8);
    for (kind, key, value) in writes {
        let value: &[u8] = if *kind == WriteKind::Delete { &[] } else { value };
        let expected = RecordToken::default();
        batch.push::<U64Keys>(&WriteOperation { kind: *kind, key: *key, hint: None, expected, value });
    }
    batch
}

/// Sends a request and does not wait for what comes later.
pub fn post(node: &mut impl Service, client: ClientId, request: &Request<'_>) -> (Handled, Vec<u8>) {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    request.encode::<U64Keys>(&mut bytes);
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
pub fn call(node: &mut impl Service, request: &Request<'_>) -> Vec<u8> {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    request.encode::<U64Keys>(&mut bytes);
    if node.handle(ClientId(1), &bytes, &mut reply) == Handled::Later {
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
