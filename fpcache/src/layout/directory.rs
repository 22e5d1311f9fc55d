//! The directory: one descriptor per segment, in key order, in pages that can be fetched and
//! replaced one by one.
//!
//! ```text
//! root:        one entry per page, in key order:   separator of its first descriptor · page offset u64
//! page:        0 magic u32 · 4 descriptors u16 · 6 their bytes u16 · 8 checksum u64 (of these, seeded with the checkpoint) · 16 descriptors
//! descriptor:  separator · 0 origin u64 · 8 line u64 · 16 address u64 · 24 generation u32 · 28 cap u16 · 30 epsilon u16
//!
//! separator    u64 keys:   start u64
//!              bytes:      0 skip u16 · 2 encoder u8 · 3 zero u8 · 4 bytes shared with the separator before, in page or root u16 · 6 more bytes u16 · 8 these
//! ```
//!
//! A page has 4 KiB for u64 keys, 16 KiB for byte strings. The descriptor's `line` is the
//! eight-byte form of [`fpcache_index::Line`].

use std::borrow::Borrow;

use fpcache_index::{Line, SegmentModel};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Corrupt, SegmentAddress, field, put, u16_at, u32_at, u64_at};
use crate::key_space::KeySpace;

const MODEL_BYTES: usize = 32;
const PAGE_HEADER_BYTES: usize = 16;
const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"FPdp");

/// All that a compute node needs to know about one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor<K: KeySpace> {
    /// First key of the segment's range; the first segment's range begins at the lowest key
    /// whatever this says.
    pub start: K::Owned,
    /// The data that coordinates depend on beside the key.
    pub tail: K::Tail,
    /// Key to window.
    pub model: SegmentModel,
    /// Where the segment lies.
    pub address: SegmentAddress,
    /// Seed of its slots' checksums.
    pub generation: u32,
}

impl<K: KeySpace> Descriptor<K> {
    /// Appends the descriptor's bytes, after those of one whose range begins at `before`.
    pub(super) fn encode(&self, before: Option<&K::Key>, out: &mut Vec<u8>) {
        K::put_separator(self.start.borrow(), self.tail, before, out);
        out.extend(self.model.origin.to_le_bytes());
        out.extend(self.model.line.to_bits().to_le_bytes());
        out.extend(self.address.to_bits().to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.model.cap.to_le_bytes());
        out.extend(self.model.epsilon.to_le_bytes());
    }

    /// Reads what [`encode`](Self::encode) wrote, and returns what lies after.
    pub(super) fn decode<'b>(before: Option<&K::Key>, bytes: &'b [u8]) -> Option<(Self, &'b [u8])> {
        let (start, tail, rest) = K::take_separator(before, bytes)?;
        let (b, after) = rest.split_first_chunk::<MODEL_BYTES>()?;
        let model = SegmentModel {
            origin: u64_at(b, 0),
            line: Line::from_bits(u64_at(b, 8)),
            cap: u16_at(b, 28),
            epsilon: u16_at(b, 30),
        };
        let address = SegmentAddress::from_bits(u64_at(b, 16));
        Some((Self { start, tail, model, address, generation: u32_at(b, 24) }, after))
    }
}

/// Encoding of directory pages.
#[derive(Debug)]
pub struct DirectoryPage;

impl DirectoryPage {
    /// The bytes of a page of the first of `descriptors`, as many as fit, in the directory of this
    /// checkpoint; and how many those are: at least one, unless there are no descriptors.
    pub fn encode<K: KeySpace>(descriptors: &[Descriptor<K>], checkpoint: u64) -> (Vec<u8>, usize) {
        let mut page = vec![0; PAGE_HEADER_BYTES];
        page.reserve(K::PAGE_BYTES);
        let (mut count, mut before) = (0, None);
        for descriptor in descriptors {
            let end = page.len();
            descriptor.encode(before, &mut page);
            if page.len() > K::PAGE_BYTES {
                page.truncate(end);
                break;
            }
            before = Some(descriptor.start.borrow());
            count += 1;
        }
        let checksum = xxh3_64_with_seed(&page[PAGE_HEADER_BYTES..], checkpoint);
        let used = page.len() - PAGE_HEADER_BYTES;
        page.resize(K::PAGE_BYTES, 0);
        put(&mut page, 0, PAGE_MAGIC.to_le_bytes());
        // A page has fewer bytes than a u16 counts.
        put(&mut page, 4, (count as u16).to_le_bytes());
        put(&mut page, 6, (used as u16).to_le_bytes());
        put(&mut page, 8, checksum.to_le_bytes());
        (page, count)
    }

