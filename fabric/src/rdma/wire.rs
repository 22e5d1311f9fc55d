//! The wire format in which the cards of a client and a memory node are introduced to each other.
//!
//! ```text
//! client asks, in a frame of kind 4          memory node answers, in a reply of status 0
//! 0  4  version of these bytes, 3             0  4  version of these bytes, 3
//! 4  4  1: for a queue pair, 2: for extents   4  4  number of extents
//! 8  4  its queue pair's number               8  32 as of the client's queue pair; zeros where it asked
//! 12 4  its first packet sequence number            for extents only
//! 16 16 its GID                               40 8  nanoseconds of the watched word's lease; 0: none
//! 32 2  its LID, 0 over Ethernet              48    extents, 32 bytes each
//! 34 1  its MTU: 1 to 5 for 256 to 4096       extent
//! 35 1  its service level                     0  4  area: 0 the region, 2 what clients may change
//! 36 2  READs it would have outstanding       4  4  rkey
//! 38 1  its traffic class                     8  8  offset of its first byte in the area
//! 39 1  0                                     16 8  bytes
//!                                             24 8  address of its first byte, as a card is told
//! ```
//! All integers are little-endian; the GID is in the order of the network. The answer to a client
//! that cannot be served has the status 3 and a text that says why, in UTF-8. Extents of an area
//! are in order and do not overlap.

use std::time::Duration;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of these bytes.
pub const VERSION: u32 = 3;
/// Extents that an answer has at most.
pub const MAX_EXTENTS: usize = 2048;
/// The status of a reply that says why there is no answer.
pub const NOT_SERVED: u16 = 3;
/// Most bytes of a request, and of an answer.
pub const MAX_REQUEST_BYTES: usize = size_of::<CardRequestBytes>();
/// Most bytes of an answer.
pub const MAX_ANSWER_BYTES: usize = size_of::<Head>() + MAX_EXTENTS * size_of::<ExtentBytes>();

/// One end of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairInfo {
    /// Its number.
    pub number: u32,
    /// The first packet sequence number it sends; 24 bits.
    pub sequence: u32,
    /// The port's address.
    pub gid: [u8; 16],
    /// The port's number in an InfiniBand subnet.
    pub lid: u16,
    /// 1 to 5 for 256 to 4096 bytes.
    pub mtu: u8,
    /// READs and atomics outstanding.
    pub depth: u16,
    /// The service level of its packets, and of the other's if that one says 0: at most 15.
    pub service_level: u8,
    /// As the service level.
    pub traffic_class: u8,
}

/// Registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisteredExtent {
    /// The area.
    pub area: u32,
    /// The key that a card must show to address it.
    pub rkey: u32,
    /// Its first byte in the area.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Its first byte, as a card is told.
    pub address: u64,
}

/// A client's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CardRequest {
    /// To be connected to this.
    QueuePair(QueuePairInfo),
    /// For what is registered now.
    Extents,
}

/// A memory node's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardReply {
    /// The other end, if it was asked for.
    pub end: Option<QueuePairInfo>,
    /// How long the watched word is leased for; zero: it is not.
    pub lease: Duration,
    /// The registered memory.
    pub extents: Vec<RegisteredExtent>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CardRequestBytes {
    version: U32,
    what: U32,
    end: EndBytes,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    version: U32,
    extents: U32,
    end: EndBytes,
    lease: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EndBytes {
    number: U32,
    sequence: U32,
    gid: [u8; 16],
    lid: U16,
    mtu: u8,
    service_level: u8,
    depth: U16,
    traffic_class: u8,
    zero: u8,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ExtentBytes {
    area: U32,
    rkey: U32,
    offset: U64,
    len: U64,
    address: U64,
}

const NO_END: EndBytes = EndBytes {
    number: U32::ZERO,
    sequence: U32::ZERO,
    gid: [0; 16],
    lid: U16::ZERO,
    mtu: 0,
    service_level: 0,
    depth: U16::ZERO,
    traffic_class: 0,
    zero: 0,
};

impl QueuePairInfo {
    fn bytes(&self) -> EndBytes {
        EndBytes {
            number: U32::new(self.number),
            sequence: U32::new(self.sequence),
            gid: self.gid,
            lid: U16::new(self.lid),
            mtu: self.mtu,
            service_level: self.service_level,
            depth: U16::new(self.depth),
            traffic_class: self.traffic_class,
            zero: 0,
        }
    }

    fn of(bytes: &EndBytes) -> Option<Self> {
        let end = Self {
            number: bytes.number.get(),
            sequence: bytes.sequence.get(),
            gid: bytes.gid,
            lid: bytes.lid.get(),
            mtu: bytes.mtu,
            depth: bytes.depth.get(),
            service_level: bytes.service_level,
            traffic_class: bytes.traffic_class,
        };
        let fits = end.number < 1 << 24
            && end.sequence < 1 << 24
            && (1..=5).contains(&end.mtu)
            && end.depth > 0
            && end.service_level < 16
            && bytes.zero == 0;
        fits.then_some(end)
    }
}

impl CardRequest {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (what, end) = match self {
            Self::QueuePair(end) => (1, end.bytes()),
            Self::Extents => (2, NO_END),
        };
        CardRequestBytes { version: U32::new(VERSION), what: U32::new(what), end }.as_bytes().to_vec()
    }

    /// The request that these bytes are, or the version that they are of.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let ask = CardRequestBytes::read_from_bytes(bytes).map_err(|_| "a request of another length")?;
        if ask.version != VERSION {
            return Err("a request of another version");
        }
        match ask.what.get() {
            1 => QueuePairInfo::of(&ask.end).map(Self::QueuePair).ok_or("a queue pair that cannot be"),
            2 => Ok(Self::Extents),
            _ => Err("a request of no kind"),
        }
    }
}

