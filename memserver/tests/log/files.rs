//! A log is read back as it was written, and refused or cut off where it was not.

use std::sync::Arc;
use std::time::Instant;

use crate::common::{
    LINEAGE, RING_BYTES, assert_holds, changed, logs, memory, options, payload, read_all, read_file, written,
};
use crate::memory_disk::MemoryDisk;
use fpcache_memserver::durability::{
    Disk, DiskErrorKind, Drain, FileDisk, LogReader, Lsn, OpenError, RecoveryError, Staging, StagingError,
    SyncPolicy,
};

#[test]
fn any_changed_byte_is_refused_and_in_the_last_record_cut_off() {
    for sync in [SyncPolicy::Always, SyncPolicy::Never] {
        let disk = written(48, 9, sync);
        let names = logs(&disk);
        assert!(names.len() > 1, "{names:?}");
        let last_name = names.last().unwrap();
        let last_frame = disk.len(last_name).unwrap() as usize - 16 - payload(48).len().next_multiple_of(8);
        for name in &names {
            for offset in 0..disk.len(name).unwrap() as usize {
                let mut bad = changed(&disk, |_, _| {});
                bad.flip(name, offset, 1 << (offset % 8)).unwrap();
                let result = read_all(&mut bad);
                if name == last_name && offset >= last_frame {
                    let (found, report) = result.unwrap();
                    assert_eq!(found.len(), 47);
                    let cut = report.truncated.unwrap();
                    assert_eq!((&cut.file, cut.offset), (last_name, last_frame as u64));
                    assert_holds(&mut bad, 47);
                } else {
                    let error = result.expect_err(&format!("{name} {offset}")).to_string();
                    assert!(error.contains(name.as_str()) && error.contains("restore"), "{error}");
                }
            }
        }
    }
}

/// Of a damaged file all that comes before the damage can be kept, as the error says.
#[test]
fn a_damaged_file_that_is_cut_where_its_error_says_keeps_all_that_comes_before() {
    let disk = written(48, 9, SyncPolicy::Always);
    let names = logs(&disk);
    for (index, name) in names[..names.len() - 1].iter().enumerate() {
        let mut bad = changed(&disk, |_, _| {});
        bad.flip(name, disk.len(name).unwrap() as usize * 2 / 3, 1).unwrap();
        let error = read_all(&mut bad).expect_err("a byte is wrong");
        let RecoveryError::Damaged { file, offset, lsn, .. } = &error else { panic!("{error}") };
        assert_eq!(file, name);
        let text = error.to_string();
        assert!(text.contains(&format!("truncate -s {offset} {name}")), "{text}");
        bad.truncate(name, *offset).unwrap();
        names[index + 1..].iter().for_each(|later| bad.remove(later).unwrap());
        assert_holds(&mut bad, lsn - 1);
        assert!(*lsn > 2, "there were records before it");
    }
}

#[test]
fn a_tail_torn_anywhere_is_cut_off_where_its_last_whole_record_ends() {
    let disk = written(20, 20, SyncPolicy::Always);
    let name = logs(&disk)[0].clone();
    let whole = read_file(&disk, &name);
    for len in 0..whole.len() {
        let mut torn = changed(&disk, |_, bytes| bytes.truncate(len));
        let (found, report) = read_all(&mut torn).unwrap();
        let expected: Vec<_> = (1..=found.len() as Lsn).map(|lsn| (lsn, payload(lsn))).collect();
        assert_eq!(found, expected);
        let half_made = report.half_made.map(|file| file.name);
        assert_eq!(half_made, (len < 64).then(|| name.clone()), "{len} bytes");
        let after: usize =
            (0..=found.len() as Lsn + 1).skip(1).map(|l| 16 + payload(l).len().next_multiple_of(8)).sum();
        assert!(len < 64 + after, "{} records of {len} bytes", found.len());
        // It can be gone on with.
        let last = found.len() as Lsn;
        let mut staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, last).unwrap();
        let mut drain = Drain::open(&staging, torn.clone(), options(SyncPolicy::Always)).unwrap();
        assert_eq!(staging.append(&payload(last + 1)), Ok(last + 1));
        drain.step(Instant::now()).unwrap();
        assert_holds(&mut torn.crash(), last + 1);
    }
}

#[test]
fn sectors_that_were_never_written_are_a_torn_tail_unless_a_mark_says_otherwise() {
    let blank = |name: &str, bytes: &mut Vec<u8>| {
        if name == "log-0000000000000001.fpl" {
            bytes[512..1024].fill(0);
        }
    };
    let unsynced = written(30, 5, SyncPolicy::Never);
    let (found, report) = read_all(&mut changed(&unsynced, blank)).unwrap();
    assert!(found.len() < 20 && report.truncated.unwrap().why.contains("not written"));
    let synced = written(30, 5, SyncPolicy::Always);
    let error = read_all(&mut changed(&synced, blank)).unwrap_err();
    assert!(matches!(&error, RecoveryError::Damaged { why, .. } if why.contains("on the disk")), "{error}");
}

