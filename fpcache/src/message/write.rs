//! Requests that change records.
//!
//! ```text
//! 0 client u64 · 8 request u64 · 16 flags u32 (bit 0: sent before) · 20 operations u32 · 24 operations
//!
//! operation  0 kind u8 (1 insert, 2 put, 3 update, 4 delete, 5 compare-and-set) · 1 zero u8 · 2 slot hint u16 (0xffff: none)
//!            4 bytes of the value u32 (bit 31: it came ahead) · 8 key, see [`super::keys`] · then for compare-and-set the expected token u64
//!            then for all but delete the value
//! reply, per operation: 0 status u8 (0 done, 1 exists, 2 absent, 3 differs, 4 no room, 5 not durable, 6 damaged)
//!            1 cause u8 (of no room, 1: the file system has none; else 0) · 2–7 zero · 8 token of the record now u64 (0: no record)
//! ```

use std::borrow::Borrow;

use super::header::{self, MessageError, malformed};
use super::keys::{key_bytes, put_key, take_key};
use super::value::Sent;
use crate::cursor::{Cursor, CutShort};
use crate::key_space::KeySpace;
use crate::layout::RecordToken;

/// Most operations of one request.
pub const MAX_OPERATIONS: usize = 1024;

const HEADER_BYTES: usize = 24;
const OPERATION_BYTES: usize = 8;
const NO_HINT: u16 = u16::MAX;

/// The kind of an operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// Makes a record; fails if there is one.
    Insert,
    /// Makes a record or replaces its value.
    Put,
    /// Replaces a record's value; fails without a record.
    Update,
    /// Removes a record; fails without a record.
    Delete,
    /// Replaces a record's value if it is still what the token says.
    CompareAndSet,
}

impl WriteKind {
    const ALL: [Self; 5] = [Self::Insert, Self::Put, Self::Update, Self::Delete, Self::CompareAndSet];

    fn to_code(self) -> u8 {
        1 + Self::ALL.iter().position(|kind| *kind == self).unwrap_or(0) as u8
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code.wrapping_sub(1))).copied()
    }
}

/// One change of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOperation<'a, Key> {
    /// The kind of operation.
    pub kind: WriteKind,
    /// The record's key.
    pub key: Key,
    /// The slot where the client believes the record to lie.
    pub hint: Option<u16>,
    /// For compare-and-set: what the record must hold.
    pub expected: RecordToken,
    /// The value; empty for delete.
    pub value: Sent<'a>,
}

/// A request that changes records, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The client that asks: a number no other client has, the same over all of its connections.
    pub client: u64,
    /// Counts the client's requests, from 1.
    pub request: u64,
    /// Whether the client has sent this request before and does not know its outcome.
    pub sent_before: bool,
    /// Operations.
    pub count: u32,
    operations: &'a [u8],
}

impl<'a> Write<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.client.to_le_bytes());
        out.extend(self.request.to_le_bytes());
        out.extend(u32::from(self.sent_before).to_le_bytes());
        out.extend(self.count.to_le_bytes());
        out.extend_from_slice(self.operations);
    }

    pub(super) fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Cursor::new(body);
        let (client, request, flags, count) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
        if count as usize > MAX_OPERATIONS {
            return Err(malformed(format!("{count} operations in a request, at most {MAX_OPERATIONS}")));
        }
        Ok(Self { client, request, sent_before: flags & 1 == 1, count, operations: body.rest() })
    }

    /// The operations, in order. An item that does not decode is the last one; so is the error for
    /// bytes after them.
    pub fn operations<K: KeySpace>(
        &self,
    ) -> impl Iterator<Item = Result<WriteOperation<'a, K::View<'a>>, MessageError>> + use<'a, K> {
        operations_in::<K>(self.operations, self.count)
    }
}

/// `count` operations, one after another, and nothing else.
fn operations_in<'a, K: KeySpace>(
    operations: &'a [u8],
    mut left: u32,
) -> impl Iterator<Item = Result<WriteOperation<'a, K::View<'a>>, MessageError>> + use<'a, K> {
    let mut rest = Cursor::new(operations);
    std::iter::from_fn(move || {
        if left == 0 && !std::mem::take(&mut rest).rest().is_empty() {
            return Some(Err(malformed("it has bytes after its last operation")));
        }
        left = left.checked_sub(1)?;
        let operation = take_operation::<K>(&mut rest);
        if operation.is_err() {
            (left, rest) = (0, Cursor::default());
        }
        Some(operation.map_err(|CutShort| malformed("an operation is cut short or of an unknown kind")))
    })
}

