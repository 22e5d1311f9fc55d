//! The publication of a memory node's maps: in its lobby, after the superblock, where clients READ
//! them.
//!
//! ```text
//! 0 magic "FPMAPS\0\0" · 8 sequence u64 · 16 bytes of the maps u64 · 24 XXH3-64 of the maps · 32–55 zero
//! 56 XXH3-64 of bytes 0–55 · 64 the maps, one after another
//! ```
//!
//! The memory node stores the maps first and the head after them. A reader believes a head whose
//! checksum matches, and maps whose checksum is the head's: READs may tear, and what was torn is
//! READ again.

use xxhash_rust::xxh3::xxh3_64;

use super::{MAX_MAP_BYTES, MapError, RangeMap};
use crate::layout::SUPERBLOCK_BYTES;

/// Where in a lobby they lie.
pub const MAPS_OFFSET: u64 = SUPERBLOCK_BYTES as u64;
/// Bytes there are for them, head included.
pub const MAPS_BYTES: usize = 1 << 20;
/// Bytes that are READ at first: mostly that is all.
pub const FIRST_READ_BYTES: usize = 16 << 10;

const MAGIC: [u8; 8] = *b"FPMAPS\0\0";
const HEAD_BYTES: usize = 64;

/// The maps of a memory node, as READ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// All of them.
    Whole(Vec<RangeMap>),
    /// There are more: READ this many bytes.
    Needs(usize),
    /// They were being changed: READ them again.
    Torn,
}

/// The bytes of these maps as a memory node publishes them; `None` if there is no room for them.
pub fn encode_published<'m>(sequence: u64, maps: impl IntoIterator<Item = &'m RangeMap>) -> Option<Vec<u8>> {
    let mut out = vec![0; HEAD_BYTES];
    for map in maps {
        out.extend(map.encode());
    }
    if out.len() > MAPS_BYTES {
        return None;
    }
    let (head, maps) = out.split_at_mut(HEAD_BYTES);
    head[..8].copy_from_slice(&MAGIC);
    head[8..16].copy_from_slice(&sequence.to_le_bytes());
    head[16..24].copy_from_slice(&(maps.len() as u64).to_le_bytes());
    head[24..32].copy_from_slice(&xxh3_64(maps).to_le_bytes());
    let checksum = xxh3_64(&head[..HEAD_BYTES - 8]);
    head[HEAD_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    Some(out)
}

impl Published {
    /// The maps in these bytes, which were READ from [`MAPS_OFFSET`] on.
    ///
    /// # Errors
    /// If whole maps are not usable.
    pub fn read(bytes: &[u8]) -> Result<Self, MapError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(Self::Needs(HEAD_BYTES));
        };
        let [magic, _, len, checksum, .., own] = *head.as_chunks::<8>().0 else { return Ok(Self::Torn) };
        if magic != MAGIC || xxh3_64(&head[..HEAD_BYTES - 8]) != u64::from_le_bytes(own) {
            return Ok(Self::Torn);
        }
        let len = u64::from_le_bytes(len);
        if len > (MAPS_BYTES - HEAD_BYTES) as u64 {
            return Err(MapError::new("the maps of its memory node are longer than there is room for"));
        }
        let Some(maps) = rest.get(..len as usize) else {
            return Ok(Self::Needs((HEAD_BYTES + len as usize).next_multiple_of(8)));
        };
        if xxh3_64(maps) != u64::from_le_bytes(checksum) {
            return Ok(Self::Torn);
        }
        let (mut maps, mut all) = (maps, Vec::new());
        while !maps.is_empty() {
            let len = maps.get(12..).and_then(|rest| rest.first_chunk()).map(|len| u32::from_le_bytes(*len));
            let len = len.map_or(0, |len| len as usize);
            let (map, after) = maps
                .split_at_checked(len)
                .filter(|(map, _)| (1..=MAX_MAP_BYTES).contains(&map.len()))
                .ok_or_else(|| MapError::new("it is longer than there is room for"))?;
            all.push(RangeMap::decode(map)?);
            maps = after;
        }
        Ok(Self::Whole(all))
    }
}
