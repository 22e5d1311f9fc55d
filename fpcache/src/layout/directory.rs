//! The directory: one descriptor per segment, in key order, in pages that can be fetched and replaced one by one.
//!
//! ```text
//! root:        one entry per page, in key order:   0 first lo u64 · 8 page offset u64
//! page:  4096  0 magic u32 · 4 count u32 · 8 checksum u64 (of count descriptors, seeded with the checkpoint) · 16 descriptors
//! descriptor:  0 lo u64 · 8 origin u64 · 16 line u64 · 24 address u64 · 32 generation u32 · 36 cap u16 · 38 epsilon u16
//! ```
//!
//! The descriptor's `line` is the eight-byte form of [`fpcache_index::Line`].

use fpcache_index::{Line, SegmentModel};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Corrupt, SegmentAddress, put, u16_at, u32_at, u64_at};

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 40;
/// Bytes of a directory page.
pub const PAGE_BYTES: usize = 4096;
/// Descriptors a page holds.
pub const DESCRIPTORS_PER_PAGE: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / DESCRIPTOR_BYTES;
/// Bytes of one entry of the directory's root.
pub const ROOT_ENTRY_BYTES: usize = 16;

const PAGE_HEADER_BYTES: usize = 16;
const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"FPdp");

/// What a compute node needs to know about one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// First key of the segment's range; the first segment's range begins at the lowest key whatever this says.
    pub lo: u64,
    /// Key to window.
    pub model: SegmentModel,
    /// Where the segment lies.
    pub address: SegmentAddress,
    /// Seed of its slots' checksums.
    pub generation: u32,
}

impl Descriptor {
    /// Writes the descriptor's bytes into `b`, which has [`DESCRIPTOR_BYTES`].
    pub(super) fn encode(&self, b: &mut [u8]) {
        put(b, 0, self.lo.to_le_bytes());
        put(b, 8, self.model.origin.to_le_bytes());
        put(b, 16, self.model.line.to_bits().to_le_bytes());
        put(b, 24, self.address.to_bits().to_le_bytes());
        put(b, 32, self.generation.to_le_bytes());
        put(b, 36, self.model.cap.to_le_bytes());
        put(b, 38, self.model.epsilon.to_le_bytes());
    }

    pub(super) fn decode(b: &[u8]) -> Self {
        Self {
            lo: u64_at(b, 0),
            model: SegmentModel {
                origin: u64_at(b, 8),
                line: Line::from_bits(u64_at(b, 16)),
                cap: u16_at(b, 36),
                epsilon: u16_at(b, 38),
            },
            address: SegmentAddress::from_bits(u64_at(b, 24)),
            generation: u32_at(b, 32),
        }
    }
}

/// Encoding of directory pages.
#[derive(Debug)]
pub struct DirectoryPage;

impl DirectoryPage {
    /// The bytes of a page of `descriptors`, of which there are at most [`DESCRIPTORS_PER_PAGE`], in the directory of this
    /// checkpoint.
    ///
    /// # Panics
    /// If there are more.
    pub fn encode(descriptors: &[Descriptor], checkpoint: u64) -> [u8; PAGE_BYTES] {
        assert!(descriptors.len() <= DESCRIPTORS_PER_PAGE, "a page holds {DESCRIPTORS_PER_PAGE} descriptors");
        let mut page = [0; PAGE_BYTES];
        for (bytes, d) in page[PAGE_HEADER_BYTES..].chunks_exact_mut(DESCRIPTOR_BYTES).zip(descriptors) {
            d.encode(bytes);
        }
        put(&mut page, 0, PAGE_MAGIC.to_le_bytes());
        put(&mut page, 4, (descriptors.len() as u32).to_le_bytes());
        let used = &page[PAGE_HEADER_BYTES..][..descriptors.len() * DESCRIPTOR_BYTES];
        let checksum = xxh3_64_with_seed(used, checkpoint);
        put(&mut page, 8, checksum.to_le_bytes());
        page
    }

