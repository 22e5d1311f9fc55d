//! The map of a table over several memory nodes: the ranges of keys that each has.
//!
//! Such a table is divided into *ranges* of keys. Each range is a table like any other, on one
//! memory node, whose name ([`RangeMap::table`]) holds the map's creation number and the range's
//! number. A pair of these is never used for other keys, so that a client that reaches a region by
//! that name has the keys it means.
//!
//! ```text
//! 0 magic "FPRANGES" · 8 format version u32 (1) · 12 bytes in all u32 · 16 creation u64 · 24 version u32 · 28 state u32
//! 32 key kind u32 (1 u64, 2 bytes) · 36 bytes of the name u32 · 40 ranges u32 · 44 zero u32 · 48 name, zeros up to a multiple of 8
//!
//! then for each range, in the order of keys:
//!   0 number u32 · 4 bytes of the URL u16 · 6 bytes of the start u16 · 8 bytes of the end u16 · 10 whether there is an end u16
//!   12 zero u32 · 16 URL of its memory node · start · end · zeros up to a multiple of 8
//!
//! last 8 bytes: XXH3-64 of all before
//! ```
//!
//! Keys are bytes whose order is that of keys: of integers eight, big-endian. The first range
//! starts with no bytes, which is not above any key; each of the others where the one before ends;
//! the last one has no end. All integers are little-endian.

mod publication;

use std::borrow::Borrow;

use xxhash_rust::xxh3::xxh3_64;

use crate::cursor::{Cursor, CutShort};
use crate::key_space::{ByteKeys, KeyKind, KeySpace, U64Keys};
use crate::table_name::TableName;

pub use publication::{FIRST_READ_BYTES, MAPS_BYTES, MAPS_OFFSET, Published, encode_published};

/// Most bytes of a map: with that it is a short request.
pub const MAX_MAP_BYTES: usize = 15 << 10;
/// Most memory nodes of a table.
pub const MAX_NODES: usize = 64;

const MAGIC: [u8; 8] = *b"FPRANGES";
const FORMAT_VERSION: u32 = 1;
const HEAD_BYTES: usize = 48;
const RANGE_HEAD_BYTES: usize = 16;
/// Most bytes of the URL of a memory node.
const MAX_URL_BYTES: usize = 256;

/// Whether a table over several memory nodes is there; with its number in maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    /// Not yet: some of its ranges may not have been made.
    Making = 1,
    /// It is.
    Whole = 2,
    /// Not any more: some of its ranges may have been dropped.
    Dropping = 3,
}

/// The map of a table over several memory nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeMap {
    /// The table's name.
    pub name: TableName,
    /// Random bits drawn when the table was made, never 0: they tell it from others of its name.
    pub creation: u64,
    /// Counts up with each change of this map.
    pub version: u32,
    /// Whether the table is there.
    pub state: MapState,
    /// The kind of its keys.
    pub kind: KeyKind,
    /// The ranges, in the order of their keys.
    pub ranges: Vec<MappedRange>,
}

/// A range of keys, and the memory node that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// Its number, which no other range of the table has nor will have.
    pub number: u32,
    /// The URL of its memory node.
    pub node: String,
    /// Its least key, in bytes; none for the range that has all keys below its end.
    pub start: Vec<u8>,
    /// The least key above it; `None`: it has all keys from its start on.
    pub end: Option<Vec<u8>>,
}

/// Why bytes or ranges make no map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the map of a table over several memory nodes is not usable: {0}")]
pub struct MapError(String);

impl MapError {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// The same error, which names the memory node that has the map.
    #[must_use]
    pub fn at(self, node: &str) -> Self {
        if self.0.starts_with(node) { self } else { Self(format!("{node}: {}", self.0)) }
    }
}

impl From<CutShort> for MapError {
    fn from(_: CutShort) -> Self {
        Self::new("it is cut short")
    }
}

impl MapState {
    const ALL: [Self; 3] = [Self::Making, Self::Whole, Self::Dropping];
}

/// A key as bytes whose order is that of keys.
pub fn ordered_bytes<K: KeySpace>(key: &K::Key) -> Vec<u8> {
    match K::word(key) {
        Some(word) => word.to_be_bytes().to_vec(),
        None => {
            let mut bytes = vec![0; K::encoded_len(key)];
            K::encode(key, &mut bytes);
            bytes
        }
    }
}

/// The key with these bytes; no bytes stand for the lowest. `None` if no key has them.
pub fn key_of_bytes<K: KeySpace>(bytes: &[u8]) -> Option<K::Owned> {
    if bytes.is_empty() {
        return Some(K::lowest().to_owned());
    }
    if K::word(K::lowest()).is_none() {
        return Some(K::view(bytes)?.borrow().to_owned());
    }
    let word = u64::from_be_bytes(bytes.try_into().ok()?);
    Some(K::view(&word.to_le_bytes())?.borrow().to_owned())
}