impl CardReply {
    /// Its bytes. At most [`MAX_EXTENTS`] extents are told.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let extents = &self.extents[..self.extents.len().min(MAX_EXTENTS)];
        // At most 2048.
        let count = U32::new(extents.len() as u32);
        let end = self.end.as_ref().map_or(NO_END, QueuePairInfo::bytes);
        let lease = U64::new(u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX));
        let mut bytes = Head { version: U32::new(VERSION), extents: count, end, lease }.as_bytes().to_vec();
        for RegisteredExtent { area, rkey, offset, len, address } in extents {
            let extent = ExtentBytes {
                area: U32::new(*area),
                rkey: U32::new(*rkey),
                offset: U64::new(*offset),
                len: U64::new(*len),
                address: U64::new(*address),
            };
            bytes.extend_from_slice(extent.as_bytes());
        }
        bytes
    }

    /// The answer that these bytes are.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| "an answer that is too short")?;
        if head.version != VERSION {
            return Err("an answer of another version");
        }
        let end = if head.end.number == 0 { None } else { QueuePairInfo::of(&head.end) };
        let extents = <[ExtentBytes]>::ref_from_bytes(rest).map_err(|_| "an answer of another length")?;
        if extents.len() > MAX_EXTENTS || extents.len() != head.extents.get() as usize {
            return Err("an answer of another number of extents");
        }
        let extents: Vec<RegisteredExtent> = extents
            .iter()
            .map(|extent| RegisteredExtent {
                area: extent.area.get(),
                rkey: extent.rkey.get(),
                offset: extent.offset.get(),
                len: extent.len.get(),
                address: extent.address.get(),
            })
            .collect();
        let fit = |extent: &RegisteredExtent| {
            extent.offset.checked_add(extent.len).is_some()
                && extent.address.checked_add(extent.len).is_some()
        };
        let in_order = |pair: &[RegisteredExtent]| {
            pair[0].area < pair[1].area
                || pair[0].area == pair[1].area && pair[0].offset + pair[0].len <= pair[1].offset
        };
        if !extents.iter().all(fit) || !extents.windows(2).all(in_order) {
            return Err("an answer with extents that cannot be");
        }
        Ok(Self { end, lease: Duration::from_nanos(head.lease.get()), extents })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: QueuePairInfo = QueuePairInfo {
        number: 0x11,
        sequence: 0x22_3344,
        gid: [7; 16],
        lid: 5,
        mtu: 3,
        depth: 16,
        service_level: 3,
        traffic_class: 106,
    };
    const EXTENT: RegisteredExtent =
        RegisteredExtent { area: 2, rkey: 9, offset: 4096, len: 64, address: 1 << 40 };

    #[test]
    fn bytes_of_an_introduction() {
        let asked = CardRequest::QueuePair(END).encode();
        let mut golden = vec![3, 0, 0, 0, 1, 0, 0, 0, 0x11, 0, 0, 0, 0x44, 0x33, 0x22, 0];
        golden.extend([7; 16]);
        golden.extend([5, 0, 3, 3, 16, 0, 106, 0]);
        assert_eq!(asked, golden);
        assert_eq!(asked.len(), MAX_REQUEST_BYTES);
        assert_eq!(CardRequest::decode(&asked), Ok(CardRequest::QueuePair(END)));
        assert_eq!(CardRequest::decode(&CardRequest::Extents.encode()), Ok(CardRequest::Extents));
        let extents = vec![RegisteredExtent { area: 0, ..EXTENT }, EXTENT];
        let answer = CardReply { end: Some(END), lease: Duration::from_millis(1), extents };
        let bytes = answer.encode();
        assert_eq!(bytes[40..48], [0x40, 0x42, 0x0f, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[80..88], [2, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!((bytes.len(), &bytes[104..]), (112, &(1u64 << 40).to_le_bytes()[..]));
        assert_eq!(CardReply::decode(&bytes), Ok(answer));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut other = CardRequest::Extents.encode();
        other[0] = 1;
        assert!(CardRequest::decode(&other).unwrap_err().contains("version"));
        assert!(CardRequest::decode(&other[1..]).is_err());
        let bad = [
            QueuePairInfo { mtu: 6, ..END },
            QueuePairInfo { depth: 0, ..END },
            QueuePairInfo { number: 1 << 24, ..END },
            QueuePairInfo { service_level: 16, ..END },
        ];
        assert!(bad.iter().all(|end| CardRequest::decode(&CardRequest::QueuePair(*end).encode()).is_err()));
        let bad = [
            vec![EXTENT, EXTENT],
            vec![EXTENT, RegisteredExtent { area: 0, ..EXTENT }],
            vec![RegisteredExtent { len: u64::MAX, ..EXTENT }],
        ];
        for extents in bad {
            assert!(
                CardReply::decode(&CardReply { end: None, lease: Duration::ZERO, extents }.encode()).is_err()
            );
        }
        let short = CardReply { end: None, lease: Duration::ZERO, extents: vec![EXTENT] }.encode();
        assert!((0..short.len()).all(|len| CardReply::decode(&short[..len]).is_err()));
    }
}
