//! The wire format of requests and replies, without input or output.
//!
//! ```text
//! request head, 16 bytes                     reply head, 16 bytes
//! 0  4  bytes after the head                0  4  bytes after the head, without padding
//! 4  4  entries of a batch, else 0           4  2  tag of the request
//! 8  2  tag, counted up, wrapping            6  2  status
//! 10 1  kind                                 8  8  of a batch: the watched word; of a call: see below
//! 11 5  zero                                 16    what was fetched, padded with zeros to 8 bytes
//!
//! READs, kind 1: entries of 16 bytes         changes, kind 2: entries of 24 bytes, each with its data
//! 0  8  offset                               0  16 as of a READ
//! 8  4  bytes                                16 8  verb: 0 READ, 1 WRITE, 2 compare-and-swap
//! 12 4  low 8 bits: area; high 24 bits:      24    of a WRITE its bytes, padded to 8; of a compare-and-swap the word
//!       words of a guarded record, or 0            expected and the new one
//!
//! question, kind 5: 8 bytes XXH3-64 of the question's bytes, then these; the head's entries are the words that the
//!       reply has at most
//! cards, kind 4: what `rdma/wire.rs` draws, both ways; the head's entries are 0
//! call, kind 3: 8 bytes XXH3-64 of the request's bytes, then these; the head's entries are 0
//! ```
//! All integers are little-endian. Replies come in the order of requests; the tag only proves that
//! both sides count alike. The reply to a batch has, one after another, what each READ fetched and
//! each atomic's old value, each padded with zeros to a multiple of 8 bytes. The reply to a call
//! has the answer's bytes, and in the head their XXH3-64; where the status is 1 the answer was too
//! long, the word is its length and nothing follows; where it is 2 the request was damaged and not
//! executed. The reply to a question has the answer's words and in the head their XXH3-64; where
//! the status is 2 the question was damaged, where it is 4 questions about this region are not
//! answered, and nothing follows.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::memory::AccessError;
use crate::rdma::wire::MAX_REQUEST_BYTES;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 16;
/// Bytes of a READ.
pub const READ_BYTES: usize = 16;
/// Bytes of an entry among changes, without its data.
pub const CHANGE_BYTES: usize = 24;
/// Bytes before the bytes of a call.
pub const CALL_BYTES: usize = 8;

/// A reply that is one.
pub const SERVED: u16 = 0;
/// The answer to a call was longer than the limit.
pub const REPLY_TOO_LONG: u16 = 1;
/// The bytes of a call do not match their checksum.
pub const DAMAGED: u16 = 2;
/// Questions about this region are not answered.
pub const NOT_ANSWERED: u16 = 4;

/// Bytes before the bytes of a question.
pub const QUESTION_SUM_BYTES: usize = 8;
/// Most bytes of a question.
pub const MAX_QUESTION_BYTES: usize = 16 << 10;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A batch of nothing but READs.
    Reads = 1,
    /// A batch that may change memory.
    Changes = 2,
    /// A request to the service.
    Call = 3,
    /// A question of a client's network card to the memory node's.
    Card = 4,
    /// A question about the region, which the thread that serves the socket has answered.
    Question = 5,
}

/// How long frames may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limits {
    /// Bytes of a batch after its head.
    pub batch_bytes: u32,
    /// Bytes of the reply to a batch after its head.
    pub reply_bytes: u32,
    /// Bytes of a call's request.
    pub call_request: u32,
    /// Bytes of the answer to a call.
    pub call_reply: u32,
}

/// Why bytes are no frame, or none that may be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameError(pub &'static str);

impl FrameError {
    /// Not a kind of this version.
    pub const KIND: Self = Self("it sent a frame of an unknown kind");
    /// Bytes that have to be zero are not.
    pub const RESERVED: Self = Self("it sent a frame whose reserved bytes are not zero");
    /// The head does not agree with the limits, or with itself.
    pub const LENGTH: Self = Self("it sent a frame of a length that cannot be");
    /// The entries do not fill the frame.
    pub const ENTRIES: Self = Self("it sent a batch whose entries do not fill it");
    /// The reply would be longer than the limit.
    pub const REPLY: Self = Self("it asked for more in one frame than it may");
    /// An area that there is not, or past its end, or not its to change, or not aligned.
    pub const ACCESS: Self = Self("it asked for memory that it has no right to");
    /// A call over a socket that joined a client.
    pub const CALL: Self = Self("it sent a request over a connection that is for batches");
}

impl From<AccessError> for FrameError {
    fn from(_: AccessError) -> Self {
        Self::ACCESS
    }
}

impl From<crate::memory::OutOfBounds> for FrameError {
    fn from(_: crate::memory::OutOfBounds) -> Self {
        Self::ACCESS
    }
}

/// The first bytes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead {
    /// Bytes after it.
    pub bytes: u32,
    /// Entries of a batch.
    pub entries: u32,
    /// Counts requests.
    pub tag: u16,
    /// The kind of what follows.
    pub kind: Kind,
}