fn take_operation<'a, K: KeySpace>(
    rest: &mut Cursor<'a>,
) -> Result<WriteOperation<'a, K::View<'a>>, CutShort> {
    let ([kind, _zero], hint, value_bytes) = (rest.array()?, rest.u16()?, rest.u32()?);
    let kind = WriteKind::from_code(kind).ok_or(CutShort)?;
    let key = rest.part(take_key::<K>)?;
    let expected = if kind == WriteKind::CompareAndSet { rest.u64()? } else { 0 };
    let (hint, expected) = (Some(hint).filter(|hint| *hint != NO_HINT), RecordToken::from_bits(expected));
    Ok(WriteOperation {
        kind,
        key,
        hint,
        expected,
        value: rest.part(|bytes| Sent::take(value_bytes, bytes))?,
    })
}

/// A request that changes records, being put together.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    count: u32,
    operations: Vec<u8>,
}

impl WriteBatch {
    /// Empties the batch.
    pub fn clear(&mut self) {
        self.count = 0;
        self.operations.clear();
    }

    /// Operations so far.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an operation.
    pub fn push<K: KeySpace>(&mut self, operation: &WriteOperation<'_, impl Borrow<K::Key>>) {
        let mut head = [0; OPERATION_BYTES];
        head[0] = operation.kind.to_code();
        head[2..4].copy_from_slice(&operation.hint.unwrap_or(NO_HINT).to_le_bytes());
        let value = if operation.kind == WriteKind::Delete { Sent::Here(&[]) } else { operation.value };
        head[4..].copy_from_slice(&value.length_field().to_le_bytes());
        self.operations.extend(head);
        put_key::<K>(operation.key.borrow(), &mut self.operations);
        if operation.kind == WriteKind::CompareAndSet {
            self.operations.extend(operation.expected.to_bits().to_le_bytes());
        }
        self.operations.extend_from_slice(value.bytes());
        self.count += 1;
    }

    /// The operations so far.
    pub fn operations<K: KeySpace>(&self) -> impl Iterator<Item = WriteOperation<'_, K::View<'_>>> {
        // Its own bytes decode.
        operations_in::<K>(&self.operations, self.count).map_while(Result::ok)
    }

    /// Whether another operation fits a request of `max_request` bytes.
    pub fn has_room<K: KeySpace>(&self, key: &K::Key, value: &Sent<'_>, max_request: usize) -> bool {
        let operation = OPERATION_BYTES + key_bytes::<K>(key) + 8 + value.bytes().len();
        self.len() < MAX_OPERATIONS
            && header::HEADER_BYTES + HEADER_BYTES + self.operations.len() + operation <= max_request
    }

    /// The request under these numbers.
    pub(super) fn write(&self, client: u64, request: u64, sent_before: bool) -> Write<'_> {
        let Self { count, ref operations } = *self;
        Write { client, request, sent_before, count, operations }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteStatus {
    /// Done.
    Done,
    /// Not done: there is a record already.
    Exists,
    /// Not done: there is no record.
    Absent,
    /// Not done: the record does not hold what was expected.
    Differs,
    /// Not done: the region has no room for the record.
    NoRoom,
    /// The same, because the file system that the region lies in has none: told as a cause of
    /// `NoRoom`, so that a client that does not know it takes it for that.
    DiskFull,
    /// Not done: it could not be written to the log.
    NotDurable,
    /// Not done: the key's record is damaged in memory, or one that may be the key's, or one of the
    /// segment that the write needs replaced.
    Damaged,
}

/// The cause of [`DiskFull`](WriteStatus::DiskFull), in the byte after the status.
const DISK_FULL: u8 = 1;

impl WriteStatus {
    /// Those that have a number.
    const ALL: [Self; 7] = [
        Self::Done,
        Self::Exists,
        Self::Absent,
        Self::Differs,
        Self::NoRoom,
        Self::NotDurable,
        Self::Damaged,
    ];

    /// Whether the memory node refused a change that it should have made: it lacks something, or
    /// has lost something. `false` for `Exists`, `Absent` and `Differs`, which say something about
    /// the record.
    pub fn is_refusal(self) -> bool {
        match self {
            Self::NoRoom | Self::DiskFull | Self::NotDurable | Self::Damaged => true,
            Self::Done | Self::Exists | Self::Absent | Self::Differs => false,
        }
    }
}

/// The memory node's reply to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReply {
    /// How it ended.
    pub status: WriteStatus,
    /// The token of the record now; `None` without a record.
    pub token: Option<RecordToken>,
}

impl WriteReply {
    /// Bytes of the encoded form.
    pub const BYTES: usize = 16;

    /// Whether the memory node refused the change, see [`WriteStatus::is_refusal`].
    pub fn is_refused(&self) -> bool {
        self.status.is_refusal()
    }

