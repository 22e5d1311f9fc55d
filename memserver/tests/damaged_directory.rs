//! Damage to superblock, table record or directory is an error that says so; it never makes a wrong answer or a panic.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Fixture, Reader, WAYS, scattered};
use fpcache::key_space::U64Keys;
use fpcache::layout::{
    Descriptor, DirectoryPage, PAGE_BYTES, ROOT_ENTRY_BYTES, RootEntry, SUPERBLOCK_BYTES, SegmentAddress,
    Superblock, SuperblockError, TableParameters, TableRecord, decode_root, encode_root,
};
use fpcache::models::PagedModels;
use fpcache::read::ReadError;
use fpcache::snapshot::{OpenError, Snapshot};
use fpcache_index::{Line, SegmentModel};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// A table of several directory pages.
fn fixture() -> Fixture {
    let parameters = TableParameters { epsilon: 1, max_slots: 16, ..TableParameters::default() };
    Fixture::new(scattered(1500), parameters)
}

fn root_of(f: &Fixture) -> (TableRecord, Vec<RootEntry>) {
    let record = *f.open().unwrap().record();
    let root = f.bytes(record.root, record.pages as usize * ROOT_ENTRY_BYTES);
    (record, decode_root(&root))
}

fn assert_reads_right(f: &Fixture) {
    let mut reader = f.reader(WAYS[0]);
    for key in f.keys.iter().step_by(50) {
        assert_eq!(reader.get(*key).unwrap(), Some((1, f.value(*key, 1))));
    }
}

#[test]
fn every_damaged_byte_of_the_superblock_is_noticed_or_harmless() {
    let f = fixture();
    let sound = f.bytes(0, SUPERBLOCK_BYTES);
    let decoded = Superblock::decode::<U64Keys>(&sound).unwrap();
    for at in 0..SUPERBLOCK_BYTES {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[at] ^= flip;
            match Superblock::decode::<U64Keys>(&damaged) {
                // The sequences change on their own, and the last bytes mean nothing.
                Ok(other) => {
                    let same = Superblock {
                        sequence: decoded.sequence,
                        reuse_sequence: decoded.reuse_sequence,
                        log_head: decoded.log_head,
                        ..other
                    };
                    assert_eq!(same, decoded, "byte {at}");
                    assert!((32..48).contains(&at) || at >= SUPERBLOCK_BYTES - 8, "byte {at} is not checked");
                }
                Err(SuperblockError::Changing) => assert!(at >= 12, "byte {at}"),
                Err(SuperblockError::Foreign(_)) => assert!(at < 8, "byte {at}"),
                Err(SuperblockError::Version { .. }) => assert!((8..12).contains(&at), "byte {at}"),
                Err(error) => panic!("byte {at}: {error}"),
            }
        }
    }
}

#[test]
fn a_superblock_that_stays_damaged_is_given_up() {
    let f = fixture();
    let count = f.bytes(48, 1)[0];
    f.with(48, &[count ^ 2], || {
        let error = f.open().map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
    });
    assert_reads_right(&f);
}

/// Replaces the table's record, with everything around it in order.
fn with_record(f: &Fixture, record: TableRecord, check: impl FnOnce()) {
    let sound = Superblock::decode::<U64Keys>(&f.bytes(0, SUPERBLOCK_BYTES)).unwrap();
    let other = Superblock { table: Some(record), ..sound };
    f.with(0, &other.encode::<U64Keys>(), check);
}