impl RangeMap {
    /// The map of a table that is being made: one range for each of the memory nodes, in their
    /// order, divided at these keys.
    ///
    /// # Errors
    /// If that makes no map.
    pub fn divide(
        name: TableName,
        kind: KeyKind,
        creation: u64,
        nodes: &[String],
        split_at: &[Vec<u8>],
    ) -> Result<Self, MapError> {
        if nodes.len() != split_at.len() + 1 {
            return Err(MapError::new(format!(
                "{} memory nodes need {} keys to divide the table at, there are {}",
                nodes.len(),
                nodes.len().saturating_sub(1),
                split_at.len()
            )));
        }
        let starts = std::iter::once(Vec::new()).chain(split_at.iter().cloned());
        let ends = split_at.iter().cloned().map(Some).chain([None]);
        let ranges = nodes.iter().zip(starts).zip(ends).zip(0..);
        let range = |(((node, start), end), number): (((&String, _), _), u32)| MappedRange {
            number,
            node: node.clone(),
            start,
            end,
        };
        let ranges = ranges.map(range).collect();
        let map = Self { name, creation, version: 1, state: MapState::Making, kind, ranges };
        map.check()?;
        Ok(map)
    }

    /// The same in its next version, in this state.
    ///
    /// # Errors
    /// If there is no later version.
    pub fn next(&self, state: MapState) -> Result<Self, MapError> {
        let version = self.version.checked_add(1);
        let version = version.ok_or_else(|| MapError::new("it has the last version that there is"))?;
        Ok(Self { version, state, ..self.clone() })
    }

    /// The name of a range's table on its memory node.
    ///
    /// # Errors
    /// If the table's name is too long: not of a map that was checked.
    pub fn table(&self, range: &MappedRange) -> Result<TableName, MapError> {
        self.name.of_range(self.creation, range.number).map_err(|error| MapError::new(error.to_string()))
    }

    /// Whether this says of each range what `other` does, and of which keys it has.
    pub fn has_ranges_of(&self, other: &Self) -> bool {
        (self.name, self.creation, self.kind) == (other.name, other.creation, other.kind)
            && self.ranges == other.ranges
    }

