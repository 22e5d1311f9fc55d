//! The queue in which tasks' reads wait for a worker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpcache::key_space::BuildKeys;
use fpcache::read::Side;
use tokio::sync::{Notify, Semaphore};

use super::counters::Counts;
use super::group::{Group, Kind, QueuedRead};
use super::unanswered::runtime_has_ended;
use crate::error::ClientError;

/// The kinds of reads, each in a row of its own.
const KINDS: [Kind; 5] =
    [Kind::Value, Kind::Presence, Kind::Nearest(Side::Floor), Kind::Nearest(Side::Ceiling), Kind::Scan];
/// As many keys make a group of their own while another worker is free, so that groups overlap:
/// more would share fewer doorbells than they wait for.
const SMALL: usize = 32;
/// No group has more keys, but for one that a single call asks for.
const LARGE: usize = 512;

/// Reads that wait. Tasks put them there, after waiting for room; workers take groups.
pub(super) struct Queue<K: BuildKeys> {
    waiting: Mutex<Waiting<K>>,
    /// A permit for each key that may come.
    room: Semaphore,
    keys: usize,
    /// Workers that there are to be.
    most_workers: usize,
    ready: Notify,
    counts: Arc<Counts>,
}

struct Waiting<K: BuildKeys> {
    rows: [Row<K>; KINDS.len()],
    /// The kind whose turn is next.
    turn: usize,
    /// Whether a worker was called that has not come yet.
    is_called: bool,
    /// Workers that there are, which end with their runtime.
    workers: usize,
    /// Of these, those that do nothing.
    idle: usize,
    /// Scans under way, and how many may be: they are long, and others are not to wait for all of
    /// them.
    scans: usize,
    most_scans: usize,
    is_closed: bool,
}

/// Whether a worker takes the calls that wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "without workers calls wait in vain"]
pub(super) enum WorkerDemand {
    /// There are workers.
    There,
    /// There were none: the queue counts on new ones from here on, which the caller starts.
    Wanted,
}

/// One of the workers of a queue, for as long as it lives.
pub(super) struct QueueWorker<K: BuildKeys>(Arc<Queue<K>>);

impl<K: BuildKeys> QueueWorker<K> {
    /// That of a worker that the queue counts on.
    pub(super) fn at(queue: &Arc<Queue<K>>) -> Self {
        Self(Arc::clone(queue))
    }

    pub(super) fn queue(&self) -> &Queue<K> {
        &self.0
    }
}

impl<K: BuildKeys> Drop for QueueWorker<K> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What a worker finds.
enum TakenGroup<K: BuildKeys> {
    Group(Group<K>),
    Nothing,
    Closed,
}

/// Calls of one kind.
struct Row<K: BuildKeys> {
    calls: VecDeque<QueuedRead<K>>,
    /// What they take of the queue's room.
    keys: usize,
}

