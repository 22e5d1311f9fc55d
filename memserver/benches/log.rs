//! Costs of the log: staging, draining, reading back, and snapshots.
//!
//! The disk discards what is written where the processor's part is to be seen, and is a folder
//! (`TMPDIR`) otherwise.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up has nothing to measure")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpcache_fabric::{SharedMemory, SystemClock};
use fpcache_memserver::durability::{
    AppendError, Disk, DiskError, Drain, DrainThread, FileDisk, LogOptions, LogReader, SnapshotReader,
    SnapshotWriter, Staging, SyncPolicy,
};

const RING_BYTES: usize = 64 << 20;
const RECORD: [u8; 64] = [7; 64];
const RECORDS: u64 = 300_000;
const SNAPSHOT_RECORDS: u64 = 2_000_000;

/// Takes everything and keeps nothing.
#[derive(Clone)]
struct Nowhere;

impl Disk for Nowhere {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(Vec::new())
    }
    fn len(&self, _: &str) -> Result<u64, DiskError> {
        Ok(0)
    }
    fn read(&self, _: &str, _: u64, _: &mut [u8]) -> Result<usize, DiskError> {
        Ok(0)
    }
    fn create(&mut self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }
    fn append(&mut self, _: &str, bytes: &[u8]) -> Result<(), DiskError> {
        black_box(bytes);
        Ok(())
    }
    fn sync(&mut self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }
    fn sync_dir(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
    fn remove(&mut self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }
    fn rename(&mut self, _: &str, _: &str) -> Result<(), DiskError> {
        Ok(())
    }
    fn truncate(&mut self, _: &str, _: u64) -> Result<(), DiskError> {
        Ok(())
    }
}

fn ring() -> Arc<SharedMemory> {
    let memory = SharedMemory::anonymous(RING_BYTES).unwrap();
    memory.fill_words(0, RING_BYTES / 8, 1).unwrap();
    Arc::new(memory)
}

fn staging(memory: &Arc<SharedMemory>) -> Staging<SharedMemory> {
    Staging::create(Arc::clone(memory), 0, RING_BYTES as u64, 1, 0).unwrap()
}

fn fill(staging: &mut Staging<SharedMemory>) {
    for _ in 0..RECORDS {
        staging.append(black_box(&RECORD)).unwrap();
    }
}

/// The time of `work` alone, summed over `rounds`.
fn timed(rounds: u64, mut work: impl FnMut() -> Duration) -> Duration {
    (0..rounds).map(|_| work()).sum()
}

fn log(c: &mut Criterion) {
    let memory = ring();
    let mut group = c.benchmark_group("log");
    group.throughput(Throughput::Elements(RECORDS)).sample_size(20);

    group.bench_function("append_64", |b| {
        b.iter_custom(|rounds| {
            timed(rounds, || {
                let mut staging = staging(&memory);
                let start = Instant::now();
                fill(&mut staging);
                start.elapsed()
            })
        });
    });

    for sync in [SyncPolicy::Never, SyncPolicy::Always] {
        group.bench_function(format!("drain_64_nowhere_{sync}"), |b| {
            b.iter_custom(|rounds| {
                timed(rounds, || {
                    let mut staging = staging(&memory);
                    let options = LogOptions { sync, ..LogOptions::default() };
                    let mut drain = Drain::open(&staging, Nowhere, options).unwrap();
                    fill(&mut staging);
                    let start = Instant::now();
                    drain.step(start).unwrap();
                    start.elapsed()
                })
            });
        });
    }

    let folder = tempfile::tempdir().unwrap();
    for sync in [SyncPolicy::Never, SyncPolicy::default(), SyncPolicy::Always] {
        group.bench_function(format!("append_and_drain_64_file_{sync}"), |b| {
            b.iter_custom(|rounds| {
                timed(rounds, || {
                    let mut disk = FileDisk::open(folder.path()).unwrap();
                    for name in disk.list().unwrap() {
                        disk.remove(&name).unwrap();
                    }
                    let mut staging = staging(&memory);
                    let drain =
                        Drain::open(&staging, disk, LogOptions { sync, ..LogOptions::default() }).unwrap();
                    let thread = DrainThread::spawn(drain, Arc::new(SystemClock), |_| {}).unwrap();
                    let start = Instant::now();
                    for _ in 0..RECORDS {
                        while staging.append(black_box(&RECORD)) == Err(AppendError::Full) {
                            std::thread::yield_now();
                        }
                    }
                    drop(thread);
                    start.elapsed()
                })
            });
        });
    }

    let mut disk = FileDisk::open(folder.path()).unwrap();
    group.bench_function("read_64_file", |b| {
        b.iter(|| {
            let report = LogReader::open(&mut disk, None).unwrap();
            let mut records = report.records(&disk, 1).unwrap();
            let mut count = 0;
            while let Some((_, payload)) = records.next_record().unwrap() {
                count += payload.len();
            }
            assert_eq!(report.last, RECORDS);
            count
        });
    });
    group.finish();
}

fn snapshot(c: &mut Criterion) {
    let mut group = c.benchmark_group("snapshot_24");
    group.throughput(Throughput::Elements(SNAPSHOT_RECORDS)).sample_size(10);
    let push_all = |writer: &mut SnapshotWriter<_>| {
        for i in 0..SNAPSHOT_RECORDS {
            let mut record = [7; 24];
            record[..8].copy_from_slice(&i.to_le_bytes());
            writer.push(black_box(&record)).unwrap();
        }
    };
    group.bench_function("write_nowhere", |b| {
        b.iter(|| {
            let mut writer = SnapshotWriter::begin(Nowhere, 1, b"", 1).unwrap();
            for i in 0..SNAPSHOT_RECORDS {
                let mut record = [7; 24];
                record[..8].copy_from_slice(&i.to_le_bytes());
                writer.push(black_box(&record)).unwrap();
            }
            writer.finish(1).unwrap()
        });
    });

    let folder = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(folder.path()).unwrap();
    group.bench_function("write_file_without_sync", |b| {
        b.iter(|| {
            let mut writer = SnapshotWriter::begin(disk.clone(), 1, b"", 1).unwrap();
            push_all(&mut writer);
        });
    });
    let mut writer = SnapshotWriter::begin(disk.clone(), 1, b"", 1).unwrap();
    push_all(&mut writer);
    let info = writer.finish(1).unwrap();
    group.bench_function("read_file", |b| {
        b.iter(|| {
            let mut reader = SnapshotReader::open(&disk, &info.name, None).unwrap();
            let mut sum = 0;
            while let Some(record) = reader.next_record(&disk).unwrap() {
                sum += u64::from(record[0]);
            }
            sum
        });
    });
    group.finish();
}

criterion_group!(benches, log, snapshot);
criterion_main!(benches);
