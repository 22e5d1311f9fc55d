//! Background work of a table between requests, a step at a time. All of it has its turn: writes
//! that never cease always leave segments to be replaced, and what these give back must come free
//! meanwhile.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::NodeMemory;

use super::Table;
use super::error::TableError;
use super::task_rotation::Task;

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Does a little background work; `true` if there is more. Segments are replaced only if
    /// `may_replace`: none of their slots may be reserved. Never waits for a lease.
    pub(crate) fn work(&mut self, may_replace: bool) -> Result<bool, TableError> {
        self.room.lacks_leased = self.room.lacks_leased && self.room.superblock.lease_ends_at().is_some();
        self.room.waits_for_lease = false;
        let worked = self.take_turns(may_replace);
        self.room.waits_for_lease = true;
        // The lease may have ended meanwhile: nothing else would have it go on.
        worked.map(|is_more| {
            is_more || self.room.lacks_leased && self.room.superblock.lease_ends_at().is_none()
        })
    }

    fn take_turns(&mut self, may_replace: bool) -> Result<bool, TableError> {
        // What it replaces would be in the way of a search for room.
        let may_replace = may_replace && !self.is_searching();
        let mut without_room = None;
        for _ in 0..Task::ALL.len() {
            let task = self.turns.next();
            if task.replaces_segments() && (!may_replace || self.room.lacks_leased) {
                continue;
            }
            match self.step(task) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                // There will be a turn after it.
                Err(TableError::Leased) => {}
                // Other tasks may make some.
                Err(error @ TableError::NoRoom { .. }) => without_room = Some(error),
                Err(error) => return Err(error),
            }
        }
        without_room.map_or(Ok(false), Err)
    }

    /// Whether segments are known to be replaced as soon as none of their slots is reserved.
    pub(crate) fn has_segments_to_replace(&self) -> bool {
        let Self { rebuilder, segments, room, .. } = self;
        rebuilder.has_due()
            || rebuilder.retraining.outdated_from.is_some()
            || self.sweep.is_some()
            || room.due_sweep(segments).is_some()
            || room
                .emptying
                .evacuation
                .as_ref()
                .is_some_and(|evacuation| evacuation.moved.is_none_or(|head| room.record.checkpoint >= head))
    }

    /// Takes a step of a task; `false` if there was none to take.
    fn step(&mut self, task: Task) -> Result<bool, TableError> {
        match task {
            Task::Relieve => self.replace_next_due(),
            Task::Recount => self.values.step_recounting(&self.segments),
            Task::Checkpoint => self.step_directory(),
            Task::Retrain => self.step_retraining(),
            Task::GiveBack => self.give_back(),
            Task::Reclaim => self.room.reclaim_early(),
            Task::Shrink => Ok(self.room.space.shrink()),
        }
    }

    /// Replaces the next segment that is due, and forgets those that no longer are.
    fn replace_next_due(&mut self) -> Result<bool, TableError> {
        /// Those looked at in one step: inserts note a segment more than once.
        const MOST: usize = 32;
        for _ in 0..MOST {
            let Some(key) = self.rebuilder.next_due() else { return Ok(false) };
            match self.replace_if_due(key.borrow()) {
                Ok(false) => {}
                relieved => {
                    if let Err(TableError::Leased) = relieved {
                        self.rebuilder.note_due(key.borrow());
                    }
                    return relieved;
                }
            }
        }
        Ok(true)
    }

    /// Writes some more of the next directory, if one is wanted.
    fn step_directory(&mut self) -> Result<bool, TableError> {
        // A search writes directories when it needs them, and has room for them then.
        if self.is_searching() || !self.room.wants_checkpoint() {
            return Ok(false);
        }
        match self.room.step_checkpoint(&self.segments) {
            // The bytes that are being emptied may be all that is free. They are taken at once, for
            // others are emptied next, of which the directory would have nothing either.
            Err(TableError::NoRoom { .. }) if self.room.give_up_evacuation() => {
                self.room.step_checkpoint(&self.segments)?;
            }
            stepped => stepped?,
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use fpcache::key_space::U64Keys;
    use fpcache::layout::{Descriptor, RecordShape, RecordToken, SegmentAddress, TableParameters};
    use fpcache::message::{Sent, WriteBatch, WriteKind, WriteOperation};
    use fpcache::models::Segment;
    use fpcache_fabric::{ClientId, Clock, Handled, HugePages, Service, SharedMemory};
    use fpcache_index::{Line, SegmentModel};

    use super::*;
    use crate::budget::{Budget, Grant};
    use crate::fixtures::{empty_node, table_of};
    use crate::lease::Lease;
    use crate::node::MemoryNode;
    use crate::space::Extent;

    /// A clock that only sleeping moves, and who says so; it counts how often somebody slept.
    #[derive(Debug)]
    struct SetClock(Mutex<Instant>, AtomicU32);

    impl SetClock {
        fn move_on(&self, duration: Duration) {
            *self.0.lock().expect("nobody panics") += duration;
        }
    }

    impl Clock for SetClock {
        fn now(&self) -> Instant {
            *self.0.lock().expect("nobody panics")
        }

        fn sleep(&self, duration: Duration) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.move_on(duration);
        }
    }

    const LEASE: Duration = Duration::from_millis(1);

    /// A table of these keys, with as many bytes, whose readers have a lease by this clock.
    fn leased(bytes: usize, keys: u32) -> (MemoryNode<U64Keys>, Arc<SetClock>) {
        let clock = Arc::new(SetClock(Mutex::new(Instant::now()), AtomicU32::new(0)));
        let mut node =
            empty_node::<U64Keys>(bytes).with_lease(Lease::new(LEASE, Arc::clone(&clock) as Arc<dyn Clock>));
        let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
        node.load(parameters, (0..keys).map(|key| u64::from(key) << 20), |_, _| {}).expect("room");
        (node, clock)
    }

    /// Has the table work until it does nothing before time has passed; how often it slept.
    fn finish_work(node: &mut MemoryNode<U64Keys>, clock: &SetClock) -> u32 {
        let table = table_of(node);
        let before = clock.1.load(Ordering::Relaxed);
        let turns = (0..100_000).find(|_| !table.work(true).is_ok_and(|is_more| is_more));
        assert!(turns.is_some(), "it goes on for ever");
        clock.1.load(Ordering::Relaxed) - before
    }

    /// The thread that serves all tables slept for the rest of it.
    #[test]
    fn an_evacuation_does_not_sleep_for_the_lease_in_the_end() {
        let (mut node, clock) = leased(1 << 20, 5_000);
        node.empty(0..1 << 18);
        let is_over = |node: &mut MemoryNode<U64Keys>| {
            let table = table_of(node);
            table.room.emptying.evacuation.is_none() && table.room.space.emptied().is_none()
        };
        assert_eq!(finish_work(&mut node, &clock), 0);
        assert!(!is_over(&mut node), "what was there is no reader's only after the lease");
        for _ in 0..10 {
            clock.move_on(LEASE);
            assert_eq!(finish_work(&mut node, &clock), 0);
        }
        assert!(is_over(&mut node));
        assert_eq!(node.audit().expect("every byte is right").map(|audit| audit.keys), Some(5_000));
    }

    /// So it did for segments and directories that found no memory at once.
    #[test]
    fn work_in_a_full_table_leaves_the_lease_to_writes() {
        let (mut node, clock) = leased(1 << 20, 20_000);
        let (mut random, mut reply) = (1u64, Vec::new());
        for number in 1..400 {
            let (mut batch, mut request) = (WriteBatch::default(), Vec::new());
            for n in 0..60 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = (random >> 33) % (20_000 << 20);
                let (kind, key, value) = match n % 3 {
                    0 => (WriteKind::Delete, key & !0xf_ffff, &[][..]),
                    _ => (WriteKind::Put, key, &[7; 8][..]),
                };
                let (expected, value) = (RecordToken::default(), Sent::Here(value));
                batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
            }
            batch.request(1, number, false).encode::<U64Keys>(0, &mut request);
            reply.clear();
            if node.handle(ClientId(1), &request, &mut reply) == Handled::Later {
                while node.next_reply(&mut reply).is_none() {
                    node.work();
                }
            }
            assert_eq!(finish_work(&mut node, &clock), 0, "after {number} requests");
            clock.move_on(LEASE / 3);
        }
        node.audit().expect("every byte is right");
    }

    /// The range stayed withheld from everything else.
    #[test]
    fn nothing_is_emptied_any_more_once_an_evacuation_has_failed() {
        let (mut node, _) = leased(1 << 20, 5_000);
        let table = table_of(&mut node);
        // A segment that lies outside the region.
        let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap: 16, epsilon: 4 };
        let address = SegmentAddress::new(0, 1 << 40).expect("an address");
        let descriptor = Descriptor::<U64Keys> { start: 0, tail: (), model, address, generation: 1 };
        let entry = (0, Segment::from(&descriptor));
        table.segments.directory.replace(&0, None, &[entry]).expect("in order");
        table.room.begin_evacuation(0..u64::MAX);
        assert!(matches!(table.step_evacuation(), Err(TableError::Region(_))));
        assert!(table.room.emptying.evacuation.is_none() && table.room.space.emptied().is_none());
    }

    /// Empties a table's memory to its end while it lacks a directory, until there is nothing to do
    /// any more; says whether there is a directory then. Nothing is set aside for one, and before
    /// `until` only `hole` bytes of each 4 KiB are free, which no page of it fits.
    fn is_published_while_emptied(until: u64, hole: u64) -> bool {
        const BYTES: u64 = 4 << 20;
        let region = SharedMemory::create_memfd("test", BYTES as usize, HugePages::No).expect("memory").0;
        let region = Arc::new(region);
        let grant = Grant::of(&Budget::new(BYTES), &region, u64::MAX).expect("room");
        let node = MemoryNode::<U64Keys>::within(region, grant, 1, 0, Instant::now());
        let mut node = node.expect("a region");
        let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
        node.load(parameters, (0..500u32).map(u64::from), |_, _| {}).expect("room");
        let table = table_of(&mut node);
        assert!(table.room.space.reach(BYTES));
        // A change that the published directory lacks.
        table.room.begin_evacuation(0..1 << 20);
        table.move_some().expect("room");
        assert_eq!(table.room.emptying.evacuation.as_ref().map(|evacuation| evacuation.replaced), Some(1));
        table.room.begin_evacuation(0..u64::MAX);
        table.room.give_up_evacuation();
        let pieces: Vec<Extent> = std::iter::from_fn(|| table.room.space.take(4096)).collect();
        for piece in pieces {
            let hole = Extent { offset: piece.offset + 512, len: hole };
            table.room.space.put(if piece.offset < until { hole } else { piece });
        }
        let window = table.room.wants_emptied(&table.segments).expect("it can be read");
        let window = window.expect("much is free");
        assert_eq!(window.end, u64::MAX);
        table.room.begin_evacuation(window);
        let turns = (0..100).find(|_| !matches!(table.work(true), Ok(true)));
        assert!(turns.is_some(), "it goes on for ever");
        table.room.record.checkpoint == table.room.superblock.current().log_head
    }

    /// What the directory had given up for want of room was emptied again before its next turn
    /// came.
    #[test]
    fn emptying_memory_and_writing_a_directory_do_not_undo_each_other() {
        assert!(is_published_while_emptied(3 << 19, 2048));
    }

    #[test]
    fn memory_is_not_emptied_again_and_again_where_no_directory_finds_room() {
        assert!(!is_published_while_emptied(u64::MAX, 3072));
    }
}
