//! The log keeps what was synced through every crash and failure, in order and once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{LINEAGE, RING_BYTES, assert_holds, memory, options, payload, read_all};
use crate::memory_disk::MemoryDisk;
use fpcache_fabric::SharedMemory;
use fpcache_memserver::durability::{
    AppendError, DiskErrorKind, Drain, LogError, LogOptions, Lsn, Staging, SyncPolicy,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Append(u8),
    Step(u8),
    Want,
    Kill,
    Crash,
    FailSyncs(u8),
    FailAppends,
    FillUp(u16),
    Recover,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (1..30u8).prop_map(Event::Append),
        8 => (0..30u8).prop_map(Event::Step),
        1 => Just(Event::Want),
        2 => Just(Event::Kill),
        2 => Just(Event::Crash),
        1 => (1..3u8).prop_map(Event::FailSyncs),
        1 => Just(Event::FailAppends),
        1 => (0..3000u16).prop_map(Event::FillUp),
        4 => Just(Event::Recover),
    ];
    prop::collection::vec(event, 1..60)
}

struct World {
    disk: MemoryDisk,
    memory: Arc<SharedMemory>,
    staging: Staging<SharedMemory>,
    drain: Drain<SharedMemory, MemoryDisk>,
    options: LogOptions,
    now: Instant,
    last: Lsn,
    synced: Lsn,
}

impl World {
    fn new(seed: u64, sync: SyncPolicy) -> Self {
        let (disk, memory, options) = (MemoryDisk::new(seed), memory(), options(sync));
        let staging = Staging::create(Arc::clone(&memory), 0, RING_BYTES, LINEAGE, 0).unwrap();
        let drain = Drain::open(&staging, disk.clone(), options).unwrap();
        Self { disk, memory, staging, drain, options, now: Instant::now(), last: 0, synced: 0 }
    }

    fn noticed(&mut self) {
        let synced = self.staging.synced_lsn().unwrap();
        assert!(
            synced >= self.synced && synced <= self.last,
            "{synced} after {} of {}",
            self.synced,
            self.last
        );
        self.synced = synced;
    }

    fn heal(&self) {
        self.disk.fail_syncs(0);
        self.disk.fail_appends(0);
        self.disk.fill_up_after(u64::MAX);
    }

    /// The process ends; the machine does not.
    fn kill(&mut self) {
        self.heal();
        self.disk = self.disk.restart();
        self.staging = Staging::open(Arc::clone(&self.memory), 0, RING_BYTES).unwrap();
        assert_eq!(self.staging.last_lsn(), self.last);
        self.drain = Drain::open(&self.staging, self.disk.clone(), self.options).unwrap();
    }

    /// The machine stops.
    fn crash(&mut self) {
        self.heal();
        self.disk = self.disk.crash();
        let (found, report) = read_all(&mut self.disk).unwrap();
        assert!(report.last >= self.synced, "{} of {} synced are left: {report:?}", report.last, self.synced);
        assert!(report.last <= self.last);
        let expected: Vec<_> = (1..=report.last).map(|lsn| (lsn, payload(lsn))).collect();
        assert_eq!(found, expected);
        self.last = report.last;
        self.memory = memory();
        self.staging = Staging::create(Arc::clone(&self.memory), 0, RING_BYTES, LINEAGE, self.last).unwrap();
        self.drain = Drain::open(&self.staging, self.disk.clone(), self.options).unwrap();
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Append(count) => {
                for _ in 0..count {
                    match self.staging.append(&payload(self.last + 1)) {
                        Ok(lsn) => {
                            self.last += 1;
                            assert_eq!(lsn, self.last);
                        }
                        Err(e) => assert_eq!(e, AppendError::Full),
                    }
                }
            }
            Event::Step(ms) => {
                self.now += Duration::from_millis(u64::from(ms));
                let result = self.drain.step(self.now);
                assert_eq!(result.is_err(), self.staging.failure().is_some());
                if let Ok(progress) = result {
                    assert_eq!(progress.drained, self.last);
                    assert!(self.options.sync != SyncPolicy::Always || progress.synced == self.last);
                }
            }
            Event::Want => self.staging.want_sync(self.last),
            Event::Kill => self.kill(),
            Event::Crash => self.crash(),
            Event::FailSyncs(count) => self.disk.fail_syncs(u32::from(count)),
            Event::FailAppends => self.disk.fail_appends(1),
            Event::FillUp(bytes) => self.disk.fill_up_after(u64::from(bytes)),
            Event::Recover => {
                self.heal();
                self.drain.retry().unwrap();
                assert!(self.staging.failure().is_none());
            }
        }
        self.noticed();
    }
}