    /// The reply's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        let (status, cause) = match self.status {
            WriteStatus::DiskFull => (WriteStatus::NoRoom, DISK_FULL),
            status => (status, 0),
        };
        b[0] = WriteStatus::ALL.iter().position(|s| *s == status).unwrap_or(0) as u8;
        b[1] = cause;
        b[8..].copy_from_slice(&self.token.map_or(0, RecordToken::to_bits).to_le_bytes());
        b
    }

    /// Reads a reply; `None` if it is cut short or its status unknown.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Cursor::new(bytes);
        let ([status, cause, ..], token) = (bytes.array::<8>().ok()?, bytes.u64().ok()?);
        let status = match *WriteStatus::ALL.get(usize::from(status))? {
            WriteStatus::NoRoom if cause == DISK_FULL => WriteStatus::DiskFull,
            status => status,
        };
        Some(Self { status, token: (token != 0).then_some(RecordToken::from_bits(token)) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;
    use crate::key_space::{ByteKeys, U64Keys};
    use proptest::prelude::*;

    #[test]
    fn every_status_and_token_comes_back() {
        for status in WriteStatus::ALL {
            for token in [None, Some(RecordToken::of(7, b"key and value"))] {
                let reply = WriteReply { status, token };
                assert_eq!(WriteReply::decode(&reply.encode()), Some(reply));
            }
        }
        // A client that looks at the status alone takes a full disk for a full region.
        let full = WriteReply { status: WriteStatus::DiskFull, token: None };
        let mut bytes = full.encode();
        assert_eq!(WriteReply::decode(&bytes), Some(full));
        bytes[1] = 0;
        assert_eq!(WriteReply::decode(&bytes).map(|reply| reply.status), Some(WriteStatus::NoRoom));
        assert_eq!(WriteReply::decode(&[7; 16]), None);
        assert_eq!(WriteReply::decode(&[0; 15]), None);
    }

    fn operation() -> impl Strategy<Value = (WriteKind, u64, Option<u16>, u64, [u8; 8])> {
        (
            prop::sample::select(&WriteKind::ALL[..]),
            any::<u64>(),
            prop::option::of(0u16..1000),
            any::<u64>(),
            any::<[u8; 8]>(),
        )
    }

    proptest! {
        #[test]
        fn batches_round_trip(drawn in prop::collection::vec(operation(), 0..20), client: u64, request: u64, again: bool) {
            let mut batch = WriteBatch::default();
            let operations: Vec<_> = drawn.iter().map(|(kind, key, hint, token, value)| WriteOperation {
                kind: *kind,
                key: *key,
                hint: *hint,
                expected: RecordToken::from_bits(if *kind == WriteKind::CompareAndSet { *token } else { 0 }),
                value: match kind {
                    WriteKind::Delete => Sent::Here(&[]),
                    WriteKind::Put => Sent::Ahead(*token as u32 >> 1),
                    _ => Sent::Here(value),
                },
            }).collect();
            operations.iter().for_each(|o| batch.push::<U64Keys>(o));
            let mut bytes = Vec::new();
            batch.request(client, request, again).encode::<U64Keys>(5, &mut bytes);
            let Ok(Request::Write(write)) = Request::decode::<U64Keys>(5, &bytes) else { panic!("own request") };
            prop_assert_eq!((write.client, write.request, write.sent_before), (client, request, again));
            let back: Result<Vec<_>, _> = write.operations::<U64Keys>().collect();
            prop_assert_eq!(back, Ok(operations));
        }

        #[test]
        fn batches_over_byte_strings_round_trip(
            drawn in prop::collection::vec((operation(), prop::collection::vec(any::<u8>(), 0..40)), 0..20),
        ) {
            let mut batch = WriteBatch::default();
            let operations: Vec<_> = drawn.iter().map(|((kind, _, hint, token, value), key)| WriteOperation {
                kind: *kind,
                key: key.as_slice(),
                hint: *hint,
                expected: RecordToken::from_bits(if *kind == WriteKind::CompareAndSet { *token } else { 0 }),
                value: Sent::Here(if *kind == WriteKind::Delete { &[] } else { &value[..*token as usize % 9] }),
            }).collect();
            for operation in &operations {
                let before = batch.operations.len();
                let all = header::HEADER_BYTES + HEADER_BYTES + before;
                let most = OPERATION_BYTES + key_bytes::<ByteKeys>(operation.key) + 8 + operation.value.len();
                prop_assert!(batch.has_room::<ByteKeys>(operation.key, &operation.value, all + most));
                prop_assert!(!batch.has_room::<ByteKeys>(operation.key, &operation.value, all + most - 1));
                batch.push::<ByteKeys>(operation);
                prop_assert!(batch.operations.len() - before <= most);
            }
            let mut bytes = Vec::new();
            batch.request(1, 2, false).encode::<ByteKeys>(5, &mut bytes);
            let Ok(Request::Write(write)) = Request::decode::<ByteKeys>(5, &bytes) else { panic!("own request") };
            let back: Result<Vec<_>, _> = write.operations::<ByteKeys>().collect();
            prop_assert_eq!(back, Ok(operations));
        }
    }
}
