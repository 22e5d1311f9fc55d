//! The decoders of what lies in a memory node's folder, over any bytes: for a property test of this
//! crate, and for libFuzzer, whose targets lie in `fuzz`.

use fpcache_memserver::durability::{Disk, LogReader, SnapshotReader};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::memory_disk::MemoryDisk;

const LINEAGE: u64 = 77;
const FIRST: u64 = 1;

/// A log file: the bytes as they are, and after a header that is right.
pub fn log_file(bytes: &[u8]) {
    read_log(bytes);
    let mut header = [0; 64];
    header[..8].copy_from_slice(b"FPCLOG\0\0");
    header[8..12].copy_from_slice(&2u32.to_le_bytes());
    header[16..24].copy_from_slice(&LINEAGE.to_le_bytes());
    header[24..32].copy_from_slice(&FIRST.to_le_bytes());
    let checksum = xxh3_64(&header[..56]);
    header[56..].copy_from_slice(&checksum.to_le_bytes());
    assert!(read_log(&header), "the header is right");
    read_log(&[&header, bytes].concat());
}

/// Whether it is a log, of which there may be little.
fn read_log(bytes: &[u8]) -> bool {
    let Some(mut disk) = with_file("log-0000000000000001.fpl", bytes) else { return false };
    let Ok(report) = LogReader::open(&mut disk, Some(LINEAGE)) else { return false };
    if let Ok(mut records) = report.records(&disk, report.first.max(FIRST)) {
        while let Ok(Some(_)) = records.next_record() {}
    }
    true
}

/// A snapshot: the bytes as they are, and in a file whose checksums are right, as the table's
/// header, and as a block of records of any number.
pub fn snapshot(bytes: &[u8]) {
    read_snapshot(bytes);
    let mut file = b"FPCSNAP\0".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend((bytes.len() as u32).to_le_bytes());
    file.extend([LINEAGE, FIRST].map(u64::to_le_bytes).concat());
    let checksum = xxh3_64(&[&file, bytes].concat());
    file.extend(checksum.to_le_bytes());
    file.extend(bytes);
    let (count, payload) = bytes.split_first().unwrap_or((&1, &[]));
    file.extend(block([1, u32::from(*count), 0], payload));
    let footer = [u64::from(*count), FIRST].map(u64::to_le_bytes).concat();
    file.extend(block([2, 0, 1], &footer));
    assert!(read_snapshot(&file), "header and footer are right");
}

/// A block of this kind, number of records and number.
fn block(words: [u32; 3], payload: &[u8]) -> Vec<u8> {
    let mut body = words.map(u32::to_le_bytes).concat();
    body.extend((payload.len() as u32).to_le_bytes());
    body.extend(payload);
    let checksum = xxh3_64_with_seed(&body, LINEAGE ^ FIRST.rotate_left(32));
    [&checksum.to_le_bytes()[..], &body].concat()
}

/// Whether it is a snapshot, whose records may be damaged.
fn read_snapshot(bytes: &[u8]) -> bool {
    const NAME: &str = "snapshot-0000000000000001.fps";
    let Some(mut disk) = with_file(NAME, bytes) else { return false };
    let opened = SnapshotReader::open(&disk, NAME, Some(LINEAGE));
    let is_one = opened.is_ok();
    if let Ok(mut reader) = opened {
        while let Ok(Some(_)) = reader.next_record(&disk) {}
    }
    let _ = SnapshotReader::newest(&mut disk, None);
    is_one
}

/// A folder with one file.
fn with_file(name: &str, bytes: &[u8]) -> Option<MemoryDisk> {
    let mut disk = MemoryDisk::new(1);
    disk.create(name).ok()?;
    disk.append(name, bytes).ok()?;
    Some(disk)
}
