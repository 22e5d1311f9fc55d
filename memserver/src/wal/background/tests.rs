use super::*;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::durability::memory_disk::MemoryDisk;

fn failed() -> Result<SnapshotInfo, SnapshotError> {
    Err(DiskError::new("writing", "a snapshot", std::io::Error::other("a test")).into())
}

fn start() -> SnapshotStart {
    SnapshotStart { lineage: 1, header: Vec::new(), first: 1, expected: ExpectedSnapshot::AtLeast(0) }
}

#[test]
fn a_snapshot_begins_once_there_is_room_and_does_not_end_as_one_that_was_given_up() {
    let (send, messages) = sync_channel(1);
    let (tell, outcomes) = channel();
    let (ahead, given_up) = (Arc::default(), Arc::default());
    let mut snapshots =
        ThreadSnapshots { send: Some(send), outcomes, begun: 0, ahead, given_up, thread: None };
    let start = start();
    assert!(snapshots.begin(start.clone()));
    assert!(!snapshots.begin(start.clone()), "the disk has not got so far");
    assert!(matches!(messages.try_recv(), Ok(Message::Begin(1, _))));
    assert!(snapshots.begin(start));
    tell.send((1, failed())).expect("somebody listens");
    assert!(snapshots.outcome().is_none(), "of the one that was given up");
    tell.send((2, failed())).expect("somebody listens");
    assert!(snapshots.outcome().is_some_and(|outcome| outcome.is_err()));
    drop(tell);
    assert!(snapshots.outcome().is_some_and(|outcome| outcome.is_err()), "the thread has ended");
}

/// Its file stayed until the next one began, and the log waited for the room.
#[test]
fn a_snapshot_that_is_given_up_is_removed_at_once() {
    let (disk, waker) = (MemoryDisk::new(1), Waker::new().expect("a waker"));
    let mut snapshots = ThreadSnapshots::spawn(disk.clone(), waker).expect("a thread");
    let soon_has = |files| {
        (0..5000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            disk.list().expect("a folder").len() == files
        })
    };
    assert!(snapshots.begin(start()) && soon_has(1), "it is begun");
    snapshots.give_up();
    assert!(soon_has(0), "nothing is left of it");
}

/// As many messages as there may be of short records were ten of the longest values.
#[test]
fn long_values_go_to_the_disk_one_by_one() {
    let (send, messages) = sync_channel(8);
    let (_tell, outcomes) = channel();
    let (ahead, given_up) = (Arc::default(), Arc::default());
    let mut snapshots =
        ThreadSnapshots { send: Some(send), outcomes, begun: 1, ahead, given_up, thread: None };
    let (long, short) = (|| vec![7; 16 << 20], || vec![7; MOST_AHEAD / 4]);
    let mut most = 0;
    for mut records in [long(), short(), long(), short(), short(), short(), short(), short()] {
        while let Some(back) = snapshots.push(records) {
            assert_eq!(back.iter().filter(|byte| **byte == 7).count(), back.len(), "they come back whole");
            records = back;
            most = most.max(snapshots.ahead.load(Ordering::Relaxed));
            // The thread has written what came first.
            assert!(messages.try_recv().is_ok(), "it is there");
        }
    }
    assert_eq!(most, 16 << 20);
    assert_eq!(messages.try_iter().count(), 4, "short records are on their way together");
    assert_eq!(snapshots.ahead.load(Ordering::Relaxed), 0);
    // Those of which too many messages are on their way count no more.
    let tiny = || vec![7; 8];
    assert!((0..8).all(|_| snapshots.push(tiny()).is_none()));
    assert_eq!(snapshots.push(tiny()), Some(tiny()));
    assert_eq!(snapshots.ahead.load(Ordering::Relaxed), 64);
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
    });
    let (_, outcomes) = channel();
    let (ahead, given_up) = (Arc::default(), Arc::default());
    let thread = Some(thread);
    let snapshots = ThreadSnapshots { send: None, outcomes, begun: 1, ahead, given_up, thread };
    let dropping = thread::spawn(move || {
        drop(snapshots);
        has_written.load(Ordering::SeqCst)
    });
    thread::sleep(Duration::from_millis(20));
    assert!(!dropping.is_finished(), "the thread that writes has not ended");
    go_on.send(()).expect("it waits");
    assert!(dropping.join().expect("no panic"), "it had written all when the table was gone");
}