#[test]
fn missing_files_and_files_of_others_are_refused() {
    let disk = written(200, 9, SyncPolicy::Always);
    let names = logs(&disk);
    assert!(names.len() > 3);

    let mut without = changed(&disk, |_, _| {});
    without.remove(&names[1]).unwrap();
    let error = read_all(&mut without).unwrap_err();
    assert!(matches!(&error, RecoveryError::Gap { file, .. } if *file == names[2]), "{error}");

    let mut without = changed(&disk, |_, _| {});
    without.remove(&names[0]).unwrap();
    let report = LogReader::open(&mut without, Some(LINEAGE)).unwrap();
    assert!(matches!(report.records(&without, 1), Err(RecoveryError::OutOfReach { wanted: 1, .. })));
    assert!(report.records(&without, report.first).is_ok());
    assert!(matches!(report.records(&without, 202), Err(RecoveryError::OutOfReach { last: 200, .. })));
    assert!(report.records(&without, 201).unwrap().next_record().unwrap().is_none());

    // A file that has no records yet "held 3 to 2".
    let mut begun = changed(&disk, |_, _| {});
    names.iter().for_each(|name| begun.remove(name).unwrap());
    let staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, 2).unwrap();
    drop(Drain::open(&staging, begun.clone(), options(SyncPolicy::Always)).unwrap());
    let report = LogReader::open(&mut begun, Some(LINEAGE)).unwrap();
    let Err(error) = report.records(&begun, 1) else { panic!("they are missing") };
    assert!(error.to_string().contains("its files begin with record 3 and have none yet;"), "{error}");

    let error = LogReader::open(&mut changed(&disk, |_, _| {}), Some(1)).unwrap_err();
    assert!(matches!(error, RecoveryError::Lineage { expected: 1, found: LINEAGE, .. }));

    let mut renamed = changed(&disk, |_, _| {});
    renamed.rename(&names[1], "log-0000000000000002.fpl").unwrap();
    assert!(matches!(read_all(&mut renamed), Err(RecoveryError::BadFile { .. })));
}

/// The name of a file says that there were records before it, also where it was shortened to less
/// than a header.
#[test]
fn a_last_file_without_a_header_proves_the_records_before_it() {
    let disk = written(200, 9, SyncPolicy::Always);
    let names = logs(&disk);
    assert!(names.len() > 3);
    let (last, before) = (names[names.len() - 1].clone(), names[names.len() - 2].clone());
    let short = |missing: Option<&String>| {
        changed(&disk, |name, bytes| match name {
            _ if name == last || Some(name) == missing.map(String::as_str) => bytes.truncate(10),
            _ => {}
        })
    };
    // After a whole one it is what a crash leaves.
    let mut begun = short(None);
    let (found, report) = read_all(&mut begun).unwrap();
    assert_eq!(
        report.half_made.map(|file| (file.name, file.first)),
        Some((last.clone(), found.len() as Lsn + 1))
    );
    let mut gap = short(None);
    gap.remove(&before).unwrap();
    assert!(matches!(read_all(&mut gap), Err(RecoveryError::Gap { file, .. }) if file == last));
    let mut both = short(Some(&before));
    assert!(matches!(read_all(&mut both), Err(RecoveryError::BadFile { file, .. }) if file == before));
    // Reading them leaves them all.
    for (disk, files) in [(begun, names.len()), (gap, names.len() - 1), (both, names.len())] {
        assert_eq!(logs(&disk).len(), files);
    }
    let mut alone = short(None);
    names[..names.len() - 1].iter().for_each(|name| alone.remove(name).unwrap());
    assert!(matches!(read_all(&mut alone), Err(RecoveryError::Gap { from: 1, .. })));
}