impl<K: BuildKeys> Queue<K> {
    /// A queue with room for `keys` keys and `workers` workers, none of which is there yet.
    pub(super) fn new(keys: usize, workers: usize, counts: Arc<Counts>) -> Self {
        let keys = keys.min(u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        let waiting = Waiting {
            rows: std::array::from_fn(|_| Row { calls: VecDeque::new(), keys: 0 }),
            turn: 0,
            is_called: false,
            workers: 0,
            idle: 0,
            scans: 0,
            most_scans: (workers / 2).max(1),
            is_closed: false,
        };
        Self {
            waiting: Mutex::new(waiting),
            room: Semaphore::new(keys),
            keys,
            most_workers: workers.max(1),
            ready: Notify::new(),
            counts,
        }
    }

    /// How many workers there are to be.
    pub(super) fn most_workers(&self) -> usize {
        self.most_workers
    }

    /// Has the queue count with workers, unless there are some.
    pub(super) fn staff(&self) -> WorkerDemand {
        self.lock().staff(self.most_workers)
    }

    /// A worker has ended. With the last one, whose runtime has ended, so do the calls that no
    /// worker took: they may be those of another runtime.
    fn leave(&self) {
        let mut waiting = self.lock();
        waiting.workers -= 1;
        if waiting.workers > 0 {
            return;
        }
        // None of them is there to say so.
        (waiting.idle, waiting.scans, waiting.is_called) = (0, 0, false);
        let keys = waiting.rows.iter_mut().map(|row| std::mem::take(&mut row.keys)).sum();
        let calls: Vec<_> = waiting.rows.iter_mut().map(|row| std::mem::take(&mut row.calls)).collect();
        drop(waiting);
        self.room.add_permits(keys);
        drop(calls);
    }

    /// Puts a call into the queue, once there is room.
    pub(super) async fn push(&self, kind: Kind, asked: QueuedRead<K>) -> Result<WorkerDemand, ClientError> {
        let keys = room_of(&asked, self.keys);
        self.room.acquire_many(keys as u32).await.map_err(|_| runtime_has_ended())?.forget();
        Ok(self.put(kind, asked, keys))
    }

    /// Puts a call into the queue if there is room, and gives it back if not.
    pub(super) fn push_at_once(
        &self,
        kind: Kind,
        asked: QueuedRead<K>,
    ) -> Result<WorkerDemand, QueuedRead<K>> {
        let keys = room_of(&asked, self.keys);
        match self.room.try_acquire_many(keys as u32) {
            Ok(room) => {
                room.forget();
                Ok(self.put(kind, asked, keys))
            }
            Err(_) => Err(asked),
        }
    }

    /// Puts a call into the queue, which has room for its keys.
    fn put(&self, kind: Kind, asked: QueuedRead<K>, keys: usize) -> WorkerDemand {
        let row = KINDS.iter().position(|other| *other == kind).unwrap_or_default();
        let mut waiting = self.lock();
        waiting.rows[row].calls.push_back(asked);
        waiting.rows[row].keys += keys;
        let calls = !std::mem::replace(&mut waiting.is_called, true);
        let staff = waiting.staff(self.most_workers);
        drop(waiting);
        if calls {
            self.ready.notify_one();
        }
        staff
    }

    /// Takes a group, and waits until there is one; `None` once the queue is closed.
    pub(super) async fn take(&self) -> Option<Group<K>> {
        self.lock().idle += 1;
        loop {
            match self.take_at_once() {
                TakenGroup::Group(group) => return Some(group),
                TakenGroup::Closed => return None,
                TakenGroup::Nothing => self.ready.notified().await,
            }
        }
    }

    fn take_at_once(&self) -> TakenGroup<K> {
        let mut waiting = self.lock();
        waiting.is_called = false;
        if waiting.is_closed {
            drop(waiting);
            // Each worker calls the next, which ends too.
            self.ready.notify_one();
            return TakenGroup::Closed;
        }
        let Some((group, keys)) = waiting.take(self.keys) else { return TakenGroup::Nothing };
        waiting.idle -= 1;
        let has_more = waiting.has_some();
        waiting.is_called = has_more;
        drop(waiting);
        if has_more {
            self.ready.notify_one();
        }
        self.room.add_permits(keys);
        self.counts.count_group(group.asked.len());
        TakenGroup::Group(group)
    }

    /// A scan under way has ended.
    pub(super) fn end_scan(&self) {
        self.lock().scans -= 1;
    }

    /// What this and the client's other queues count.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Has the workers end, and the calls that wait told.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.rows.iter_mut().for_each(|row| row.calls.clear());
        drop(waiting);
        self.room.close();
        // Each calls the next.
        self.ready.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K>> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call takes of a queue's room: that of its keys, or all of it.
fn room_of<K: BuildKeys>(asked: &QueuedRead<K>, all: usize) -> usize {
    asked.keys.as_slice().len().clamp(1, all)
}

impl<K: BuildKeys> Waiting<K> {
    fn staff(&mut self, workers: usize) -> WorkerDemand {
        if self.workers > 0 {
            return WorkerDemand::There;
        }
        self.workers = workers;
        WorkerDemand::Wanted
    }

    /// Whether there is something for another worker.
    fn has_some(&self) -> bool {
        let mut rows = KINDS.iter().zip(&self.rows);
        rows.any(|(kind, row)| !row.calls.is_empty() && self.may_begin(*kind))
    }

    fn may_begin(&self, kind: Kind) -> bool {
        kind != Kind::Scan || self.scans < self.most_scans
    }

    /// A group of the kind whose turn it is, and what it took of a queue's room, which has so much.
    fn take(&mut self, all: usize) -> Option<(Group<K>, usize)> {
        let turns = (0..KINDS.len()).map(|step| (self.turn + step) % KINDS.len());
        let mut waiting = turns.filter(|at| !self.rows[*at].calls.is_empty() && self.may_begin(KINDS[*at]));
        let at = waiting.next()?;
        self.turn = (at + 1) % KINDS.len();
        let (kind, row) = (KINDS[at], &mut self.rows[at]);
        let share = row.keys.div_ceil(self.idle.max(1)).clamp(SMALL, LARGE);
        let (mut asked, mut keys) = (Vec::new(), 0);
        while let Some(first) = row.calls.front() {
            let more = room_of(first, all);
            if !asked.is_empty() && (keys + more > share || kind == Kind::Scan) {
                break;
            }
            keys += more;
            asked.extend(row.calls.pop_front());
        }
        row.keys -= keys;
        self.scans += usize::from(kind == Kind::Scan);
        Some((Group::with(kind, asked), keys))
    }
}