    /// Most descriptors a page can hold.
    pub const fn most_descriptors<K: KeySpace>() -> usize {
        // No separator is shorter than eight bytes.
        (K::PAGE_BYTES - PAGE_HEADER_BYTES) / (8 + MODEL_BYTES)
    }

    /// Appends the descriptors of the page found at `offset` of the region to `out`. A page of
    /// another checkpoint's directory does not match its checksum.
    pub fn decode<K: KeySpace>(
        page: &[u8],
        offset: u64,
        checkpoint: u64,
        out: &mut Vec<Descriptor<K>>,
    ) -> Result<(), Corrupt> {
        let damaged = |why: &str| Corrupt::new("directory page", offset, why);
        if page.len() != K::PAGE_BYTES || u32_at(page, 0) != PAGE_MAGIC {
            return Err(damaged("it does not begin as a page does"));
        }
        let (count, used) = (u16_at(page, 4), usize::from(u16_at(page, 6)));
        let mut rest = page
            .get(PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + used)
            .ok_or_else(|| damaged("it counts more bytes than it has"))?;
        if xxh3_64_with_seed(rest, checkpoint) != u64_at(page, 8) {
            return Err(damaged("its checksum does not match"));
        }
        let first = out.len();
        for _ in 0..count {
            let before = out.get(first..).and_then(<[_]>::last).map(|d: &Descriptor<K>| d.start.borrow());
            let (descriptor, after) =
                Descriptor::decode(before, rest).ok_or_else(|| damaged("a descriptor is cut short"))?;
            out.push(descriptor);
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(damaged("there are bytes after its descriptors")) }
    }
}

/// One entry of the directory's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootEntry<K: KeySpace> {
    /// `start` of the page's first descriptor.
    pub start: K::Owned,
    /// The page's offset in the region.
    pub page: u64,
}

/// The bytes of a root.
pub fn encode_root<K: KeySpace>(entries: &[RootEntry<K>]) -> Vec<u8> {
    let (mut out, mut before) = (Vec::new(), None);
    for entry in entries {
        K::put_separator(entry.start.borrow(), K::Tail::default(), before, &mut out);
        out.extend(entry.page.to_le_bytes());
        before = Some(entry.start.borrow());
    }
    out
}

