//! The requests a client sends to a memory node's processor, and its replies.
//!
//! ```text
//! request:  0 operation u16 · 2 protocol version u16 · 4 zero u32 · 8 creation number of the table u64 · 16 body
//! reply:    0 status u16 (0 = done, else an error code) · 2 zero · 4 version of a map u32 (wrong range), else zero · 8 body, or the error's text in UTF-8
//!
//!  1 stats        body empty                                        reply: see [`NodeStats`]
//! 14 sockets      body empty                                        reply: see [`SocketStats`]
//!  2 load begin   0 load u64 · 8 parameters, 72 bytes, see [`TableParameters`] · 80 expected keys u64
//!                 88 bytes of the encoders u32 · 92 zero u32 · 96 encoders                                           reply empty
//!  3 load chunk   0 load u64 · 8 index of its first record u64 · 16 count u32 · 20 bytes of the records u32
//!                 24 records, see [`keys`]                                                                          reply empty
//!  4 load commit  0 load u64                                        reply: 0 keys u64 · 8 segments u64
//!  5 load abort   0 load u64                                        reply empty
//!  6 write        see [`WriteBatch`]                                reply: see [`WriteReply`]
//! 11 value        see [`ValuePiece`]                                reply empty
//!  7 get          0 count u32 · 4 bytes of the keys u32 · 8 count keys, see [`keys`]
//!                 reply, per key: 0 status u8 (0 found, 1 its value is external, 2 absent, 3 damaged) · 1–3 zero · 4 bytes of the value u32
//!                 8 token u64 · then the value, or 0 XXH3-64 of the value u64 · 8 its address u64
//!
//! encoders        each after the other: 0 bytes of this one u32 · 4 these, see `KeyEncoder::encode` of fpcache_index
//! table create, table list, table drop: see [`tables`]; range create, range map: see [`ranges`]
//! ```
//!
//! *Creation numbers.* A table draws one when it is made, at random, and keeps it until it is
//! dropped. A client learns it with its connection. A request to a table whose creation number is
//! another was meant for a former table of that name: it is refused before anything else about it
//! is looked at.
//!
//! *Lengths.* A request says how long it is or what it counts, and one that is longer is refused as
//! one that is cut short.
//!
//! Lookups are one-sided; `get` is their last resort where a compute node's directory is out of
//! date again and again.

mod header;
pub mod keys;
pub mod ranges;
mod refusal;
mod stats;
pub mod tables;
mod value;
mod write;

pub use header::{MessageError, PROTOCOL_VERSION};
pub use ranges::RangeRequest;
pub use refusal::{ErrorCode, Refusal, decode_reply, encode_reply};
pub use stats::{NodeStats, SocketStats};
pub use tables::{TableInfo, TablesPage, TablesRequest};
pub use value::{MAX_AHEAD_BYTES, Sent, ValuePiece};
pub use write::{MAX_OPERATIONS, Write, WriteBatch, WriteKind, WriteOperation, WriteReply, WriteStatus};

use header::{HEADER_BYTES, begin, end, length_of, malformed, operation_of, split};

use crate::key_space::KeySpace;
use crate::layout::TableParameters;

const CHUNK_HEADER_BYTES: usize = 24;
const COUNT_BYTES: usize = 8;