    /// Checks that the ranges are those of a table: in order, without gap or overlap, all keys
    /// theirs.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), MapError> {
        match self.kind {
            KeyKind::U64 => self.check_of::<U64Keys>(),
            KeyKind::Bytes => self.check_of::<ByteKeys>(),
        }
    }

    fn check_of<K: KeySpace>(&self) -> Result<(), MapError> {
        if self.creation == 0 || self.version == 0 {
            return Err(MapError::new("it has no creation number or no version"));
        }
        let (Some(first), Some(last)) = (self.ranges.first(), self.ranges.last()) else {
            return Err(MapError::new("it has no range"));
        };
        if self.ranges.len() > MAX_NODES {
            return Err(MapError::new(format!(
                "it has {} ranges, a table has at most {MAX_NODES}: use fewer memory nodes",
                self.ranges.len()
            )));
        }
        if !first.start.is_empty() {
            return Err(MapError::new("no range has the keys below the first one"));
        }
        if last.end.is_some() {
            return Err(MapError::new("no range has the keys above the last one"));
        }
        for (i, range) in self.ranges.iter().enumerate() {
            let (number, url) = (range.number, range.node.len());
            if !(1..=MAX_URL_BYTES).contains(&url) {
                return Err(MapError::new(format!("the URL of range {number} has {url} bytes")));
            }
            self.table(range)?;
            if self.ranges[..i].iter().any(|other| other.number == number) {
                return Err(MapError::new(format!("two ranges have the number {number}")));
            }
            let bounds = [Some(&range.start).filter(|_| i > 0), range.end.as_ref()];
            for bound in bounds.into_iter().flatten() {
                let key = key_of_bytes::<K>(bound).filter(|_| !bound.is_empty());
                if key.is_none_or(|key| ordered_bytes::<K>(key.borrow()) != *bound) {
                    return Err(MapError::new(format!("range {number} is bounded by what is no key")));
                }
            }
            match (&range.end, self.ranges.get(i + 1)) {
                (Some(end), Some(next)) if *end < next.start => {
                    return Err(MapError::new(format!(
                        "no range has the keys between ranges {number} and {}",
                        next.number
                    )));
                }
                (Some(end), Some(next)) if *end > next.start => {
                    return Err(MapError::new(format!("ranges {number} and {} overlap", next.number)));
                }
                (None, Some(next)) => {
                    return Err(MapError::new(format!("ranges {number} and {} overlap", next.number)));
                }
                _ => {}
            }
            // As keys: the first range starts with no bytes, and may have to end at the lowest key.
            let start = key_of_bytes::<K>(&range.start);
            if range.end.as_ref().is_some_and(|end| key_of_bytes::<K>(end) <= start) {
                return Err(MapError::new(format!(
                    "range {number} has no keys: its end is not above its start"
                )));
            }
        }
        let bytes = self.encoded_bytes();
        if bytes > MAX_MAP_BYTES {
            return Err(MapError::new(format!(
                "it takes {bytes} bytes, at most {MAX_MAP_BYTES} are allowed: divide the table at shorter keys, or among fewer \
                 memory nodes"
            )));
        }
        Ok(())
    }

    fn encoded_bytes(&self) -> usize {
        let range = |range: &MappedRange| {
            let end = range.end.as_ref().map_or(0, Vec::len);
            (RANGE_HEAD_BYTES + range.node.len() + range.start.len() + end).next_multiple_of(8)
        };
        HEAD_BYTES
            + self.name.as_str().len().next_multiple_of(8)
            + self.ranges.iter().map(range).sum::<usize>()
            + 8
    }

    /// Its bytes. There is one way to write a map that was [checked](Self::check).
    pub fn encode(&self) -> Vec<u8> {
        let bytes = self.encoded_bytes();
        let mut out = Vec::with_capacity(bytes);
        let name = self.name.as_str().as_bytes();
        out.extend(MAGIC);
        out.extend(FORMAT_VERSION.to_le_bytes());
        // A map that was checked is short.
        out.extend((bytes as u32).to_le_bytes());
        out.extend(self.creation.to_le_bytes());
        for word in
            [self.version, self.state as u32, self.kind.id(), name.len() as u32, self.ranges.len() as u32, 0]
        {
            out.extend(word.to_le_bytes());
        }
        out.extend(name);
        out.resize(out.len().next_multiple_of(8), 0);
        for range in &self.ranges {
            let end = range.end.as_deref().unwrap_or_default();
            out.extend(range.number.to_le_bytes());
            for len in [range.node.len(), range.start.len(), end.len(), usize::from(range.end.is_some())] {
                out.extend((len as u16).to_le_bytes());
            }
            out.extend([0; 4]);
            out.extend(range.node.as_bytes());
            out.extend(&range.start);
            out.extend(end);
            out.resize(out.len().next_multiple_of(8), 0);
        }
        out.extend(xxh3_64(&out).to_le_bytes());
        out
    }

    /// Reads a map, and checks it.
    ///
    /// # Errors
    /// If the bytes are none, of another version, or not as a map that is usable is written.
    pub fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        let mut head = Cursor::new(bytes);
        if head.array() != Ok(MAGIC) {
            return Err(MapError::new("it is no map"));
        }
        // Before the checksum: another version may place it elsewhere.
        let version = head.u32()?;
        if version != FORMAT_VERSION {
            return Err(MapError::new(format!(
                "it has version {version}, this release has {FORMAT_VERSION}: run the same release everywhere"
            )));
        }
        if head.u32()? as usize != bytes.len() || bytes.len() > MAX_MAP_BYTES {
            return Err(MapError::new("it has another length than it says"));
        }
        let (content, checksum) = head.rest().split_last_chunk().ok_or(CutShort)?;
        if xxh3_64(&bytes[..bytes.len() - 8]) != u64::from_le_bytes(*checksum) {
            return Err(MapError::new("its checksum does not match"));
        }
        let mut rest = Cursor::new(content);
        let (creation, version, state, kind) = (rest.u64()?, rest.u32()?, rest.u32()?, rest.u32()?);
        let (name_bytes, count, _zero) = (rest.u32()? as usize, rest.u32()?, rest.u32()?);
        let state = MapState::ALL.into_iter().find(|it| *it as u32 == state);
        let unknown = || MapError::new(format!("keys of the kind {kind} are unknown"));
        let kind = KeyKind::of_id(kind).ok_or_else(unknown)?;
        let name = TableName::from_bytes(padded(&mut rest, name_bytes)?);
        let mut ranges = Vec::new();
        for _ in 0..count.min(MAX_NODES as u32 + 1) {
            ranges.push(take_range(&mut rest)?);
        }
        let map = Self {
            name: name.map_err(|error| MapError::new(error.to_string()))?,
            creation,
            version,
            state: state.ok_or_else(|| MapError::new("its state is unknown"))?,
            kind,
            ranges,
        };
        map.check()?;
        // So that there is one way to write it: what is not read is what it would be.
        match map.encode() == bytes {
            true => Ok(map),
            false => Err(MapError::new("it is written in another way than maps are")),
        }
    }
}

fn take_range(rest: &mut Cursor<'_>) -> Result<MappedRange, MapError> {
    let (number, [node, start, end]) =
        (rest.u32()?, [rest.u16()?, rest.u16()?, rest.u16()?].map(usize::from));
    let (has_end, _zero) = (rest.u16()? != 0, rest.u32()?);
    let mut parts = Cursor::new(padded(rest, node + start + end)?);
    let node =
        std::str::from_utf8(parts.bytes(node)?).map_err(|_| MapError::new("a URL is no text"))?.to_owned();
    let (start, end) = (parts.bytes(start)?.to_vec(), parts.bytes(end)?.to_vec());
    Ok(MappedRange { number, node, start, end: has_end.then_some(end) })
}

/// Takes `len` bytes, and the zeros up to a multiple of 8 after them.
fn padded<'b>(rest: &mut Cursor<'b>, len: usize) -> Result<&'b [u8], CutShort> {
    rest.bytes(len.next_multiple_of(8)).map(|bytes| &bytes[..len])
}

#[cfg(test)]
mod tests;