/// The entries of a root of `pages` pages, which ascend; `None` if these are not the bytes of one.
///
/// Few bytes may be many entries that share most of their separators, which take their whole length
/// here: so no more are made than there are pages, and none after one out of order.
pub fn decode_root<K: KeySpace>(mut bytes: &[u8], pages: u64) -> Option<Vec<RootEntry<K>>> {
    let mut entries: Vec<RootEntry<K>> = Vec::new();
    while !bytes.is_empty() {
        if entries.len() as u64 == pages {
            return None;
        }
        let before = entries.last().map(|entry| entry.start.borrow());
        let (start, _, rest) = K::take_separator(before, bytes)?;
        if before.is_some_and(|before| start.borrow() <= before) {
            return None;
        }
        let (_, after) = rest.split_first_chunk::<8>()?;
        let page = u64::from_le_bytes(field(rest, 0));
        entries.push(RootEntry { start, page });
        bytes = after;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::{ByteKeys, ByteTail, U64Keys};

    impl<K: KeySpace> Descriptor<K> {
        /// The descriptor of a segment that is told from others by its number.
        pub(crate) fn example(i: u64, start: K::Owned, tail: K::Tail) -> Self {
            let line = Line::from_bits(i << 40 | 77);
            let model = SegmentModel { origin: i * 1000 + 1, line, cap: 200, epsilon: 32 };
            let address = SegmentAddress::new(1, 4096 + i * 64).expect("small offset");
            Self { start, tail, model, address, generation: i as u32 }
        }
    }

    fn number(i: u64) -> Descriptor<U64Keys> {
        Descriptor::example(i, i * 1000, ())
    }

    fn path(i: u64) -> Descriptor<ByteKeys> {
        Descriptor::example(i, format!("/usr/share/{i:09}").into_bytes(), ByteTail { skip: 11, encoder: 0 })
    }

    fn assert_round_trips<K: KeySpace>(all: &[Descriptor<K>], most: usize) {
        for count in [0, 1, most, all.len()] {
            let (page, held) = DirectoryPage::encode(&all[..count], 5);
            assert_eq!((page.len(), held), (K::PAGE_BYTES, count.min(most)));
            let mut back = Vec::new();
            DirectoryPage::decode(&page, 0, 5, &mut back).expect("own page");
            assert_eq!(back, all[..held]);
        }
    }

    #[test]
    fn pages_round_trip_at_every_count_and_hold_what_fits() {
        assert_eq!(DirectoryPage::most_descriptors::<U64Keys>(), 102);
        assert_round_trips(&(0..110).map(number).collect::<Vec<_>>(), 102);
        // The first separator has 20 bytes; of the others, 354 have one byte that the one before
        // lacks, 39 two and 3 three.
        assert_eq!(397 * 40 + 20 + 354 + 39 * 2 + 3 * 3, 16_341);
        assert_round_trips(&(0..500).map(path).collect::<Vec<_>>(), 397);
    }

    #[test]
    fn a_page_holds_one_of_the_longest_separators() {
        let long =
            |byte| Descriptor::<ByteKeys>::example(1, vec![byte; 4097], ByteTail { skip: 4096, encoder: 0 });
        let (_, held) = DirectoryPage::encode(&[long(1), long(2), long(3), long(4), long(5)], 0);
        assert_eq!(held, 3);
    }

    #[test]
    fn damaged_pages_are_refused_without_panic() {
        let (page, _) = DirectoryPage::encode(&[number(1), number(2)], 0);
        let decode =
            |page: &[u8], checkpoint| DirectoryPage::decode::<U64Keys>(page, 0, checkpoint, &mut Vec::new());
        for at in [0, 4, 6, 7, 8, 16, 95] {
            let mut bad = page.clone();
            bad[at] ^= 0x80;
            assert!(decode(&bad, 0).is_err(), "byte {at}");
        }
        assert!(decode(&page[..100], 0).is_err());
        assert!(decode(&page, 1).is_err(), "another checkpoint");
        assert!(DirectoryPage::decode::<ByteKeys>(&page, 0, 0, &mut Vec::new()).is_err());
    }

    #[test]
    fn a_descriptor_of_integer_keys_is_forty_bytes_in_the_drawn_order() {
        let (page, _) = DirectoryPage::encode(&[number(3)], 0);
        assert_eq!(&page[..8], b"FPdp\x01\0\x28\0");
        let b = &page[16..56];
        assert_eq!(u64_at(b, 0), 3000);
        assert_eq!(u64_at(b, 8), 3001);
        assert_eq!(u64_at(b, 16), 3 << 40 | 77);
        assert_eq!(u64_at(b, 24), 1 << 48 | (4096 + 192));
        assert_eq!((u32_at(b, 32), u16_at(b, 36), u16_at(b, 38)), (3, 200, 32));
    }

    #[test]
    fn roots_round_trip_and_cut_ones_are_refused() {
        let entries = [RootEntry::<U64Keys> { start: 0, page: 4096 }, RootEntry { start: 9, page: 8192 }];
        let bytes = encode_root(&entries);
        assert_eq!(decode_root(&bytes, 2).as_deref(), Some(&entries[..]));
        assert_eq!(decode_root::<U64Keys>(&bytes[..31], 2), None);
        let key = |text: &str| text.as_bytes().to_vec();
        let entries = [("", 4096), ("/a/b", 8192), ("/a/c", 12288)]
            .map(|(text, page)| RootEntry::<ByteKeys> { start: key(text), page });
        let bytes = encode_root(&entries);
        assert_eq!(decode_root(&bytes, 3).as_deref(), Some(&entries[..]));
        assert_eq!(decode_root::<ByteKeys>(&bytes, 2), None);
    }

    /// A few bytes an entry unfolded into kibibytes each before the order was looked at.
    #[test]
    fn a_root_is_refused_at_the_first_entry_out_of_order() {
        for (before, after) in [(9, 9), (9, 8), (u64::MAX, 0)] {
            let entries = [0, before, after].map(|start| RootEntry::<U64Keys> { start, page: 4096 });
            assert_eq!(decode_root::<U64Keys>(&encode_root(&entries), 3), None, "{before} {after}");
        }
        let long = vec![b'a'; 4000];
        let entries = [&long, &long].map(|start| RootEntry::<ByteKeys> { start: start.clone(), page: 4096 });
        assert_eq!(decode_root::<ByteKeys>(&encode_root(&entries), 2), None);
    }
}
