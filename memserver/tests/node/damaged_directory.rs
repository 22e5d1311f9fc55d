//! Damage to superblock, table record or directory is an error that says so; it never makes a wrong
//! answer or a panic.

use std::borrow::Borrow;

use crate::common::keys::TestKeys;
use crate::common::{Fixture, Reader, WAYS, scattered};
use fpcache::key_space::KeySpace;
use fpcache::layout::{
    Descriptor, DirectoryPage, RootEntry, SUPERBLOCK_BYTES, SegmentAddress, Superblock, SuperblockError,
    TableParameters, TableRecord, decode_root, encode_root,
};
use fpcache::models::PagedModels;
use fpcache::read::ReadError;
use fpcache::table_view::{OpenError, TableView};
use fpcache_index::{Line, SegmentModel};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// A table of several directory pages.
fn fixture<T: TestKeys>() -> Fixture<T> {
    let parameters = TableParameters { epsilon: 1, max_slots: 16, ..T::parameters(8) };
    // Pages of byte strings are longer.
    Fixture::new(scattered(if T::Space::FIXED_BYTES.is_some() { 1500 } else { 8000 }), parameters)
}

fn root_of<T: TestKeys>(f: &Fixture<T>) -> (TableRecord, Vec<RootEntry<T::Space>>) {
    let record = *f.open().unwrap().record();
    let root = f.bytes(record.root, record.root_bytes as usize);
    (record, decode_root::<T::Space>(&root, record.pages).unwrap())
}

/// The bytes of a page that hold something.
fn used<T: TestKeys>(f: &Fixture<T>, page: u64) -> std::ops::Range<u64> {
    let used = f.bytes(page + 6, 2);
    page..page + 16 + u64::from(u16::from_le_bytes([used[0], used[1]]))
}

fn assert_reads_right<T: TestKeys>(f: &Fixture<T>) {
    let mut reader = f.reader(WAYS[0]);
    for key in f.keys.iter().step_by(50) {
        assert_eq!(reader.get(*key).unwrap(), Some((1, f.value(*key, 1))));
    }
}

fn every_damaged_byte_of_the_superblock_is_noticed_or_harmless<T: TestKeys>() {
    let f = fixture::<T>();
    let sound = f.bytes(0, SUPERBLOCK_BYTES);
    let decoded = Superblock::decode::<T::Space>(&sound).unwrap();
    for at in 0..SUPERBLOCK_BYTES {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[at] ^= flip;
            match Superblock::decode::<T::Space>(&damaged) {
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

fn a_superblock_that_stays_damaged_is_given_up<T: TestKeys>() {
    let f = fixture::<T>();
    let count = f.bytes(48, 1)[0];
    f.with(48, &[count ^ 2], || {
        let error = f.open().map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
    });
    assert_reads_right(&f);
}

/// Replaces the table's record, with everything around it in order.
fn with_record<T: TestKeys>(f: &Fixture<T>, record: TableRecord, check: impl FnOnce()) {
    let sound = Superblock::decode::<T::Space>(&f.bytes(0, SUPERBLOCK_BYTES)).unwrap();
    let other = Superblock { table: Some(record), ..sound };
    f.with(0, &other.encode::<T::Space>(), check);
}

fn a_record_that_contradicts_the_region_is_refused<T: TestKeys>() {
    let f = fixture::<T>();
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
        TableRecord { segments: 0, pages: 0, root_checksum: empty, root_bytes: 0, ..record },
        TableRecord { root_bytes: record.root_bytes - 1, ..record },
        TableRecord { root_bytes: u64::MAX, ..record },
        TableRecord { encoders_bytes: u64::MAX, ..record },
        TableRecord { encoders: u64::MAX - 8, encoders_bytes: 16, ..record },
        TableRecord { encoders_bytes: record.encoders_bytes + 1, encoders_checksum: 1, ..record },
        TableRecord { encoders_bytes: record.encoders_bytes ^ 1, ..record },
    ] {
        with_record(&f, wrong, || {
            let error = f.open().map(|_| ()).expect_err(&format!("{wrong:?}"));
            assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
            assert!(error.to_string().contains("load its data again"), "{error}");
        });
    }
    assert_reads_right(&f);
}

fn a_record_of_other_parameters_is_refused<T: TestKeys>() {
    let f = fixture::<T>();
    let sound = f.bytes(0, SUPERBLOCK_BYTES);
    // Key space, fingerprint bits, key bytes, slot bytes, epsilon, fill, slots: each out of its
    // range.
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
            let error = f.open().map(|_| ()).expect_err(&format!("out of range at {at}"));
            let is_corrupt = matches!(error, OpenError::Superblock(SuperblockError::Corrupt(_)));
            assert!(is_corrupt && error.to_string().contains("table record"), "{error}");
        });
    }
}