#[test]
fn a_record_that_contradicts_the_region_is_refused() {
    let f = fixture();
    let record = root_of(&f).0;
    let empty = xxh3_64(&[]);
    for wrong in [
        TableRecord { segments: record.segments + 1, ..record },
        TableRecord { segments: 0, ..record },
        TableRecord { pages: record.pages - 1, ..record },
        TableRecord { pages: 0, ..record },
        TableRecord { pages: u64::MAX, ..record },
        TableRecord { pages: 1 << 60, ..record },
        TableRecord { root: record.root + 8, ..record },
        TableRecord { root: u64::MAX, ..record },
        TableRecord { root: 1 << 20, ..record },
        TableRecord { root_checksum: record.root_checksum ^ 1, ..record },
        // Nothing at all, consistently: no key would have a segment.
        TableRecord { segments: 0, pages: 0, root_checksum: empty, ..record },
    ] {
        with_record(&f, wrong, || {
            let error = f.open().map(|_| ()).expect_err(&format!("{wrong:?}"));
            assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
            assert!(error.to_string().contains("load its data again"), "{error}");
        });
    }
    assert_reads_right(&f);
}

#[test]
fn a_record_of_other_parameters_is_refused() {
    let f = fixture();
    let sound = f.bytes(0, SUPERBLOCK_BYTES);
    // Key space, fingerprint bits, key bytes, slot bytes, epsilon, fill, slots: each out of its range.
    for at in [64, 68, 72, 80, 84, 88, 92] {
        let mut damaged = sound.clone();
        damaged[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let checksum = {
            let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
            hash.update(&damaged[..32]);
            hash.update(&damaged[48..SUPERBLOCK_BYTES - 16]);
            hash.digest()
        };
        damaged[SUPERBLOCK_BYTES - 16..][..8].copy_from_slice(&checksum.to_le_bytes());
        f.with(0, &damaged, || {
            let error = f.open().map(|_| ()).expect_err("out of range");
            let is_corrupt = matches!(error, OpenError::Superblock(SuperblockError::Corrupt(_)));
            assert!(is_corrupt && error.to_string().contains("table record"), "{error}");
        });
    }
}

#[test]
fn every_damaged_byte_of_the_directory_is_noticed_or_harmless() {
    let f = fixture();
    let (record, root) = root_of(&f);
    assert!(root.len() > 1, "several pages");
    let root_range = record.root..record.root + record.pages * ROOT_ENTRY_BYTES as u64;
    let last = root.last().unwrap().page;
    let descriptors = record.segments as usize % fpcache::layout::DESCRIPTORS_PER_PAGE;
    let used = last..last + 16 + (descriptors * fpcache::layout::DESCRIPTOR_BYTES) as u64;
    for at in root_range.clone().chain(last..last + PAGE_BYTES as u64) {
        let byte = f.bytes(at, 1)[0];
        f.with(at, &[byte ^ 0x41], || match f.open() {
            Ok(_) => assert!(!root_range.contains(&at) && !used.contains(&at), "byte {at} is not checked"),
            Err(OpenError::Corrupt(damage)) => {
                let expected = if root_range.contains(&at) { record.root } else { last };
                assert_eq!(damage.offset, expected, "{damage}");
            }
            Err(error) => panic!("byte {at}: {error}"),
        });
    }
    assert_reads_right(&f);
}

#[test]
fn a_page_in_the_place_of_another_is_noticed() {
    let f = fixture();
    let (_, root) = root_of(&f);
    let (first, second) = (root[0].page, root[1].page);
    let page = f.bytes(second, PAGE_BYTES);
    f.with(first, &page, || {
        let error = f.open().map(|_| ()).expect_err("the same keys twice");
        assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
    });
}

/// The table with the fewest bytes for models that do: pages are fetched when they are needed, and one is kept.
fn open_paged(f: &Fixture, pages: u64) -> Result<Snapshot<U64Keys>, OpenError> {
    let snapshot =
        Snapshot::open_within(&mut f.endpoint(), PagedModels::<U64Keys>::least_bytes(pages) as u64)?;
    assert!(snapshot.models().paged().is_some(), "too small a table");
    Ok(snapshot)
}

#[test]
fn every_damaged_byte_of_a_page_is_noticed_when_the_page_is_fetched() {
    let f = fixture();
    let (record, root) = root_of(&f);
    let last = root.last().unwrap();
    let descriptors = record.segments as usize % fpcache::layout::DESCRIPTORS_PER_PAGE;
    let used = last.page..last.page + 16 + (descriptors * fpcache::layout::DESCRIPTOR_BYTES) as u64;
    let mut reader = Reader::new(f.endpoint(), open_paged(&f, record.pages).unwrap(), WAYS[0]);
    for at in last.page..last.page + PAGE_BYTES as u64 {
        // The page found before gives way.
        assert_eq!(reader.scan(0, 1).unwrap().len(), 1);
        let byte = f.bytes(at, 1)[0];
        f.with(at, &[byte ^ 0x41], || match reader.scan(last.lo, 1) {
            Ok(records) => {
                assert!(!used.contains(&at), "byte {at} is not checked");
                assert_eq!(records.len(), 1);
            }
            Err(ReadError::Corrupt(damage)) => assert_eq!(damage.offset, last.page, "{damage}"),
            Err(error) => panic!("byte {at}: {error}"),
        });
    }
    // Nothing of it is left when the damage is gone, and a scan that does not reach it never minded.
    assert_eq!(reader.scan(0, usize::MAX).unwrap().len(), f.keys.len());
    let byte = f.bytes(last.page + 20, 1)[0];
    f.with(last.page + 20, &[!byte], || {
        assert_eq!(reader.scan(0, 300).unwrap().len(), 300);
        assert!(matches!(reader.scan(0, usize::MAX), Err(ReadError::Corrupt(_))));
    });
}

#[test]
fn a_fetched_page_in_the_place_of_another_is_noticed() {
    let f = fixture();
    let (record, root) = root_of(&f);
    for (place, other) in [(0, 1), (1, 0)] {
        let mut reader = Reader::new(f.endpoint(), open_paged(&f, record.pages).unwrap(), WAYS[0]);
        let page = f.bytes(root[other].page, PAGE_BYTES);
        f.with(root[place].page, &page, || {
            let error = reader.scan(root[place].lo, 1).expect_err("other keys");
            assert!(matches!(&error, ReadError::Corrupt(d) if d.offset == root[place].page), "{error}");
        });
        assert!(!reader.scan(root[place].lo, 1).unwrap().is_empty());
    }
}

#[test]
fn a_root_that_cannot_be_is_refused_however_pages_are_fetched() {
    let f = fixture();
    let (record, root) = root_of(&f);
    let region_bytes = f.bytes(24, 8).try_into().map(u64::from_le_bytes).unwrap();
    let damages: [fn(&mut Vec<RootEntry>, u64); 4] = [
        |root, _| root.swap(0, 1),
        |root, _| root[1].lo = root[0].lo,
        |root, _| root[1].page += 4,
        |root, region_bytes| root[1].page = region_bytes - PAGE_BYTES as u64 + 8,
    ];
    for damage in damages {
        let mut bad = root.clone();
        damage(&mut bad, region_bytes);
        let bytes = encode_root(&bad);
        f.with(record.root, &bytes, || {
            with_record(&f, TableRecord { root_checksum: xxh3_64(&bytes), ..record }, || {
                for result in [f.open(), open_paged(&f, record.pages)] {
                    let error = result.map(|_| ()).expect_err("a bad root");
                    assert!(matches!(&error, OpenError::Corrupt(d) if d.offset == record.root), "{error}");
                }
            });
        });
    }
    for segments in [0, record.pages - 1, record.pages * 102 + 1, u64::MAX] {
        with_record(&f, TableRecord { segments, ..record }, || {
            for result in [f.open(), open_paged(&f, record.pages)] {
                assert!(matches!(result, Err(OpenError::Corrupt(_))), "{segments} segments");
            }
        });
    }
}

/// Descriptors with a right checksum and any content.
fn descriptors() -> impl Strategy<Value = Vec<Descriptor>> {
    let offset = prop_oneof![0..1u64 << 20, any::<u64>(), (0..1u64 << 17).prop_map(|w| w * 8)];
    let key = prop_oneof![any::<u64>(), 0..1000u64];
    let one = (key.clone(), key, any::<u64>(), offset, any::<u32>(), any::<u16>(), any::<u16>()).prop_map(
        |(lo, origin, line, address, generation, cap, epsilon)| Descriptor {
            lo,
            model: SegmentModel { origin, line: Line::from_bits(line), cap, epsilon },
            address: SegmentAddress::from_bits(address),
            generation,
        },
    );
    (prop::collection::vec(one, 1..6), any::<bool>(), 1..200u16).prop_map(|(mut all, sort, cap)| {
        if sort {
            // Likelier to be taken: in order, and small enough to lie inside the region.
            all.sort_by_key(|d| d.lo);
            all.iter_mut().for_each(|d| d.model.cap = d.model.cap % cap + 1);
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lying_directory_makes_errors_but_neither_values_nor_panics(
        all in descriptors(),
        garbage in prop::collection::vec(any::<u8>(), 0..600),
        at in 0..(1usize << 17),
    ) {
        let f = Fixture::new(scattered(40), TableParameters::default());
        let record = root_of(&f).0;
        let (page, root) = (512 << 10, (512 << 10) + PAGE_BYTES as u64);
        f.put(page, &DirectoryPage::encode(&all, 0));
        let entries = encode_root(&[RootEntry { lo: all[0].lo, page }]);
        f.put(root, &entries);
        f.put(4096 + at as u64 * 7, &garbage);
        let lie = TableRecord { root, pages: 1, segments: all.len() as u64, root_checksum: xxh3_64(&entries), ..record };
        with_record(&f, lie, || {
            if f.open().is_err() {
                return;
            }
            for way in WAYS {
                let mut reader = f.reader(way);
                for key in f.keys.iter().copied().chain([0, 1, u64::MAX]).chain(all.iter().map(|d| d.lo)) {
                    if let Ok(Some(answer)) = reader.get(key) {
                        assert_eq!(answer, (1, f.value(key, 1)));
                    }
                }
                if let Ok(records) = reader.scan(0, 5) {
                    records.iter().for_each(|(key, value)| assert_eq!(*value, f.value(*key, 1)));
                }
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lying_pages_fetched_on_demand_make_errors_but_neither_values_nor_panics(
        pages in prop::collection::vec(descriptors(), 1..5),
        honest in any::<bool>(),
        from in prop::collection::vec(any::<u64>(), 1..6),
    ) {
        let f = Fixture::new(scattered(40), TableParameters::default());
        let record = root_of(&f).0;
        let at = |page: usize| (512 << 10) + (page * PAGE_BYTES) as u64;
        let mut entries = Vec::new();
        for (i, all) in pages.iter().enumerate() {
            f.put(at(i), &DirectoryPage::encode(all, 0));
            entries.push(RootEntry { lo: all[0].lo, page: at(i) });
        }
        if honest {
            entries.sort_by_key(|entry| entry.lo);
        }
        let (root, bytes) = (at(pages.len()), encode_root(&entries));
        f.put(root, &bytes);
        let pages = pages.len() as u64;
        // So many segments that they cannot be resident.
        let lie = TableRecord { root, pages, segments: pages * 102, root_checksum: xxh3_64(&bytes), ..record };
        with_record(&f, lie, || {
            let Ok(snapshot) = open_paged(&f, pages) else { return };
            let mut reader = Reader::new(f.endpoint(), snapshot, WAYS[0]);
            for start in from.iter().copied().chain([0, u64::MAX]) {
                if let Ok(records) = reader.scan(start, 5) {
                    records.iter().for_each(|(key, value)| assert_eq!(*value, f.value(*key, 1)));
                }
            }
        });
    }
}