/// A request, borrowing the bytes it came in.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// Asks for the node's counters.
    Stats,
    /// Asks what the whole memory node counts of its sockets, whatever table it is sent to.
    Sockets,
    /// Starts loading a table.
    LoadBegin {
        /// The load's number, by which its later requests name it: no other load of this client has
        /// it.
        load: u64,
        /// The parameters that it is built with.
        parameters: TableParameters,
        /// How many records will come, 0 if unknown; lets the node refuse early what cannot fit.
        expected_keys: u64,
        /// The encoders that the segments are to share, encoded; empty for the key space's own
        /// choice.
        encoders: &'a [u8],
    },
    /// More records of the load of this number, in ascending key order.
    LoadChunk(u64, RecordChunk<'a>),
    /// Ends the load of this number and publishes the table.
    LoadCommit(u64),
    /// Gives up the load of this number; nothing of it remains.
    LoadAbort(u64),
    /// Changes records.
    Write(Write<'a>),
    /// Looks keys up: their encodings, one after another.
    Get(AskedKeys<'a>),
    /// A piece of a value, ahead of what it belongs to.
    Value(ValuePiece<'a>),
}

/// Records of a load: keys and values in two arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordChunk<'a> {
    /// Index of its first record.
    pub first: u64,
    /// How many records.
    pub count: u32,
    /// The records, one after another: see [`keys::put_record`].
    pub records: &'a [u8],
}

/// Keys that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedKeys<'a> {
    /// How many.
    pub count: u32,
    /// The keys, one after another: see [`keys::put_key`].
    pub bytes: &'a [u8],
}

impl<'a> Request<'a> {
    const STATS: u16 = 1;
    const LOAD_BEGIN: u16 = 2;
    const LOAD_CHUNK: u16 = 3;
    const LOAD_COMMIT: u16 = 4;
    const LOAD_ABORT: u16 = 5;
    const WRITE: u16 = 6;
    const GET: u16 = 7;
    // 8 to 10 are about tables, 12 and 13 about ranges: see [`tables`] and [`ranges`].
    const VALUE: u16 = 11;
    const SOCKETS: u16 = 14;

    /// Writes the request, to the table with this creation number, into `out`, replacing what it
    /// held.
    pub fn encode<K: KeySpace>(&self, creation: u64, out: &mut Vec<u8>) {
        let operation = match self {
            Self::Stats => Self::STATS,
            Self::Sockets => Self::SOCKETS,
            Self::LoadBegin { .. } => Self::LOAD_BEGIN,
            Self::LoadChunk(..) => Self::LOAD_CHUNK,
            Self::LoadCommit(_) => Self::LOAD_COMMIT,
            Self::LoadAbort(_) => Self::LOAD_ABORT,
            Self::Write(_) => Self::WRITE,
            Self::Get(_) => Self::GET,
            Self::Value(_) => Self::VALUE,
        };
        begin(operation, out);
        out.extend(creation.to_le_bytes());
        match self {
            Self::LoadBegin { load, parameters, expected_keys, encoders } => {
                out.extend(load.to_le_bytes());
                let mut encoded = [0; TableParameters::ENCODED_BYTES];
                parameters.encode::<K>(&mut encoded);
                out.extend(encoded);
                out.extend(expected_keys.to_le_bytes());
                out.extend(u64::from(length_of(encoders)).to_le_bytes());
                out.extend_from_slice(encoders);
            }
            Self::LoadChunk(load, chunk) => {
                out.extend(load.to_le_bytes());
                out.extend(chunk.first.to_le_bytes());
                out.extend(chunk.count.to_le_bytes());
                out.extend(length_of(chunk.records).to_le_bytes());
                out.extend_from_slice(chunk.records);
            }
            Self::Write(write) => write.encode(out),
            Self::Value(piece) => piece.encode(out),
            Self::Get(keys) => {
                out.extend(keys.count.to_le_bytes());
                out.extend(length_of(keys.bytes).to_le_bytes());
                out.extend_from_slice(keys.bytes);
            }
            Self::LoadCommit(load) | Self::LoadAbort(load) => out.extend(load.to_le_bytes()),
            Self::Stats | Self::Sockets => {}
        }
    }

    /// Whether a request of any kind changes nothing, whatever else it says. One that is not known
    /// may change something.
    pub fn only_reads(request: &[u8]) -> bool {
        operation_of(request)
            .is_some_and(|it| matches!(it, Self::STATS | Self::SOCKETS | Self::GET | TablesRequest::LIST))
    }

    /// Whether a request asks about sockets, which is answered for the memory node as a whole.
    pub fn is_about_sockets(request: &[u8]) -> bool {
        let operation = split(request).map(|(operation, _)| operation);
        operation == Ok(Self::SOCKETS) && request.len() == HEADER_BYTES
    }

    /// Reads a request to the table with this creation number.
    ///
    /// # Errors
    /// If it is of another version, meant for another table, or makes no sense.
    pub fn decode<K: KeySpace>(creation: u64, bytes: &'a [u8]) -> Result<Self, MessageError> {
        let (operation, mut body) = split(bytes)?;
        let requested = body.u64()?;
        // Before the body: that may have keys of another kind.
        if requested != creation {
            return Err(MessageError::OtherTable { requested, there: creation });
        }
        let request = match operation {
            Self::STATS => Self::Stats,
            Self::SOCKETS => Self::Sockets,
            Self::LOAD_BEGIN => {
                let (load, parameters) = (body.u64()?, body.bytes(TableParameters::ENCODED_BYTES)?);
                let parameters = TableParameters::decode::<K>(parameters).map_err(malformed)?;
                let (expected_keys, encoders_bytes, _zero) = (body.u64()?, body.u32()?, body.u32()?);
                let encoders = body.bytes(encoders_bytes as usize)?;
                Self::LoadBegin { load, parameters, expected_keys, encoders }
            }
            Self::LOAD_CHUNK => {
                let (load, first, count, bytes) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
                Self::LoadChunk(load, RecordChunk { first, count, records: body.bytes(bytes as usize)? })
            }
            Self::LOAD_COMMIT => Self::LoadCommit(body.u64()?),
            Self::LOAD_ABORT => Self::LoadAbort(body.u64()?),
            Self::WRITE => return Write::decode(body.rest()).map(Self::Write),
            Self::GET => {
                let (count, bytes) = (body.u32()?, body.u32()?);
                Self::Get(AskedKeys { count, bytes: body.bytes(bytes as usize)? })
            }
            Self::VALUE => return ValuePiece::decode(body.rest()).map(Self::Value),
            other => return Err(malformed(format!("operation {other} is unknown"))),
        };
        end(body)?;
        Ok(request)
    }

    /// Bytes of records that a chunk may have in a request of `max_request` bytes.
    pub const fn chunk_bytes(max_request: usize) -> usize {
        max_request.saturating_sub(HEADER_BYTES + CHUNK_HEADER_BYTES)
    }

    /// Bytes of keys that a request to look keys up may have in `max_request` bytes.
    pub const fn keys_bytes(max_request: usize) -> usize {
        max_request.saturating_sub(HEADER_BYTES + COUNT_BYTES)
    }
}

impl WriteBatch {
    /// The request.
    pub fn request(&self, client: u64, request: u64, sent_before: bool) -> Request<'_> {
        Request::Write(self.write(client, request, sent_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

    const CREATION: u64 = 0x0102_0304_0506_0708;

    fn round_trip(request: &Request<'_>) {
        let mut bytes = Vec::new();
        request.encode::<U64Keys>(CREATION, &mut bytes);
        assert_eq!(Request::decode::<U64Keys>(CREATION, &bytes).as_ref(), Ok(request));
        let other = MessageError::OtherTable { requested: CREATION, there: 7 };
        assert_eq!(Request::decode::<U64Keys>(7, &bytes), Err(other));
        for end in 0..bytes.len() {
            assert!(
                Request::decode::<U64Keys>(CREATION, &bytes[..end]).is_err(),
                "cut to {end}: {request:?}"
            );
        }
    }

    #[test]
    fn requests_round_trip() {
        round_trip(&Request::Stats);
        round_trip(&Request::Sockets);
        round_trip(&Request::LoadBegin {
            load: 9,
            parameters: TableParameters::default(),
            expected_keys: 12,
            encoders: &[5],
        });
        round_trip(&Request::LoadChunk(9, RecordChunk { first: 3, count: 2, records: &[2; 40] }));
        round_trip(&Request::LoadCommit(9));
        round_trip(&Request::LoadAbort(9));
        round_trip(&Request::Get(AskedKeys { count: 3, bytes: &[7; 24] }));
    }

    #[test]
    fn no_request_to_a_table_is_taken_for_one_about_tables() {
        let piece =
            ValuePiece { client: 1, request: 2, operation: 3, value_bytes: 5, offset: 0, bytes: b"value" };
        let write = WriteBatch::default();
        let requests = [
            Request::Stats,
            Request::Sockets,
            Request::LoadBegin {
                load: 9,
                parameters: TableParameters::default(),
                expected_keys: 0,
                encoders: &[],
            },
            Request::LoadChunk(9, RecordChunk { first: 0, count: 0, records: &[] }),
            Request::LoadCommit(9),
            Request::LoadAbort(9),
            write.request(1, 1, false),
            Request::Get(AskedKeys { count: 0, bytes: &[] }),
            Request::Value(piece),
        ];
        let mut bytes = Vec::new();
        for request in &requests {
            request.encode::<U64Keys>(CREATION, &mut bytes);
            assert!(!TablesRequest::is_one(&bytes), "{request:?}");
            assert_eq!(Request::decode::<U64Keys>(CREATION, &bytes).as_ref(), Ok(request));
        }
    }

    #[test]
    fn requests_have_the_drawn_bytes() {
        let encoded = |request: Request<'_>| {
            let mut bytes = Vec::new();
            request.encode::<U64Keys>(CREATION, &mut bytes);
            bytes
        };
        let head = |operation: u8| [operation, 0, 10, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(encoded(Request::Stats), head(1));
        assert_eq!(encoded(Request::Sockets), head(14));
        let chunk = Request::LoadChunk(9, RecordChunk { first: 3, count: 2, records: b"abc" });
        let body = *b"\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0abc";
        assert_eq!(encoded(chunk), [&head(3)[..], &body].concat());
        let keys = Request::Get(AskedKeys { count: 1, bytes: b"abcd" });
        assert_eq!(encoded(keys), [&head(7)[..], b"\x01\0\0\0\x04\0\0\0abcd"].concat());
        let begin = Request::LoadBegin {
            load: 9,
            parameters: TableParameters::default(),
            expected_keys: 1,
            encoders: b"c",
        };
        assert_eq!(encoded(Request::LoadCommit(9)), [&head(4)[..], b"\x09\0\0\0\0\0\0\0"].concat());
        assert_eq!(encoded(begin)[96..], *b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0c");
    }

    #[test]
    fn replies_carry_bodies_and_refusals() {
        let mut bytes = Vec::new();
        encode_reply(Ok(b"body"), &mut bytes);
        assert_eq!(decode_reply(&bytes), Ok(&b"body"[..]));
        for code in ErrorCode::ALL {
            let refusal = Refusal::new(code, "why, and what to do");
            encode_reply(Err(&refusal), &mut bytes);
            assert_eq!(decode_reply(&bytes), Err(refusal));
        }
        assert!(decode_reply(&[]).is_err());
    }

    #[test]
    fn stats_round_trip_and_short_ones_are_refused() {
        let stats = NodeStats { incarnation: 1, keys: 2, uptime_ms: 3, ..Default::default() };
        let mut bytes = Vec::new();
        stats.encode(&mut bytes);
        assert_eq!(NodeStats::decode(&bytes), Ok(stats));
        assert!(NodeStats::decode(&bytes[..60]).is_err());
        let release = NodeStats { release: NodeStats::encode_release(7, 65_535, 3), ..stats };
        assert_eq!(release.release_text(), "7.65535.3");
    }

    #[test]
    fn another_protocol_version_is_named() {
        let error = Request::decode::<U64Keys>(0, &[1, 0, 11, 0, 0, 0, 0, 0]).expect_err("version 11");
        assert!(error.to_string().contains("version 11"), "{error}");
    }
}
