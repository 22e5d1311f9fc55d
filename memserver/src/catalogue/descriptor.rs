//! The descriptor file that a durable memory node writes when it creates a table.
//!
//! ```text
//! table.fpt, 64 bytes:  0 magic "FPTABLE\0" · 8 format version u32 · 12 key kind u32 (1 u64, 2 bytes) · 16 bytes of the region
//!                       u64 (0: as many as the memory node has) · 24 creation number u64 · 32–55 zero · 56 XXH3-64 of bytes 0–55
//! ```
//! The creation number is not 0. It distinguishes the table from earlier and later ones of the same
//! name.
//!
//! All integers are little-endian.

use fpcache::key_space::KeyKind;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 64;

/// The version of a table's files; a memory node reads no other.
const FORMAT_VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"FPTABLE\0";
const CHECKED: usize = DESCRIPTOR_BYTES - 8;

/// What a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableDescriptor {
    /// What its keys are.
    pub(crate) kind: KeyKind,
    /// Bytes of its region; `None`: as many as the memory node has.
    pub(crate) region_bytes: Option<u64>,
    /// Its creation number.
    pub(crate) creation: u64,
}

impl TableDescriptor {
    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.kind.id().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.region_bytes.unwrap_or(0).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.creation.to_le_bytes());
        let checksum = xxh3_64(&bytes[..CHECKED]);
        bytes[CHECKED..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a descriptor.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Some(bytes) = bytes.first_chunk::<DESCRIPTOR_BYTES>().filter(|_| bytes.len() == DESCRIPTOR_BYTES)
        else {
            return Err(format!("it has {} bytes, not {DESCRIPTOR_BYTES}", bytes.len()));
        };
        let words = bytes.as_chunks::<8>().0;
        let [magic, first, region, creation, .., checksum] = words else {
            return Err("it is cut short".into());
        };
        if *magic != MAGIC {
            return Err("it describes no table".into());
        }
        let first = u64::from_le_bytes(*first);
        let (version, kind) = (first as u32, (first >> 32) as u32);
        // Before the checksum: another version may place it elsewhere.
        if version != FORMAT_VERSION {
            return Err(format!(
                "it has version {version}, but this release reads version {FORMAT_VERSION}: use the release that wrote it"
            ));
        }
        if xxh3_64(&bytes[..CHECKED]) != u64::from_le_bytes(*checksum) {
            return Err("its checksum does not match".into());
        }
        let kind = KeyKind::of_id(kind).ok_or_else(|| format!("the key kind {kind} is unknown"))?;
        let (region_bytes, creation) = (u64::from_le_bytes(*region), u64::from_le_bytes(*creation));
        if creation == 0 {
            return Err("it has no creation number".into());
        }
        Ok(Self { kind, region_bytes: (region_bytes > 0).then_some(region_bytes), creation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_the_drawn_bytes_and_damage_is_seen() {
        let descriptor =
            TableDescriptor { kind: KeyKind::Bytes, region_bytes: Some(0x0102), creation: 0x0304 };
        let bytes = descriptor.encode();
        let drawn = *b"FPTABLE\0\x02\0\0\0\x02\0\0\0\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0";
        assert_eq!(bytes[..32], drawn);
        assert_eq!(TableDescriptor::decode(&bytes), Ok(descriptor));
        let plain = TableDescriptor { kind: KeyKind::U64, region_bytes: None, creation: 1 };
        assert_eq!(TableDescriptor::decode(&plain.encode()), Ok(plain));
        assert!(TableDescriptor::decode(&TableDescriptor { creation: 0, ..plain }.encode()).is_err());
        for at in 0..DESCRIPTOR_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 0x40;
            assert!(TableDescriptor::decode(&damaged).is_err(), "byte {at}");
        }
        let mut newer = bytes;
        newer[8] = 3;
        let error = TableDescriptor::decode(&newer).expect_err("version 3");
        assert!(error.contains("version 3"), "{error}");
        assert!(TableDescriptor::decode(&bytes[..63]).is_err() && TableDescriptor::decode(&[]).is_err());
    }
}
