//! Logs in memory for the tests of the log.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and fails by panicking")]

use std::sync::Arc;
use std::time::Instant;

use fpcache_fabric::SharedMemory;
use fpcache_memserver::durability::{
    Disk, Drain, LogOptions, LogReader, Lsn, RecoveryError, Staging, SyncPolicy,
};

use crate::memory_disk::MemoryDisk;

pub const LINEAGE: u64 = 0x1122_3344_5566_7788;
pub const RING_BYTES: u64 = 192 + 4096;

pub type Found = Vec<(Lsn, Vec<u8>)>;

pub fn memory() -> Arc<SharedMemory> {
    Arc::new(SharedMemory::anonymous(RING_BYTES as usize + 64).unwrap())
}

pub fn options(sync: SyncPolicy) -> LogOptions {
    LogOptions { sync, file_bytes: 2048 }
}

/// The payload of record `lsn`: every length and every byte differ from its neighbours'.
pub fn payload(lsn: Lsn) -> Vec<u8> {
    (0..lsn * 7 % 90).map(|i| (lsn * 31 + i) as u8).collect()
}

pub fn read_all(disk: &mut MemoryDisk) -> Result<(Found, LogReader), RecoveryError> {
    let report = LogReader::open(disk, Some(LINEAGE))?;
    let mut found = Vec::new();
    let from = if report.unusable.is_some() { 1 } else { report.first.max(1) };
    let mut records = report.records(disk, from)?;
    while let Some((lsn, payload)) = records.next_record()? {
        found.push((lsn, payload.to_vec()));
    }
    Ok((found, report))
}

/// Whether the log is exactly the records `1..=last`.
pub fn assert_holds(disk: &mut MemoryDisk, last: Lsn) {
    let (found, report) = read_all(disk).unwrap();
    let expected: Vec<_> = (1..=last).map(|lsn| (lsn, payload(lsn))).collect();
    assert_eq!(found, expected);
    assert_eq!(report.last, last);
}

/// A log of `records` records, `group` of them per step.
pub fn written(records: Lsn, group: Lsn, sync: SyncPolicy) -> MemoryDisk {
    let disk = MemoryDisk::new(1);
    let mut staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, 0).unwrap();
    let mut drain = Drain::open(&staging, disk.clone(), options(sync)).unwrap();
    let now = Instant::now();
    for lsn in 1..=records {
        assert_eq!(staging.append(&payload(lsn)), Ok(lsn));
        if lsn % group == 0 {
            drain.step(now).unwrap();
        }
    }
    drain.step(now).unwrap();
    disk
}

pub fn read_file(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; disk.len(name).unwrap() as usize];
    assert_eq!(disk.read(name, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// A copy of the files, changed by `change`.
pub fn changed(disk: &MemoryDisk, change: impl Fn(&str, &mut Vec<u8>)) -> MemoryDisk {
    let mut copy = MemoryDisk::new(2);
    for name in disk.list().unwrap() {
        let mut bytes = read_file(disk, &name);
        change(&name, &mut bytes);
        copy.create(&name).unwrap();
        copy.append(&name, &bytes).unwrap();
        copy.sync(&name).unwrap();
    }
    copy.sync_dir().unwrap();
    copy
}

pub fn logs(disk: &MemoryDisk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.sort();
    names
}
