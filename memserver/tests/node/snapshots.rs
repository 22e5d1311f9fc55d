//! A snapshot counts whole or not at all, and what it needs of the log stays.

use std::sync::Arc;
use std::time::Instant;

use fpcache_fabric::SharedMemory;
use fpcache_memserver::durability::{
    BadSnapshot, Disk, Drain, FileDisk, LogOptions, LogReader, Lsn, SnapshotError, SnapshotReader,
    SnapshotWriter, Staging, SyncPolicy, prune,
};
use proptest::prelude::*;

use crate::memory_disk::MemoryDisk;

const LINEAGE: u64 = 77;
const RING_BYTES: u64 = 1 << 16;

type Read = (Lsn, Vec<Vec<u8>>);

fn write<D: Disk>(disk: D, first: Lsn, records: &[Vec<u8>]) -> Result<(), SnapshotError> {
    let mut writer = SnapshotWriter::begin(disk, LINEAGE, b"table", first)?;
    for record in records {
        writer.push(record)?;
    }
    let info = writer.finish(first + 10)?;
    assert_eq!((info.records, info.first_lsn, info.last_lsn), (records.len() as u64, first, first + 10));
    Ok(())
}

/// The newest snapshot's first LSN and records, and how many were skipped.
fn newest<D: Disk>(disk: &mut D) -> (Option<Read>, usize) {
    let (reader, skipped) = SnapshotReader::newest(disk, Some(LINEAGE)).unwrap();
    let Some(mut reader) = reader else { return (None, skipped.len()) };
    assert_eq!((reader.table_header(), reader.lineage()), (&b"table"[..], LINEAGE));
    let mut records = Vec::new();
    while let Some(record) = reader.next_record(disk).unwrap() {
        records.push(record.to_vec());
    }
    assert_eq!(reader.info().records, records.len() as u64);
    (Some((reader.info().first_lsn, records)), skipped.len())
}

fn has(disk: &MemoryDisk, name: &str) -> bool {
    disk.list().unwrap().iter().any(|file| file == name)
}

fn some_records(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|i| (0..i % 40).map(|b| (i * 13 + b) as u8).collect()).collect()
}

fn logged(disk: &MemoryDisk, records: Lsn) {
    let memory = Arc::new(SharedMemory::anonymous(RING_BYTES as usize).unwrap());
    let mut staging = Staging::create(memory, 0, RING_BYTES, LINEAGE, 0).unwrap();
    let options = LogOptions { sync: SyncPolicy::Always, file_bytes: 1000 };
    let mut drain = Drain::open(&staging, disk.clone(), options).unwrap();
    for lsn in 1..=records {
        staging.append(&lsn.to_le_bytes()).unwrap();
        drain.step(Instant::now()).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_is_read_back_as_it_was_pushed_also_after_a_crash(
        seed: u64,
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..50),
    ) {
        let disk = MemoryDisk::new(seed);
        write(disk.clone(), 5, &records).unwrap();
        prop_assert_eq!(newest(&mut disk.crash()), (Some((5, records)), 0));
    }

    #[test]
    fn a_crash_while_one_is_written_leaves_the_one_before(seed: u64, pushed in 0..200u64) {
        let disk = MemoryDisk::new(seed);
        let old = some_records(30);
        write(disk.clone(), 5, &old).unwrap();
        let mut writer = SnapshotWriter::begin(disk.clone(), LINEAGE, b"table", 9).unwrap();
        for record in some_records(pushed) {
            writer.push(&record).unwrap();
        }
        let mut after = disk.crash();
        prop_assert!(writer.finish(20).is_err());
        prop_assert_eq!(newest(&mut after), (Some((5, old)), 0));
        prop_assert_eq!(after.list().unwrap().len(), 1);
    }
}

#[test]
fn many_blocks_are_read_back() {
    let records: Vec<Vec<u8>> = (0..150_000u32).map(|i| i.to_le_bytes().repeat(6)).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut disk = FileDisk::open(folder.path()).unwrap();
    write(disk.clone(), 1, &records).unwrap();
    assert!(disk.len("snapshot-0000000000000001.fps").unwrap() > 4 << 20);
    assert_eq!(newest(&mut disk), (Some((1, records)), 0));
}

#[test]
fn any_changed_or_missing_byte_sends_the_reader_to_the_one_before() {
    let mut disk = MemoryDisk::new(1);
    let (old, new) = (some_records(3), some_records(12));
    write(disk.clone(), 5, &old).unwrap();
    write(disk.clone(), 9, &new).unwrap();
    let name = "snapshot-0000000000000009.fps";
    let len = disk.len(name).unwrap() as usize;
    for offset in 0..len {
        disk.flip(name, offset, 4).unwrap();
        assert_eq!(newest(&mut disk), (Some((5, old.clone())), 1), "{offset}");
        disk.flip(name, offset, 4).unwrap();
    }
    assert_eq!(newest(&mut disk), (Some((9, new)), 0));
    for len in (0..len).rev() {
        disk.truncate(name, len as u64).unwrap();
        assert_eq!(newest(&mut disk), (Some((5, old.clone())), 1), "{len}");
    }
}