fn check_history(seed: u64, sync: SyncPolicy, events: Vec<Event>) {
    let mut world = World::new(seed, sync);
    for event in events {
        world.run(event);
    }
    world.kill();
    world.drain.finish(world.now).unwrap();
    assert_holds(&mut world.disk, world.last);
    world.noticed();
    assert_eq!(world.synced, world.last);
    world.crash();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn no_crash_loses_a_synced_record_or_invents_one_when_always_synced(seed: u64, events in events()) {
        check_history(seed, SyncPolicy::Always, events);
    }

    #[test]
    fn no_crash_loses_a_synced_record_or_invents_one_when_synced_at_times(seed: u64, events in events()) {
        check_history(seed, SyncPolicy::Interval(Duration::from_millis(40)), events);
    }

    #[test]
    fn no_crash_loses_a_synced_record_or_invents_one_when_never_synced(seed: u64, events in events()) {
        // A failed sync does lose records under this policy: a test of its own.
        let events = events.into_iter().filter(|event| !matches!(event, Event::FailSyncs(_))).collect();
        check_history(seed, SyncPolicy::Never, events);
    }
}

// Disks that refuse.

#[test]
fn a_full_disk_is_an_error_until_there_is_room_and_nothing_is_lost() {
    let mut world = World::new(3, SyncPolicy::Always);
    world.run(Event::Append(10));
    world.disk.fill_up_after(100);
    for _ in 0..3 {
        let error = world.drain.step(world.now).unwrap_err();
        assert!(
            matches!(&error, LogError::Write { from: 1, source } if source.kind == DiskErrorKind::Full),
            "{error}"
        );
        assert!(error.to_string().contains("free space"), "{error}");
    }
    assert!(world.staging.failure().is_some());
    while world.staging.append(&payload(world.last + 1)).is_ok() {
        world.last += 1;
    }
    // A file that is replaced gives its room back: enough for the next one's header.
    let again = world.drain.retry().and_then(|()| world.drain.step(world.now));
    assert!(again.is_err(), "the disk is still full");
    world.heal();
    world.drain.retry().unwrap();
    assert_eq!(world.drain.step(world.now).unwrap().synced, world.last);
    assert!(world.staging.has_room(1, 64));
    world.crash();
    assert!(world.last > 60);
}

#[test]
fn what_a_failed_sync_lost_is_written_again_before_it_counts() {
    let mut world = World::new(4, SyncPolicy::Always);
    world.run(Event::Append(9));
    world.drain.step(world.now).unwrap();
    world.run(Event::Append(9));
    world.disk.fail_syncs(1);
    let error = world.drain.step(world.now).unwrap_err();
    assert!(matches!(error, LogError::Sync { from: 10, .. }), "{error}");
    // The disk would say yes now, and be wrong.
    assert!(world.drain.step(world.now).is_err());
    assert_eq!(world.staging.synced_lsn().unwrap(), 9);
    world.drain.retry().unwrap();
    assert_eq!(world.staging.synced_lsn().unwrap(), 9);
    assert_eq!(world.drain.step(world.now).unwrap().synced, 18);
    world.noticed();
    world.crash();
    assert_eq!(world.last, 18);
}

/// Nine records that were given back, and whose sync has failed.
fn with_a_failed_sync() -> World {
    let mut world = World::new(4, SyncPolicy::Never);
    world.run(Event::Append(9));
    world.drain.step(world.now).unwrap();
    world.disk.fail_syncs(1);
    world.staging.want_sync(9);
    assert!(matches!(world.drain.step(world.now), Err(LogError::Sync { from: 1, .. })));
    world
}

