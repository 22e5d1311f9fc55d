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

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The version of these bytes.
pub const VERSION: u32 = 3;
/// Extents that an answer has at most.
pub const MAX_EXTENTS: usize = 2048;
/// The status of a reply that says why there is no answer.
pub const NOT_SERVED: u16 = 3;
/// Most bytes of a request, and of an answer.
pub const MAX_REQUEST_BYTES: usize = size_of::<CardRequestBytes>();
/// Most bytes of an answer.
pub const MAX_ANSWER_BYTES: usize = size_of::<Head>() + MAX_EXTENTS * size_of::<RegisteredExtent>();

/// One end of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
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
    /// The service level of its packets, and of the other's if that one says 0: at most 15.
    pub service_level: u8,
    /// READs and atomics outstanding.
    pub depth: u16,
    /// As the service level.
    pub traffic_class: u8,
    /// Reserved.
    pub zero: u8,
}

/// Registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
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

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct CardRequestBytes {
    version: u32,
    what: u32,
    end: QueuePairInfo,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    version: u32,
    extents: u32,
    end: QueuePairInfo,
    lease: u64,
}

impl QueuePairInfo {
    /// Itself, if it can be.
    fn checked(self) -> Option<Self> {
        let fits = self.number < 1 << 24
            && self.sequence < 1 << 24
            && (1..=5).contains(&self.mtu)
            && self.depth > 0
            && self.service_level < 16
            && self.zero == 0;
        fits.then_some(self)
    }
}

impl CardRequest {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (what, end) = match self {
            Self::QueuePair(end) => (1, *end),
            Self::Extents => (2, QueuePairInfo::new_zeroed()),
        };
        CardRequestBytes { version: VERSION, what, end }.as_bytes().to_vec()
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
        match ask.what {
            1 => ask.end.checked().map(Self::QueuePair).ok_or("a queue pair that cannot be"),
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
        let count = extents.len() as u32;
        let end = self.end.unwrap_or_else(QueuePairInfo::new_zeroed);
        let lease = u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX);
        let head = Head { version: VERSION, extents: count, end, lease };
        [head.as_bytes(), extents.as_bytes()].concat()
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
        let end = if head.end.number == 0 { None } else { head.end.checked() };
        let (extents, rest) = rest.as_chunks::<{ size_of::<RegisteredExtent>() }>();
        if !rest.is_empty() {
            return Err("an answer of another length");
        }
        if extents.len() > MAX_EXTENTS || extents.len() != head.extents as usize {
            return Err("an answer of another number of extents");
        }
        let extents: Vec<RegisteredExtent> =
            extents.iter().map(|extent| zerocopy::transmute!(*extent)).collect();
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
        Ok(Self { end, lease: Duration::from_nanos(head.lease), extents })
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
        service_level: 3,
        depth: 16,
        traffic_class: 106,
        zero: 0,
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
            QueuePairInfo { mtu: 0, ..END },
            QueuePairInfo { mtu: 6, ..END },
            QueuePairInfo { mtu: 255, ..END },
            QueuePairInfo { depth: 0, ..END },
            QueuePairInfo { number: 1 << 24, ..END },
            QueuePairInfo { service_level: 16, ..END },
            QueuePairInfo { zero: 1, ..END },
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
