//! A thread drains the log without being asked, early when asked, and goes on when the disk does.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{LINEAGE, RING_BYTES, assert_holds, memory, options, payload};
use crate::memory_disk::MemoryDisk;
use fpcache_fabric::{SharedMemory, SystemClock};
use fpcache_memserver::durability::{
    AppendError, Drain, DrainThread, LogError, LogEvent, Lsn, Staging, SyncPolicy,
};

fn threaded(sync: SyncPolicy) -> (MemoryDisk, Staging<SharedMemory>, DrainThread, mpsc::Receiver<LogEvent>) {
    let disk = MemoryDisk::new(9);
    let staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, 0).unwrap();
    let drain = Drain::open(&staging, disk.clone(), options(sync)).unwrap();
    let (tell, told) = mpsc::channel();
    let thread = DrainThread::spawn(drain, Arc::new(SystemClock), move |event| {
        let _ = tell.send(event);
    });
    (disk, staging, thread.unwrap(), told)
}

fn wait_synced(told: &mpsc::Receiver<LogEvent>, lsn: Lsn) {
    loop {
        match told.recv_timeout(Duration::from_secs(30)).unwrap() {
            LogEvent::Synced(synced) if synced >= lsn => return,
            _ => {}
        }
    }
}

#[test]
fn a_thread_syncs_what_is_appended_without_being_asked() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(Duration::from_millis(2))] {
        let (disk, mut staging, thread, told) = threaded(sync);
        let mut last = 0;
        for round in 1..200u64 {
            for _ in 0..round % 7 + 1 {
                last += 1;
                while staging.append(&payload(last)) == Err(AppendError::Full) {
                    std::thread::yield_now();
                }
            }
            if round % 5 == 0 {
                wait_synced(&told, last);
            }
        }
        wait_synced(&told, last);
        drop(thread);
        assert_holds(&mut disk.crash(), last);
    }
}

#[test]
fn a_thread_stops_after_a_last_sync_and_syncs_early_when_asked() {
    let (disk, mut staging, thread, told) = threaded(SyncPolicy::Interval(Duration::from_secs(3600)));
    staging.append(&payload(1)).unwrap();
    staging.want_sync(1);
    wait_synced(&told, 1);
    // A full ring is a reason, too.
    for lsn in 2..=500 {
        while staging.append(&payload(lsn)) == Err(AppendError::Full) {
            std::thread::yield_now();
        }
    }
    drop(thread);
    assert_holds(&mut disk.crash(), 500);
}

#[test]
fn a_thread_goes_on_when_the_disk_does() {
    let (disk, mut staging, thread, told) = threaded(SyncPolicy::Always);
    disk.fill_up_after(50);
    for lsn in 1..=10 {
        staging.append(&payload(lsn)).unwrap();
    }
    let event = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(event, LogEvent::Failed(LogError::Write { .. })), "{event:?}");
    assert!(staging.failure().is_some());
    // That there is room for the beginning of a file does not mean that the log works again.
    disk.fill_up_after(100);
    let event = told.recv_timeout(Duration::from_millis(900));
    assert!(event.is_err(), "{event:?}");
    disk.fill_up_after(u64::MAX);
    let event = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(event, LogEvent::Recovered), "{event:?}");
    wait_synced(&told, 10);
    assert!(staging.failure().is_none());
    drop(thread);
    assert_holds(&mut disk.crash(), 10);
}
