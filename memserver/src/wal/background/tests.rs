use super::*;

use std::time::Duration;

use crate::durability::memory_disk::MemoryDisk;

fn failed() -> Result<SnapshotInfo, SnapshotError> {
    Err(DiskError::new("writing", "a snapshot", std::io::Error::other("a test")).into())
}

fn start() -> SnapshotStart {
    SnapshotStart { lineage: 1, header: Vec::new(), first: 1, expected: ExpectedSnapshot::AtLeast(0) }
}

/// Snapshots of which one is written by this thread, or by none.
fn with(writing: Option<UnderWay>, leaving: Option<SnapshotThread>) -> ThreadSnapshots<MemoryDisk> {
    ThreadSnapshots { disk: MemoryDisk::new(1), writing, leaving }
}

/// What comes within five seconds.
fn soon<T>(mut of: impl FnMut() -> Option<T>) -> Option<T> {
    (0..5000).find_map(|_| {
        thread::sleep(Duration::from_millis(1));
        of()
    })
}

#[test]
fn a_snapshot_begins_once_the_one_that_was_given_up_has_gone_and_does_not_end_as_it() {
    let (go_on, may_go_on) = channel::<()>();
    let thread = thread::spawn(move || {
        let _ = may_go_on.recv();
        failed()
    });
    let (send, shared) = (channel().0, Shared::default());
    let mut snapshots = with(Some(UnderWay { send, shared, thread: Ok(thread) }), None);
    snapshots.give_up();
    assert!(!snapshots.is_idle(), "it may still write");
    go_on.send(()).expect("it waits");
    assert!(soon(|| snapshots.is_idle().then_some(())).is_some());
    snapshots.begin(start());
    assert!(snapshots.outcome().is_none(), "of the one that was given up");
    assert!(snapshots.push(Vec::new()).is_none());
    snapshots.finish(1);
    assert!(soon(|| snapshots.outcome()).is_some_and(|outcome| outcome.is_ok()));
}

#[test]
fn a_thread_that_panics_or_was_never_started_is_a_snapshot_that_failed() {
    for thread in [Ok(thread::spawn(|| panic!("a test"))), Err(failed().unwrap_err())] {
        let (send, shared) = (channel().0, Shared::default());
        let mut snapshots = with(Some(UnderWay { send, shared, thread }), None);
        assert!(snapshots.push(vec![7; 8]).is_none());
        assert!(soon(|| snapshots.outcome()).is_some_and(|outcome| outcome.is_err()));
        assert!(snapshots.is_idle(), "the next one begins");
    }
}

/// Its file stayed until the next one began, and the log waited for the room.
#[test]
fn a_snapshot_that_is_given_up_is_removed_at_once() {
    let disk = MemoryDisk::new(1);
    let mut snapshots = ThreadSnapshots::new(disk.clone());
    let has = |files| (disk.list().expect("a folder").len() == files).then_some(());
    let soon_has = |files| soon(|| has(files)).is_some();
    snapshots.begin(start());
    assert!(soon_has(1), "it is begun");
    snapshots.give_up();
    assert!(soon_has(0), "nothing is left of it");
}

/// As many messages as there may be of short records were ten of the longest values.
#[test]
fn long_values_go_to_the_disk_one_by_one() {
    let ((send, messages), shared) = (channel(), Shared::default());
    let ahead = Arc::clone(&shared.ahead);
    let mut snapshots = with(Some(UnderWay { send, shared, thread: Err(failed().unwrap_err()) }), None);
    let write_one = || {
        let Ok(Message::Records(records)) = messages.try_recv() else { panic!("it is there") };
        ahead.fetch_sub(records.len(), Ordering::Relaxed);
    };
    let (long, short) = (|| vec![7; 16 << 20], || vec![7; MOST_AHEAD / 4]);
    let mut most = 0;
    for mut records in [long(), short(), long(), short(), short(), short(), short(), short()] {
        while let Some(back) = snapshots.push(records) {
            assert_eq!(back.iter().filter(|byte| **byte == 7).count(), back.len(), "they come back whole");
            records = back;
            most = most.max(ahead.load(Ordering::Relaxed));
            // The thread has written what came first.
            write_one();
        }
    }
    assert_eq!(most, 16 << 20);
    assert_eq!(messages.try_iter().count(), 4, "short records are on their way together");
}

/// It wrote to a folder that was gone, or that another table had got.
#[test]
fn nothing_is_written_for_a_table_that_is_gone() {
    let (go_on, may_go_on) = channel::<()>();
    let has_written = Arc::new(AtomicBool::new(false));
    let writes = Arc::clone(&has_written);
    let thread = thread::spawn(move || {
        let _ = may_go_on.recv();
        writes.store(true, Ordering::SeqCst);
        failed()
    });
    let snapshots = with(None, Some(thread));
    let dropping = thread::spawn(move || {
        drop(snapshots);
        has_written.load(Ordering::SeqCst)
    });
    thread::sleep(Duration::from_millis(20));
    assert!(!dropping.is_finished(), "the thread that writes has not ended");
    go_on.send(()).expect("it waits");
    assert!(dropping.join().expect("no panic"), "it had written all when the table was gone");
}