#[test]
fn anothers_snapshot_is_skipped_and_what_was_not_finished_removed() {
    let mut disk = MemoryDisk::new(1);
    assert_eq!(newest(&mut disk), (None, 0));
    SnapshotWriter::begin(disk.clone(), 1, b"", 3).unwrap().finish(3).unwrap();
    let (reader, skipped) = SnapshotReader::newest(&mut disk, Some(LINEAGE)).unwrap();
    assert!(reader.is_none());
    assert!(matches!(skipped[0].1, BadSnapshot::Lineage { found: 1, expected: LINEAGE, .. }));
    disk.create("snapshot-0000000000000004.fps.tmp").unwrap();
    disk.create("notes.tmp").unwrap();
    SnapshotReader::newest(&mut disk, None).unwrap();
    assert_eq!(disk.list().unwrap(), ["notes.tmp", "snapshot-0000000000000003.fps"]);
}

#[test]
fn a_writer_given_up_or_refused_leaves_nothing() {
    let disk = MemoryDisk::new(1);
    drop(SnapshotWriter::begin(disk.clone(), LINEAGE, b"", 3).unwrap());
    assert!(disk.list().unwrap().is_empty());
    disk.fill_up_after(200);
    assert!(write(disk.clone(), 3, &some_records(50)).is_err());
    disk.fill_up_after(u64::MAX);
    disk.fail_syncs(1);
    assert!(write(disk.clone(), 3, &some_records(50)).is_err());
    assert!(disk.list().unwrap().is_empty());
    write(disk.clone(), 3, &some_records(50)).unwrap();
}

#[test]
fn pruning_keeps_what_the_kept_snapshots_need() {
    for (keep, firsts) in [(1, vec![90]), (2, vec![60, 90]), (3, vec![20, 60, 90]), (9, vec![20, 60, 90])] {
        let mut disk = MemoryDisk::new(1);
        logged(&disk, 100);
        for first in [20, 60, 90] {
            write(disk.clone(), first, &some_records(5)).unwrap();
        }
        prune(&mut disk, LINEAGE, keep).unwrap();
        let mut disk = disk.crash();
        let kept: Vec<String> =
            disk.list().unwrap().into_iter().filter(|name| name.starts_with("snapshot")).collect();
        let expected: Vec<String> =
            firsts.iter().map(|first: &Lsn| format!("snapshot-{first:016x}.fps")).collect();
        assert_eq!(kept, expected);
        let report = LogReader::open(&mut disk, Some(LINEAGE)).unwrap();
        assert!(report.first <= firsts[0] && report.last == 100, "{report:?}");
        assert!(report.files[1].first > firsts[0], "the first file is not needed: {report:?}");
        let mut records = report.records(&disk, firsts[0]).unwrap();
        for lsn in firsts[0]..=100 {
            assert_eq!(records.next_record().unwrap(), Some((lsn, &lsn.to_le_bytes()[..])));
        }
    }
}

#[test]
fn a_damaged_snapshot_is_not_what_pruning_keeps() {
    let mut disk = MemoryDisk::new(1);
    logged(&disk, 100);
    for first in [20, 60, 90] {
        write(disk.clone(), first, &some_records(5)).unwrap();
    }
    disk.truncate("snapshot-000000000000005a.fps", 100).unwrap();
    prune(&mut disk, LINEAGE, 1).unwrap();
    assert!(!has(&disk, "snapshot-0000000000000014.fps"));
    assert_eq!(newest(&mut disk).0.unwrap().0, 60);
    let mut empty = MemoryDisk::new(1);
    logged(&empty, 100);
    let before = empty.list().unwrap();
    prune(&mut empty, LINEAGE, 1).unwrap();
    assert_eq!(empty.list().unwrap(), before);
}

/// It is left for the operator to examine, and the others are pruned all the same.
#[test]
fn a_snapshot_that_cannot_be_read_does_not_end_pruning() {
    let mut disk = MemoryDisk::new(1);
    logged(&disk, 100);
    for first in [20, 60, 90] {
        write(disk.clone(), first, &some_records(5)).unwrap();
    }
    disk.fail_reads_of("snapshot-000000000000005a.fps");
    prune(&mut disk, LINEAGE, 1).unwrap();
    assert!(!has(&disk, "snapshot-0000000000000014.fps") && has(&disk, "snapshot-000000000000005a.fps"));
}

#[test]
fn the_bytes_of_a_snapshot_are_these() {
    let disk = MemoryDisk::new(0);
    write(disk.clone(), 41, &[b"one".to_vec(), b"three".to_vec()]).unwrap();
    let mut bytes = vec![0; disk.len("snapshot-0000000000000029.fps").unwrap() as usize];
    disk.read("snapshot-0000000000000029.fps", 0, &mut bytes).unwrap();
    let hex: Vec<String> =
        bytes.chunks(16).map(|row| row.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    assert_eq!(hex, GOLDEN);
}

const GOLDEN: [&str; 8] = [
    "465043534e4150000300000005000000",
    "4d000000000000002900000000000000",
    "315f6c01a02a16ed7461626c6544611e",
    "2afb2a91820100000002000000000000",
    "0010000000030000006f6e6505000000",
    "7468726565bcd0a56caf086e47020000",
    "00000000000100000010000000020000",
    "00000000003300000000000000",
];
