//! The request ring: the bytes a client and a memory node exchange requests and replies through.
//!
//! Each client has one, in its area [`RINGS`]. The client fills the request half with WRITEs and
//! fetches the reply half with READs; the memory node works on the same bytes locally. One request
//! is in flight at a time: a client that wants several under way has several connections. All words
//! are little-endian.
//!
//! ```text
//! offset          size  writer       content
//! 0x000           8     client       request tag: sequence (low 32 bits), body length in bytes (high 32 bits)
//! 0x008           8     client       request checksum: XXH3-64 of the body, seeded with the tag
//! 0x010           48    -            zero
//! 0x040           8     client       1 while the client sleeps and wants to be woken for a reply
//! 0x048           56    -            zero
//! 0x080           8     memory node  reply tag: sequence of the request answered, body length
//! 0x088           8     memory node  reply checksum: XXH3-64 of the body, seeded with the tag
//! 0x090           8     memory node  reply status: 0 served, 1 request damaged (not executed), 2 reply too long
//! 0x098           40    -            zero
//! 0x0c0           8     memory node  1 while the memory node sleeps and wants to be woken for a request
//! 0x0c8           3896  -            zero
//! 0x1000          Q     client       request body, Q = request capacity
//! 0x1000 + Q      P     memory node  reply body, P = reply capacity
//! ```
//!
//! *Request.* In one doorbell the client WRITEs body, checksum and, last, the tag; WRITEs take
//! effect in posting order, so a new tag announces a complete request. Sequences count up from 1,
//! wrapping; zero is skipped. A client that gives up on a request (deadline) goes on with the next
//! sequence; replies to any but the present one are ignored.
//!
//! *Reply.* The memory node stores body, checksum and status, then the tag with release order.
//!
//! *Sleeping.* A side that wants to sleep stores 1 in its sleep word, then looks at the other's tag
//! once more; a side that has stored a tag then looks at the other's sleep word and, if it is 1,
//! sends one byte through the connection's socket. A full fence stands between store and look on
//! both sides, so at least one of them sees the other.
//!
//! *Trust.* The memory node believes nothing here: lengths are checked against the capacity, the
//! body is copied into private memory before its checksum is compared, and a ring that lies gets
//! status 1.

use crate::error::FabricError;
use crate::memory::MemoryError;
use crate::verbs::{MAX_REQUEST_BYTES, RINGS, RemoteAddr};

pub(crate) const REQUEST_TAG: u64 = 0x000;
pub(crate) const REQUEST_CHECKSUM: u64 = 0x008;
pub(crate) const CLIENT_SLEEPS: u64 = 0x040;
pub(crate) const REPLY_TAG: u64 = 0x080;
pub(crate) const REPLY_CHECKSUM: u64 = 0x088;
pub(crate) const REPLY_STATUS: u64 = 0x090;
pub(crate) const SERVER_SLEEPS: u64 = 0x0c0;
/// Where the request body starts.
pub const BODIES: u64 = 0x1000;

pub(crate) const SERVED: u64 = 0;
pub(crate) const DAMAGED: u64 = 1;
pub(crate) const REPLY_TOO_LONG: u64 = 2;

/// Where things lie in a ring of given capacities. The memory node decides how large they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingLayout {
    request_capacity: usize,
    reply_capacity: usize,
}

impl RingLayout {
    /// That of every ring that a memory node makes: requests and replies of up to 1 MiB.
    pub(crate) const OURS: Self = Self { request_capacity: 1 << 20, reply_capacity: 1 << 20 };

    /// That of a memory node with such capacities, each rounded up to a multiple of 64.
    ///
    /// # Errors
    /// If a capacity is zero or above 1 GiB.
    pub(crate) fn new(request_bytes: usize, reply_bytes: usize) -> Result<Self, FabricError> {
        let round = |bytes: usize| match bytes {
            1..=MAX_REQUEST_BYTES => Ok(bytes.next_multiple_of(64)),
            _ => Err(FabricError::from(MemoryError::BadLength { len: bytes })),
        };
        Ok(Self { request_capacity: round(request_bytes)?, reply_capacity: round(reply_bytes)? })
    }

    pub(crate) fn request_capacity(self) -> usize {
        self.request_capacity
    }

    pub(crate) fn reply_capacity(self) -> usize {
        self.reply_capacity
    }

    pub(crate) fn reply_body(self) -> u64 {
        BODIES + self.request_capacity as u64
    }

    /// Bytes of the whole ring.
    pub(crate) fn len(self) -> usize {
        BODIES as usize + self.request_capacity + self.reply_capacity
    }
}

/// A word of the ring as an address.
pub(crate) const fn at(offset: u64) -> RemoteAddr {
    RemoteAddr { area: RINGS, offset }
}

pub(crate) fn tag(sequence: u32, len: usize) -> u64 {
    // Bodies are bounded by MAX_REQUEST_BYTES; a longer length is only ever reported, saturated.
    u64::from(sequence) | u64::from(u32::try_from(len).unwrap_or(u32::MAX)) << 32
}

pub(crate) fn sequence_of(tag: u64) -> u32 {
    (tag & u64::from(u32::MAX)) as u32
}

pub(crate) fn len_of(tag: u64) -> usize {
    (tag >> 32) as usize
}

pub(crate) fn checksum(tag: u64, body: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(body, tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_carry_sequence_and_length() {
        let packed = tag(u32::MAX, 1 << 20);
        assert_eq!((sequence_of(packed), len_of(packed)), (u32::MAX, 1 << 20));
    }

    #[test]
    fn capacities_are_checked_and_rounded() {
        let layout = RingLayout::new(1, 65).unwrap();
        assert_eq!((layout.request_capacity(), layout.reply_capacity()), (64, 128));
        assert_eq!(layout.len(), 0x1000 + 192);
        assert!(RingLayout::new(0, 1).is_err());
        assert!(RingLayout::new(1, usize::MAX).is_err());
    }
}