#[test]
fn a_failed_sync_of_records_given_back_is_known_to_the_next_process() {
    for retries in [false, true] {
        let mut world = with_a_failed_sync();
        assert_eq!(world.staging.lost_lsn(), 9);
        if retries {
            world.drain.retry().unwrap();
        }
        world.kill();
        assert_eq!(world.staging.lost_lsn(), 9);
    }
}

#[test]
fn so_is_one_after_an_error_of_writing() {
    for (fails, lost) in [(false, 0), (true, 9)] {
        let mut world = World::new(4, SyncPolicy::Never);
        world.run(Event::Append(9));
        world.drain.step(world.now).unwrap();
        world.run(Event::Append(3));
        world.disk.fail_appends(1);
        world.disk.fail_syncs(u32::from(fails));
        let error = world.drain.step(world.now).unwrap_err();
        assert_eq!(matches!(error, LogError::Sync { from: 1, .. }), fails, "{error}");
        assert_eq!(world.staging.lost_lsn(), lost, "what was not written is in the ring");
        world.kill();
        assert_eq!(world.staging.lost_lsn(), lost);
    }
}

/// The disk stays full until the machine ends: by then an interval is over since all but the last
/// record.
#[test]
fn what_was_written_before_the_disk_was_full_does_not_wait_for_room_to_be_synced() {
    let mut world = World::new(4, SyncPolicy::Interval(Duration::from_secs(1)));
    world.run(Event::Append(9));
    world.drain.step(world.now).unwrap();
    assert_eq!(world.staging.synced_lsn().unwrap(), 0);
    world.run(Event::Append(1));
    world.disk.fill_up_after(0);
    let error = world.drain.step(world.now).unwrap_err();
    assert!(matches!(error, LogError::Write { from: 10, .. }), "{error}");
    world.drain.retry().unwrap_err();
    world.noticed();
    assert_eq!(world.synced, 9);
    world.crash();
}

#[test]
fn so_is_one_within_a_start() {
    for (sync, lost) in [(SyncPolicy::Never, 9), (SyncPolicy::Always, 0)] {
        let mut world = World::new(4, sync);
        world.run(Event::Append(9));
        world.drain.step(world.now).unwrap();
        world.disk = world.disk.restart();
        world.disk.fail_syncs(1);
        let staging = Staging::open(Arc::clone(&world.memory), 0, RING_BYTES).unwrap();
        assert!(Drain::open(&staging, world.disk.clone(), world.options).is_err());
        // The disk would say yes now, and be wrong.
        world.kill();
        assert_eq!(world.staging.lost_lsn(), lost, "{sync}");
    }
}

#[test]
fn records_longer_than_a_quarter_of_the_ring_are_refused() {
    let mut staging = Staging::create(memory(), 0, RING_BYTES, LINEAGE, 0).unwrap();
    let max = staging.max_payload_bytes();
    assert_eq!(max, 1008);
    assert_eq!(staging.append(&vec![0; max + 1]), Err(AppendError::TooLong { len: max + 1, max }));
    for _ in 0..4 {
        staging.append(&vec![0; max]).unwrap();
    }
    assert_eq!(staging.append(&[]), Err(AppendError::Full));
}

#[test]
fn the_ring_tells_what_it_still_holds() {
    let mut world = World::new(5, SyncPolicy::Always);
    world.run(Event::Append(9));
    world.drain.step(world.now).unwrap();
    world.run(Event::Append(9));
    let mut records = world.staging.records(12).unwrap();
    for lsn in 12..=18 {
        assert_eq!(records.next_record().unwrap(), Some((lsn, &payload(lsn)[..])));
    }
    assert_eq!(records.next_record().unwrap(), None);
    assert!(world.staging.records(9).is_err());
    assert!(world.staging.records(19).unwrap().next_record().unwrap().is_none());
}