fn every_damaged_byte_of_the_directory_is_noticed_or_harmless<T: TestKeys>() {
    let f = fixture::<T>();
    let (record, root) = root_of(&f);
    assert!(root.len() > 1, "several pages");
    let root_range = record.root..record.root + record.root_bytes;
    let last = root.last().unwrap().page;
    let used = used(&f, last);
    for at in root_range.clone().chain(last..last + T::Space::PAGE_BYTES as u64).step_by(step::<T>()) {
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

fn a_page_in_the_place_of_another_is_noticed<T: TestKeys>() {
    let f = fixture::<T>();
    let (_, root) = root_of(&f);
    let (first, second) = (root[0].page, root[1].page);
    let page = f.bytes(second, T::Space::PAGE_BYTES);
    f.with(first, &page, || {
        let error = f.open().map(|_| ()).expect_err("the same keys twice");
        assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
    });
}

/// Every byte of short pages, some of long ones.
fn step<T: TestKeys>() -> usize {
    if T::Space::FIXED_BYTES.is_some() { 1 } else { 17 }
}

/// The table with the fewest bytes for models that do: pages are fetched when they are needed, and
/// one is kept.
fn open_paged<T: TestKeys>(f: &Fixture<T>, pages: u64) -> Result<TableView<T::Space>, OpenError> {
    let mut bytes = PagedModels::<T::Space>::least_bytes(pages) as u64;
    let view = loop {
        match TableView::open_within(&mut f.endpoint(), bytes) {
            // What separators take is known only when they are here.
            Err(OpenError::Budget { least, .. }) if least > bytes => bytes = least,
            other => break other?,
        }
    };
    assert!(view.models().paged().is_some(), "too small a table");
    Ok(view)
}

fn every_damaged_byte_of_a_page_is_noticed_when_the_page_is_fetched<T: TestKeys>() {
    let f = fixture::<T>();
    let (record, root) = root_of(&f);
    let last = root.last().unwrap();
    let (used, first) = (used(&f, last.page), T::number_at_or_above(last.start.borrow()));
    let reader = || Reader::<T>::new(f.endpoint(), open_paged(&f, record.pages).unwrap(), WAYS[0]);
    for at in (last.page..last.page + T::Space::PAGE_BYTES as u64).step_by(step::<T>()) {
        let mut reader = reader();
        let byte = f.bytes(at, 1)[0];
        f.with(at, &[byte ^ 0x41], || match reader.scan(first, 1) {
            Ok(records) => {
                assert!(!used.contains(&at), "byte {at} is not checked");
                assert_eq!(records.len(), 1);
            }
            Err(ReadError::Corrupt(damage)) => assert_eq!(damage.offset, last.page, "{damage}"),
            Err(error) => panic!("byte {at}: {error}"),
        });
        // Nothing of it is left when the damage is gone.
        assert_eq!(reader.scan(first, 1).unwrap().len(), 1);
    }
    // A scan that does not reach the damage never minds.
    let byte = f.bytes(last.page + 20, 1)[0];
    f.with(last.page + 20, &[!byte], || {
        let mut reader = reader();
        assert_eq!(reader.scan(0, 300).unwrap().len(), 300);
        assert!(matches!(reader.scan(0, usize::MAX), Err(ReadError::Corrupt(_))));
    });
    assert_eq!(reader().scan(0, usize::MAX).unwrap().len(), f.keys.len());
}

fn a_fetched_page_in_the_place_of_another_is_noticed<T: TestKeys>() {
    let f = fixture::<T>();
    let (record, root) = root_of(&f);
    for (place, other) in [(0, 1), (1, 0)] {
        let mut reader = Reader::<T>::new(f.endpoint(), open_paged(&f, record.pages).unwrap(), WAYS[0]);
        let page = f.bytes(root[other].page, T::Space::PAGE_BYTES);
        let first = T::number_at_or_above(root[place].start.borrow());
        f.with(root[place].page, &page, || {
            let error = reader.scan(first, 1).expect_err("other keys");
            assert!(matches!(&error, ReadError::Corrupt(d) if d.offset == root[place].page), "{error}");
        });
        assert!(!reader.scan(first, 1).unwrap().is_empty());
    }
}

/// Changes a root in a region of that many bytes.
type Damage<T> = fn(&mut Vec<RootEntry<<T as TestKeys>::Space>>, u64);

fn a_root_that_cannot_be_is_refused_however_pages_are_fetched<T: TestKeys>() {
    let f = fixture::<T>();
    let (record, root) = root_of(&f);
    let region_bytes = f.bytes(24, 8).try_into().map(u64::from_le_bytes).unwrap();
    let damages: [Damage<T>; 4] = [
        |root, _| root.swap(0, 1),
        |root, _| root[1].start = root[0].start.clone(),
        |root, _| root[1].page += 4,
        |root, region_bytes| root[1].page = region_bytes - T::Space::PAGE_BYTES as u64 + 8,
    ];
    // Where nothing is that a longer root would write over.
    let place = 3 << 19;
    for damage in damages {
        let mut bad = root.clone();
        damage(&mut bad, region_bytes);
        let bytes = encode_root::<T::Space>(&bad);
        f.with(place, &bytes, || {
            let (root_checksum, root_bytes) = (xxh3_64(&bytes), bytes.len() as u64);
            with_record(&f, TableRecord { root: place, root_checksum, root_bytes, ..record }, || {
                for result in [f.open(), open_paged(&f, record.pages)] {
                    let error = result.map(|_| ()).expect_err("a bad root");
                    assert!(matches!(&error, OpenError::Corrupt(d) if d.offset == place), "{error}");
                }
            });
        });
    }
    for segments in [
        0,
        record.pages - 1,
        record.pages * DirectoryPage::most_descriptors::<T::Space>() as u64 + 1,
        u64::MAX,
    ] {
        with_record(&f, TableRecord { segments, ..record }, || {
            for result in [f.open(), open_paged(&f, record.pages)] {
                assert!(matches!(result, Err(OpenError::Corrupt(_))), "{segments} segments");
            }
        });
    }
}

/// Descriptors with a right checksum and any content.
fn descriptors<T: TestKeys>() -> impl Strategy<Value = Vec<Descriptor<T::Space>>> {
    let offset = prop_oneof![0..1u64 << 20, any::<u64>(), (0..1u64 << 17).prop_map(|w| w * 8)];
    let number = prop_oneof![any::<u64>(), 0..1000u64];
    let key = prop_oneof![number.clone().prop_map(T::key), T::any_key()];
    let model =
        (number, any::<u64>(), any::<u16>(), any::<u16>()).prop_map(|(origin, line, cap, epsilon)| {
            SegmentModel { origin, line: Line::from_bits(line), cap, epsilon }
        });
    let one = (key, any::<u32>(), model, offset, any::<u32>()).prop_map(
        |(start, tail, model, address, generation)| {
            let address = SegmentAddress::from_bits(address);
            // A page says no longer skip than a separator has bytes.
            let tail = T::tail_of(tail, start.borrow());
            Descriptor { start, tail, model, address, generation }
        },
    );
    (prop::collection::vec(one, 1..6), any::<bool>(), 1..200u16).prop_map(
        |(mut all, sort, cap): (Vec<Descriptor<T::Space>>, bool, u16)| {
            if sort {
                // Likelier to be taken: in order, and small enough to lie inside the region.
                all.sort_by(|a, b| a.start.cmp(&b.start));
                all.iter_mut().for_each(|d| d.model.cap = d.model.cap % cap + 1);
            }
            all
        },
    )
}

fn a_lying_directory_makes_errors_but_neither_values_nor_panics<T: TestKeys>() {
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    let garbage = prop::collection::vec(any::<u8>(), 0..600);
    proptest!(config, |(all in descriptors::<T>(), garbage in garbage, at in 0..(1usize << 17))| {
        lie_with::<T>(&all, &garbage, at);
    });
}

fn lie_with<T: TestKeys>(all: &[Descriptor<T::Space>], garbage: &[u8], at: usize) {
    let f = Fixture::<T>::new(scattered(40), T::parameters(8));
    let record = root_of(&f).0;
    let (page, root) = (512 << 10, (512 << 10) + T::Space::PAGE_BYTES as u64);
    let (bytes, held) = DirectoryPage::encode(all, 0);
    assert_eq!(held, all.len());
    f.put(page, &bytes);
    let entries = encode_root::<T::Space>(&[RootEntry { start: all[0].start.clone(), page }]);
    f.put(root, &entries);
    f.put(4096 + at as u64 * 7, garbage);
    let (root_checksum, root_bytes) = (xxh3_64(&entries), entries.len() as u64);
    let lie = TableRecord { root, pages: 1, segments: all.len() as u64, root_checksum, root_bytes, ..record };
    with_record(&f, lie, || {
        if f.open().is_err() {
            return;
        }
        for way in WAYS {
            let mut reader = f.reader(way);
            let theirs = all.iter().map(|d| T::number_at_or_above(d.start.borrow()));
            for key in f.keys.iter().copied().chain([0, 1, u64::MAX]).chain(theirs) {
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

fn lying_pages_fetched_on_demand_make_errors_but_neither_values_nor_panics<T: TestKeys>() {
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    let pages = prop::collection::vec(descriptors::<T>(), 1..5);
    let from = prop::collection::vec(any::<u64>(), 1..6);
    proptest!(config, |(pages in pages, honest in any::<bool>(), from in from)| {
        lie_on_demand::<T>(&pages, honest, &from);
    });
}

fn lie_on_demand<T: TestKeys>(pages: &[Vec<Descriptor<T::Space>>], honest: bool, from: &[u64]) {
    let f = Fixture::<T>::new(scattered(40), T::parameters(8));
    let record = root_of(&f).0;
    let at = |page: usize| (512 << 10) + (page * T::Space::PAGE_BYTES) as u64;
    let mut entries: Vec<RootEntry<T::Space>> = Vec::new();
    for (i, all) in pages.iter().enumerate() {
        f.put(at(i), &DirectoryPage::encode(all, 0).0);
        entries.push(RootEntry { start: all[0].start.clone(), page: at(i) });
    }
    if honest {
        entries.sort_by(|a, b| a.start.cmp(&b.start));
    }
    let (root, bytes) = (at(pages.len()), encode_root::<T::Space>(&entries));
    f.put(root, &bytes);
    let (pages, root_bytes) = (pages.len() as u64, bytes.len() as u64);
    // So many segments that they cannot be resident.
    let segments = pages * DirectoryPage::most_descriptors::<T::Space>() as u64;
    let lie = TableRecord { root, pages, segments, root_checksum: xxh3_64(&bytes), root_bytes, ..record };
    with_record(&f, lie, || {
        let Ok(view) = open_paged(&f, pages) else { return };
        let mut reader = Reader::<T>::new(f.endpoint(), view, WAYS[0]);
        for start in from.iter().copied().chain([0, u64::MAX]) {
            if let Ok(records) = reader.scan(start, 5) {
                records.iter().for_each(|(key, value)| assert_eq!(*value, f.value(*key, 1)));
            }
        }
    });
}

for_all_keys!(
    every_damaged_byte_of_the_superblock_is_noticed_or_harmless,
    a_superblock_that_stays_damaged_is_given_up,
    a_record_that_contradicts_the_region_is_refused,
    a_record_of_other_parameters_is_refused,
    every_damaged_byte_of_the_directory_is_noticed_or_harmless,
    a_page_in_the_place_of_another_is_noticed,
    every_damaged_byte_of_a_page_is_noticed_when_the_page_is_fetched,
    a_fetched_page_in_the_place_of_another_is_noticed,
    a_root_that_cannot_be_is_refused_however_pages_are_fetched,
    a_lying_directory_makes_errors_but_neither_values_nor_panics,
    lying_pages_fetched_on_demand_make_errors_but_neither_values_nor_panics,
);