impl RequestHead {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        transmute!([self.bytes, self.entries, u32::from(self.tag) | (self.kind as u32) << 16, 0])
    }

    /// The head that these bytes are, if they are one and keep to the limits.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(bytes: &[u8; HEAD_BYTES], limits: &Limits) -> Result<Self, FrameError> {
        if bytes[11..] != [0; 5] {
            return Err(FrameError::RESERVED);
        }
        let kind = match bytes[10] {
            1 => Kind::Reads,
            2 => Kind::Changes,
            3 => Kind::Call,
            4 => Kind::Card,
            5 => Kind::Question,
            _ => return Err(FrameError::KIND),
        };
        let [len, entries, tag, _]: [u32; 4] = transmute!(*bytes);
        // The low half.
        let head = Self { bytes: len, entries, tag: tag as u16, kind };
        let (len, entries) = (u64::from(head.bytes), u64::from(head.entries));
        let fits = match kind {
            Kind::Reads => len == entries * READ_BYTES as u64 && head.bytes <= limits.batch_bytes,
            Kind::Changes => entries * CHANGE_BYTES as u64 <= len && head.bytes <= limits.batch_bytes,
            Kind::Call => {
                entries == 0
                    && (CALL_BYTES as u64..=CALL_BYTES as u64 + u64::from(limits.call_request)).contains(&len)
            }
            Kind::Question => {
                let sum = QUESTION_SUM_BYTES as u64;
                (sum..=sum + MAX_QUESTION_BYTES as u64).contains(&len)
                    && head.bytes <= limits.batch_bytes
                    && entries * 8 <= u64::from(limits.reply_bytes)
            }
            Kind::Card => entries == 0 && len <= MAX_REQUEST_BYTES as u64,
        };
        if fits { Ok(head) } else { Err(FrameError::LENGTH) }
    }
}

/// The first bytes of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReplyHead {
    /// Bytes after it, without padding.
    pub bytes: u32,
    /// That of the request.
    pub tag: u16,
    /// How it went.
    pub status: u16,
    /// The watched word, or what the status says.
    pub word: u64,
}

impl ReplyHead {
    /// Its words.
    #[must_use]
    pub fn encode(&self) -> [u64; 2] {
        transmute!(*self)
    }

    /// The head that these bytes are.
    #[must_use]
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Self {
        transmute!(*bytes)
    }
}

/// A READ as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadEntry {
    /// Where from.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The area.
    pub area: u8,
    /// Words of each record if the READ is guarded, else 0. Below 2^24.
    pub stride: u32,
}

/// Most words of a guarded record.
pub const MAX_STRIDE: u32 = (1 << 24) - 1;

impl ReadEntry {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; READ_BYTES] {
        let last = self.stride << 8 | u32::from(self.area);
        transmute!([self.offset, u64::from(self.len) | u64::from(last) << 32])
    }

    /// The READ that these bytes are: any are one.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; READ_BYTES]) -> Self {
        let [offset, rest]: [u64; 2] = transmute!(*bytes);
        let last = (rest >> 32) as u32;
        // The low 32 bits, and the low 8.
        Self { offset, len: rest as u32, area: last as u8, stride: last >> 8 }
    }

    /// Words that it lands in.
    #[inline]
    #[must_use]
    pub fn words(&self) -> usize {
        (self.len as usize).div_ceil(8)
    }
}

/// An entry of a batch that may change memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// A READ among changes.
    Read(ReadEntry),
    /// Bytes to store.
    Write(ReadEntry, &'a [u8]),
    /// The word expected, and the new one.
    CompareSwap(ReadEntry, u64, u64),
}

impl Change<'_> {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (entry, verb) = match self {
            Self::Read(entry) => (entry, 0u64),
            Self::Write(entry, _) => (entry, 1),
            Self::CompareSwap(entry, ..) => (entry, 2),
        };
        out.extend_from_slice(&entry.encode());
        out.extend_from_slice(&verb.to_le_bytes());
        match self {
            Self::Read(_) => {}
            Self::Write(_, bytes) => {
                out.extend_from_slice(bytes);
                out.resize(out.len() + padding(bytes.len()), 0);
            }
            Self::CompareSwap(_, expected, new) => {
                out.extend_from_slice(&expected.to_le_bytes());
                out.extend_from_slice(&new.to_le_bytes());
            }
        }
    }

    /// Bytes that it has in the reply, with padding.
    #[must_use]
    pub fn reply_bytes(&self) -> usize {
        match self {
            Self::Read(entry) => entry.words() * 8,
            Self::Write(..) => 0,
            Self::CompareSwap(..) => 8,
        }
    }
}

/// The entries of a batch that may change memory, one after another.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Changes<'a> {
    /// Those of a frame with this head and these bytes after it.
    #[must_use]
    pub fn of(head: &RequestHead, body: &'a [u8]) -> Self {
        Self { rest: body, left: head.entries }
    }

    /// The next one; `None` after the last.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are none, or are more than the entries.
    pub fn next(&mut self) -> Result<Option<Change<'a>>, FrameError> {
        if self.left == 0 {
            return if self.rest.is_empty() { Ok(None) } else { Err(FrameError::ENTRIES) };
        }
        self.left -= 1;
        let (entry, rest) = self.rest.split_first_chunk::<READ_BYTES>().ok_or(FrameError::ENTRIES)?;
        let (verb, rest) = rest.split_first_chunk::<8>().ok_or(FrameError::ENTRIES)?;
        let entry = ReadEntry::decode(entry);
        let (change, rest) = match u64::from_le_bytes(*verb) {
            0 => (Change::Read(entry), rest),
            1 => {
                let len = entry.len as usize;
                let bytes = rest.get(..len).ok_or(FrameError::ENTRIES)?;
                (Change::Write(entry, bytes), rest.get(len + padding(len)..).ok_or(FrameError::ENTRIES)?)
            }
            2 => {
                let (words, rest) = rest.split_first_chunk::<16>().ok_or(FrameError::ENTRIES)?;
                let [expected, new]: [u64; 2] = transmute!(*words);
                (Change::CompareSwap(entry, expected, new), rest)
            }
            _ => return Err(FrameError::KIND),
        };
        self.rest = rest;
        Ok(Some(change))
    }
}

/// The padding that makes `bytes` a multiple of 8.
#[must_use]
pub const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % 8
}

/// The checksum of a call's bytes, of the request or of the answer.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
mod tests;