#[test]
fn a_file_that_cannot_be_used_hinders_nobody_who_needs_later_ones_alone() {
    let disk = written(200, 9, SyncPolicy::Always);
    let names = logs(&disk);
    assert!(names.len() > 3);
    let whats = ["its header", "a disk that reads it"];
    for (name, what) in names[..names.len() - 1].iter().flat_map(|name| whats.map(|what| (name, what))) {
        let mut bad = changed(&disk, |_, _| {});
        match what {
            "its header" => bad.flip(name, 3, 1).unwrap(),
            _ => bad.fail_reads_of(name),
        }
        let report = LogReader::open(&mut bad, Some(LINEAGE)).unwrap();
        let mut records = report.records(&bad, report.first).unwrap();
        for lsn in report.first..=200 {
            assert_eq!(records.next_record().unwrap(), Some((lsn, &payload(lsn)[..])));
        }
        let error = report.records(&bad, report.first - 1).err().unwrap();
        assert!(matches!(&error, RecoveryError::BadFile { file, .. } if file == name), "{error}");
        // A ring that goes on before the next file needs this one; one that goes on in the last
        // does not.
        for (last, is_refused) in [(report.first - 2, true), (200, false)] {
            let staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, last).unwrap();
            let opened = Drain::open(&staging, bad.deep_clone(), options(SyncPolicy::Always));
            assert_eq!(opened.is_err(), is_refused, "{name} without {what}: after record {last}");
        }
    }
}

#[test]
fn a_ring_and_files_that_do_not_belong_together_are_refused() {
    let staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, 50).unwrap();
    let open = |disk: &MemoryDisk| {
        Drain::open(&staging, changed(disk, |_, _| {}), options(SyncPolicy::Always)).err()
    };
    let short = written(20, 9, SyncPolicy::Always);
    assert!(matches!(open(&short), Some(OpenError::Apart { ring: 50, first: 1, last: 20 })));
    let mut late = written(200, 9, SyncPolicy::Always);
    for name in &logs(&late)[..2] {
        late.remove(name).unwrap();
    }
    assert!(matches!(open(&late), Some(OpenError::Apart { ring: 50, .. })));
    let memory = memory();
    assert!(matches!(Staging::open(Arc::clone(&memory), 0, RING_BYTES), Err(StagingError::Absent)));
    assert!(matches!(Staging::create(Arc::clone(&memory), 0, 100, 1, 0), Err(StagingError::TooSmall { .. })));
    assert!(matches!(
        Staging::create(Arc::clone(&memory), 0, 1 << 20, 1, 0),
        Ok(_) | Err(StagingError::Memory(_))
    ));
    Staging::create(Arc::clone(&memory), 0, RING_BYTES, LINEAGE, 0).unwrap().append(&[7; 40]).unwrap();
    memory.store_relaxed(192 + 24, 1).unwrap();
    assert!(matches!(Staging::open(memory, 0, RING_BYTES), Err(StagingError::Damaged { .. })));
}

#[test]
fn the_bytes_of_a_log_file_are_these() {
    let disk = MemoryDisk::new(0);
    let mut staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, 40).unwrap();
    let mut drain = Drain::open(&staging, disk.clone(), options(SyncPolicy::Always)).unwrap();
    for text in ["first", "second record"] {
        staging.append(text.as_bytes()).unwrap();
        drain.step(Instant::now()).unwrap();
    }
    let hex: Vec<String> = read_file(&disk, "log-0000000000000029.fpl")
        .chunks(16)
        .map(|row| row.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    assert_eq!(hex, GOLDEN);
}

const GOLDEN: [&str; 9] = [
    "4650434c4f4700000200000000000000",
    "88776655443322112900000000000000",
    "00000000000000000000000000000000",
    "00000000000000005fe8230555e618ef",
    "050000001c113f662900000000000000",
    "6669727374000000ffffffff25b5fef8",
    "29000000000000000d000000bfc5473b",
    "2a000000000000007365636f6e642072",
    "65636f7264000000",
];

#[test]
fn files_in_a_folder_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = FileDisk::open(folder.path().join("data")).unwrap();
    let ring = memory();
    let mut staging = Staging::create(Arc::clone(&ring), 0, RING_BYTES, LINEAGE, 0).unwrap();
    let mut drain = Drain::open(&staging, disk.clone(), options(SyncPolicy::Always)).unwrap();
    for lsn in 1..=300 {
        staging.append(&payload(lsn)).unwrap();
        if lsn % 20 == 0 && lsn < 300 {
            drain.step(Instant::now()).unwrap();
        }
    }
    drop((staging, drain));
    let staging = Staging::open(ring, 0, RING_BYTES).unwrap();
    let mut drain = Drain::open(&staging, disk.clone(), options(SyncPolicy::Always)).unwrap();
    drain.step(Instant::now()).unwrap();
    let report = LogReader::open(&mut disk, None).unwrap();
    assert_eq!((report.lineage, report.first, report.last), (Some(LINEAGE), 1, 300));
    let mut records = report.records(&disk, 100).unwrap();
    for lsn in 100..=300 {
        assert_eq!(records.next_record().unwrap(), Some((lsn, &payload(lsn)[..])));
    }
    assert!(records.next_record().unwrap().is_none());
    let error = disk.len("nothing").unwrap_err();
    assert!(error.kind == DiskErrorKind::NotFound && error.to_string().contains("data/nothing"), "{error}");
}