    /// Appends the descriptors of the page found at `offset` of the region to `out`. A page of another checkpoint's
    /// directory does not match its checksum.
    pub fn decode(
        page: &[u8],
        offset: u64,
        checkpoint: u64,
        out: &mut Vec<Descriptor>,
    ) -> Result<(), Corrupt> {
        let damaged = |why: &str| Corrupt::new("directory page", offset, why);
        if page.len() != PAGE_BYTES || u32_at(page, 0) != PAGE_MAGIC {
            return Err(damaged("it does not begin as a page does"));
        }
        let count = u32_at(page, 4) as usize;
        let used = page
            .get(PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + count.min(PAGE_BYTES) * DESCRIPTOR_BYTES)
            .ok_or_else(|| damaged("it counts more descriptors than it has room for"))?;
        if xxh3_64_with_seed(used, checkpoint) != u64_at(page, 8) {
            return Err(damaged("its checksum does not match"));
        }
        out.extend(used.chunks_exact(DESCRIPTOR_BYTES).map(Descriptor::decode));
        Ok(())
    }
}

/// One entry of the directory's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootEntry {
    /// `lo` of the page's first descriptor.
    pub lo: u64,
    /// The page's offset in the region.
    pub page: u64,
}

/// The bytes of a root.
pub fn encode_root(entries: &[RootEntry]) -> Vec<u8> {
    entries.iter().flat_map(|e| [e.lo.to_le_bytes(), e.page.to_le_bytes()]).flatten().collect()
}

/// The entries of a root; a trailing part shorter than an entry is ignored.
pub fn decode_root(bytes: &[u8]) -> Vec<RootEntry> {
    let entry = |b: &[u8]| RootEntry { lo: u64_at(b, 0), page: u64_at(b, 8) };
    bytes.chunks_exact(ROOT_ENTRY_BYTES).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(i: u64) -> Descriptor {
        Descriptor {
            lo: i * 1000,
            model: SegmentModel {
                origin: i * 1000 + 1,
                line: Line::from_bits(i << 40 | 77),
                cap: 200,
                epsilon: 32,
            },
            address: SegmentAddress::new(1, 4096 + i * 64).expect("small offset"),
            generation: i as u32,
        }
    }

    #[test]
    fn pages_round_trip_at_every_count() {
        for count in [0, 1, DESCRIPTORS_PER_PAGE] {
            let all: Vec<_> = (0..count as u64).map(descriptor).collect();
            let mut back = Vec::new();
            DirectoryPage::decode(&DirectoryPage::encode(&all, 5), 0, 5, &mut back).expect("own page");
            assert_eq!(back, all);
        }
    }

    #[test]
    fn damaged_pages_are_refused_without_panic() {
        let page = DirectoryPage::encode(&[descriptor(1), descriptor(2)], 0);
        for at in [0, 4, 7, 8, 16, 95] {
            let mut bad = page;
            bad[at] ^= 0x80;
            assert!(DirectoryPage::decode(&bad, 0, 0, &mut Vec::new()).is_err(), "byte {at}");
        }
        assert!(DirectoryPage::decode(&page[..100], 0, 0, &mut Vec::new()).is_err());
        assert!(DirectoryPage::decode(&page, 0, 1, &mut Vec::new()).is_err(), "another checkpoint");
    }

    #[test]
    fn a_descriptor_is_forty_bytes_in_the_drawn_order() {
        let page = DirectoryPage::encode(&[descriptor(3)], 0);
        assert_eq!(&page[..8], b"FPdp\x01\0\0\0");
        let b = &page[16..56];
        assert_eq!(u64_at(b, 0), 3000);
        assert_eq!(u64_at(b, 8), 3001);
        assert_eq!(u64_at(b, 16), 3 << 40 | 77);
        assert_eq!(u64_at(b, 24), 1 << 48 | (4096 + 192));
        assert_eq!((u32_at(b, 32), u16_at(b, 36), u16_at(b, 38)), (3, 200, 32));
    }

    #[test]
    fn roots_round_trip() {
        let entries = [RootEntry { lo: 0, page: 4096 }, RootEntry { lo: 9, page: 8192 }];
        assert_eq!(decode_root(&encode_root(&entries)), entries);
    }
}
