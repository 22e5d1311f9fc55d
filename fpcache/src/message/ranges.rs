//! Requests about the ranges of tables over several memory nodes, which any connection takes.
//!
//! ```text
//! 12 range create  0 bytes of its region u64 (0: as many as there are) · 8 number of the range u32 · 12 bytes of the map u32 · 16 map
//!                  reply empty. The range is made as the map has it; done if it is there and has this map
//! 13 range map     0 zero u64 · 8 number of a range u32 · 12 bytes of the map u32 · 16 map
//!                  reply empty. The range goes on with this map, of the same ranges and a later version; done if it has it
//! ```
//!
//! The map's bytes: see [`crate::map`].

use super::header::{MessageError, begin, end, length_of, malformed, operation_of, split};
use crate::map::{MappedRange, RangeMap};

/// A request about a range of a table over several memory nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// Makes an empty table for a range.
    Create {
        /// The map it is a range of.
        map: RangeMap,
        /// Which one.
        number: u32,
        /// Bytes of its region; `None`: as many as the memory node has for all tables.
        region_bytes: Option<u64>,
    },
    /// Gives a range a later version of its map.
    Map {
        /// The map.
        map: RangeMap,
        /// The range.
        number: u32,
    },
}

impl RangeRequest {
    const CREATE: u16 = 12;
    const MAP: u16 = 13;

    /// Whether a request is one of these, whatever else it holds.
    #[inline]
    pub fn is_one(request: &[u8]) -> bool {
        operation_of(request).is_some_and(|operation| (Self::CREATE..=Self::MAP).contains(&operation))
    }

    /// Writes the request into `out`, replacing what it held.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (operation, map, number, region_bytes) = match self {
            Self::Create { map, number, region_bytes } => (Self::CREATE, map, number, *region_bytes),
            Self::Map { map, number } => (Self::MAP, map, number, None),
        };
        let map = map.encode();
        begin(operation, out);
        out.extend(region_bytes.unwrap_or(0).to_le_bytes());
        out.extend(number.to_le_bytes());
        out.extend(length_of(&map).to_le_bytes());
        out.extend(map);
    }

    /// Reads a request.
    ///
    /// # Errors
    /// If it is none of these, of another version, or its map is not usable or has no such range.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (operation, mut body) = split(bytes)?;
        let (region, number, map_bytes) = (body.u64()?, body.u32()?, body.u32()?);
        let map = body.bytes(map_bytes as usize)?;
        end(body)?;
        let map = RangeMap::decode(map).map_err(|error| malformed(error.to_string()))?;
        if !map.ranges.iter().any(|range| range.number == number) {
            return Err(malformed(format!("the map has no range {number}")));
        }
        match operation {
            Self::CREATE => Ok(Self::Create { map, number, region_bytes: (region > 0).then_some(region) }),
            Self::MAP if region == 0 => Ok(Self::Map { map, number }),
            other => Err(malformed(format!("operation {other} is unknown"))),
        }
    }

    /// The map, and the range that the request is about.
    pub fn range(&self) -> Option<(&RangeMap, &MappedRange)> {
        let (Self::Create { map, number, .. } | Self::Map { map, number }) = self;
        Some((map, map.ranges.iter().find(|range| range.number == *number)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::{KeyKind, U64Keys};
    use crate::message::{PROTOCOL_VERSION, Request, TablesRequest};

    fn map() -> RangeMap {
        let nodes = ["shm://a".to_owned(), "shm://b".to_owned()];
        let name = "t".parse().expect("a name");
        RangeMap::divide(name, KeyKind::U64, 5, &nodes, &[9u64.to_be_bytes().to_vec()]).expect("a map")
    }

    #[test]
    fn requests_have_the_drawn_bytes() {
        let requests = [
            (12, RangeRequest::Create { map: map(), number: 1, region_bytes: Some(0x0102) }, 0x0102),
            (
                13,
                RangeRequest::Map {
                    map: map().next(crate::map::MapState::Whole).expect("a version"),
                    number: 1,
                },
                0,
            ),
        ];
        for (operation, request, region) in requests {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            let (map, range) = request.range().expect("it has one");
            let map = map.encode();
            assert_eq!(bytes[..8], [operation, 0, PROTOCOL_VERSION as u8, 0, 0, 0, 0, 0]);
            assert_eq!(bytes[8..16], u64::to_le_bytes(region));
            assert_eq!(bytes[16..20], range.number.to_le_bytes());
            assert_eq!(bytes[20..24], (map.len() as u32).to_le_bytes());
            assert_eq!(bytes[24..], map);
            assert_eq!(RangeRequest::decode(&bytes), Ok(request));
            assert!(RangeRequest::is_one(&bytes) && !TablesRequest::is_one(&bytes));
            assert!(Request::decode::<U64Keys>(0, &bytes).is_err(), "it is no request to a table");
            for cut in 0..bytes.len() {
                assert!(RangeRequest::decode(&bytes[..cut]).is_err(), "cut to {cut}");
            }
            bytes[16] = 2;
            assert!(RangeRequest::decode(&bytes).expect_err("range 2").to_string().contains("no range 2"));
            bytes.push(0);
            assert!(RangeRequest::decode(&bytes).is_err(), "longer than it says");
        }
    }
}
