//! Background work of the log and the snapshots: by threads, or step by step in a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

#[cfg(feature = "sabotage")]
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{NodeMemory, SystemClock, Waker};
use tracing::{error, info, warn};

use crate::durability::{
    Disk, DiskError, Drain, DrainThread, ExpectedSnapshot, LogError, LogEvent, Lsn, SnapshotError,
    SnapshotInfo, SnapshotWriter, has_room_for_snapshot, prune,
};
use crate::priority::lower_priority;
use crate::table::records::each_record;

/// Brings the log to the disk.
pub(crate) trait Draining: Send {
    /// Gets on, if that is this thread's business; says when to call again.
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, LogError>;

    /// Brings all that is staged to the disk, as far as that takes it, for nothing more will be.
    fn end(&mut self, now: Instant);

    /// Breaks it on purpose.
    #[cfg(feature = "sabotage")]
    fn sabotage(&mut self, _sabotage: Option<Sabotage>) {}
}

/// On the memory node's own thread.
pub(crate) struct InlineDrain<M, D> {
    drain: Drain<M, D>,
}

impl<M, D> InlineDrain<M, D> {
    pub(crate) fn new(drain: Drain<M, D>) -> Self {
        Self { drain }
    }
}

impl<M: NodeMemory, D: Disk> Draining for InlineDrain<M, D> {
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, LogError> {
        if self.drain.failure().is_some() {
            self.drain.retry()?;
        }
        Ok(self.drain.step(now)?.due)
    }

    fn end(&mut self, now: Instant) {
        // An error stays with the ring.
        let _ = self.drain.retry().and_then(|()| self.drain.finish(now));
    }

    #[cfg(feature = "sabotage")]
    fn sabotage(&mut self, sabotage: Option<Sabotage>) {
        self.drain.sabotage = sabotage;
    }
}

/// On a thread of its own.
pub(crate) struct ThreadDrain<M: NodeMemory, D: Disk + 'static> {
    /// `None` once it has ended.
    thread: Option<DrainThread<M, D>>,
}

impl<M: NodeMemory, D: Disk + 'static> ThreadDrain<M, D> {
    /// Starts the thread, which wakes the memory node's loop when entries have reached the disk.
    pub(crate) fn spawn(drain: Drain<M, D>, waker: Waker) -> std::io::Result<Self> {
        let tell = move |event: LogEvent| {
            match event {
                LogEvent::Synced(_) => {}
                LogEvent::Failed(error) => error!("{error}"),
                LogEvent::Recovered => info!("writing the log works again"),
            }
            // Requests that wait for the disk are answered, one way or the other.
            waker.wake();
        };
        Ok(Self { thread: Some(DrainThread::spawn(drain, Arc::new(SystemClock), tell)?) })
    }
}

impl<M: NodeMemory, D: Disk + 'static> Draining for ThreadDrain<M, D> {
    fn step(&mut self, _: Instant) -> Result<Option<Instant>, LogError> {
        Ok(None)
    }

    fn end(&mut self, _: Instant) {
        self.thread = None;
    }
}

/// What a snapshot begins with.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotStart {
    pub(crate) lineage: u64,
    pub(crate) header: Vec<u8>,
    /// The first entry of the log that may be missing in the snapshot.
    pub(crate) first: Lsn,
    /// What there must be room for.
    pub(crate) expected: ExpectedSnapshot,
}

/// Writes snapshots. One at a time.
pub(crate) trait Snapshots: Send {
    /// Begins one, in the place of any that was given up. `false` if the disk has not yet got so
    /// far.
    fn begin(&mut self, start: SnapshotStart) -> bool;
    /// Adds records, one after another in `records`, each after its length; gives them back if the
    /// disk has not yet got so far.
    fn push(&mut self, records: Vec<u8>) -> Option<Vec<u8>>;
    /// Ends the snapshot; `last` is the last entry of the log that may be contained in it, and is
    /// on the disk. `false` if the disk has not yet got so far.
    fn finish(&mut self, last: Lsn) -> bool;
    /// Gives up the one under way: its file is removed soon, for the log may need the room.
    fn give_up(&mut self);
    /// How the snapshot ended, once: an error perhaps before it was finished.
    fn outcome(&mut self) -> Option<Result<SnapshotInfo, SnapshotError>>;
}

/// Snapshots kept, the newest among them.
const SNAPSHOTS_KEPT: usize = 2;

/// A snapshot on its way to the disk.
struct Writing<D: Disk> {
    lineage: u64,
    writer: Result<SnapshotWriter<D>, SnapshotError>,
}

impl<D: Disk + Clone> Writing<D> {
    fn begin(disk: D, start: &SnapshotStart) -> Self {
        let has_room = has_room_for_snapshot(&disk, start.expected);
        let begin = || SnapshotWriter::begin(disk, start.lineage, &start.header, start.first);
        Self { lineage: start.lineage, writer: has_room.and_then(|()| begin()) }
    }

    fn or_error(self) -> Result<Self, SnapshotError> {
        self.writer.map(|writer| Self { lineage: self.lineage, writer: Ok(writer) })
    }

    fn push(&mut self, records: &[u8]) {
        let Ok(writer) = &mut self.writer else { return };
        let pushed = each_record(records).try_for_each(|record| writer.push(record));
        if let Err(error) = pushed {
            self.writer = Err(error);
        }
    }

    fn finish(self, disk: &mut D, last: Lsn) -> Result<SnapshotInfo, SnapshotError> {
        let info = self.writer?.finish(last)?;
        if let Err(error) = prune(disk, self.lineage, SNAPSHOTS_KEPT) {
            // The snapshot is good all the same, and the next one prunes again.
            warn!("older snapshots and log files were not removed: {error}");
        }
        Ok(info)
    }
}

/// On the memory node's own thread.
pub(crate) struct InlineSnapshots<D: Disk> {
    disk: D,
    writing: Option<Writing<D>>,
    outcome: Option<Result<SnapshotInfo, SnapshotError>>,
}

impl<D: Disk + Clone> InlineSnapshots<D> {
    pub(crate) fn new(disk: D) -> Self {
        Self { disk, writing: None, outcome: None }
    }

    fn go_on(&mut self, writing: Writing<D>) {
        match writing.or_error() {
            Ok(writing) => self.writing = Some(writing),
            Err(error) => self.outcome = Some(Err(error)),
        }
    }
}

impl<D: Disk + Clone> Snapshots for InlineSnapshots<D> {
    fn begin(&mut self, start: SnapshotStart) -> bool {
        // One that was given up removes its file, which may have the same name.
        self.give_up();
        let writing = Writing::begin(self.disk.clone(), &start);
        self.go_on(writing);
        true
    }

    fn push(&mut self, records: Vec<u8>) -> Option<Vec<u8>> {
        if let Some(mut writing) = self.writing.take() {
            writing.push(&records);
            self.go_on(writing);
        }
        None
    }

    fn finish(&mut self, last: Lsn) -> bool {
        if let Some(writing) = self.writing.take() {
            self.outcome = Some(writing.finish(&mut self.disk, last));
        }
        true
    }

    fn give_up(&mut self) {
        (self.writing, self.outcome) = (None, None);
    }

    fn outcome(&mut self) -> Option<Result<SnapshotInfo, SnapshotError>> {
        self.outcome.take()
    }
}

enum Message {
    /// With the number that its outcome is told by.
    Begin(u64, SnapshotStart),
    Records(RecordsAhead),
    Finish(Lsn),
    /// Wakes the thread, which looks whether the one under way was given up.
    GiveUp,
}

/// Bytes of records on their way and being written: one message may have more, if it is alone.
const MOST_AHEAD: usize = 4 << 20;

/// Records on their way. They count until they are written, or dropped.
struct RecordsAhead {
    records: Vec<u8>,
    counted: usize,
    /// Bytes of all that are on their way.
    ahead: Arc<AtomicUsize>,
}

impl RecordsAhead {
    /// Sends records on their way, or gives them back where too many bytes are.
    fn new(records: Vec<u8>, ahead: &Arc<AtomicUsize>) -> Result<Self, Vec<u8>> {
        let (counted, before) = (records.len(), ahead.load(Ordering::Relaxed));
        if before > 0 && before.saturating_add(counted) > MOST_AHEAD {
            return Err(records);
        }
        ahead.fetch_add(counted, Ordering::Relaxed);
        Ok(Self { records, counted, ahead: Arc::clone(ahead) })
    }
}

impl Drop for RecordsAhead {
    fn drop(&mut self) {
        self.ahead.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// What no number of a snapshot exceeds.
const ALL: u64 = u64::MAX;

/// The number of a snapshot, and how it ended.
type Ended = (u64, Result<SnapshotInfo, SnapshotError>);

/// On a thread of its own. Dropped, it waits until the thread has ended, which gives up the
/// snapshot under way: nothing writes to the folder from then on.
pub(crate) struct ThreadSnapshots {
    /// `None` once it is being dropped.
    send: Option<SyncSender<Message>>,
    outcomes: Receiver<Ended>,
    /// The number of the snapshot under way.
    begun: u64,
    /// Bytes of records on their way to the thread.
    ahead: Arc<AtomicUsize>,
    /// The number of the last one that was given up; [`ALL`] in the end.
    given_up: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadSnapshots {
    /// Starts the thread, which wakes the memory node's loop when a snapshot has ended.
    pub(crate) fn spawn<D: Disk + Clone + 'static>(mut disk: D, waker: Waker) -> std::io::Result<Self> {
        /// Messages on their way.
        const AHEAD: usize = 8;
        let (send, messages) = sync_channel(AHEAD);
        let (tell, outcomes) = channel();
        let given_up = Arc::new(AtomicU64::new(0));
        let gone = Arc::clone(&given_up);
        let run = move || {
            lower_priority();
            let mut writing: Option<(u64, Writing<D>)> = None;
            // Ends when the memory node does; a snapshot that is not finished by then is removed.
            for message in messages {
                let gone = gone.load(Ordering::Relaxed);
                if gone == ALL {
                    return;
                }
                // The log may wait for the room that it has.
                drop(writing.take_if(|(number, _)| *number <= gone));
                match message {
                    Message::Begin(number, _) if number <= gone => {}
                    Message::Begin(number, start) => {
                        // One that was given up removes its file, which may have the same name.
                        drop(writing.take());
                        writing = Some((number, Writing::begin(disk.clone(), &start)));
                    }
                    Message::Records(ahead) => {
                        if let Some((_, writing)) = &mut writing {
                            writing.push(&ahead.records);
                        }
                    }
                    Message::Finish(last) => {
                        let Some((number, writing)) = writing.take() else { continue };
                        if tell.send((number, writing.finish(&mut disk, last))).is_err() {
                            return;
                        }
                        waker.wake();
                    }
                    Message::GiveUp => {}
                }
                // Gathering records for one that has failed need not go on.
                if let Some((number, begun)) = writing.take() {
                    match begun.or_error() {
                        Ok(begun) => writing = Some((number, begun)),
                        Err(error) => {
                            if tell.send((number, Err(error))).is_err() {
                                return;
                            }
                            waker.wake();
                        }
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("fpcache-snapshot".into()).spawn(run)?;
        let ahead = Arc::default();
        Ok(Self { send: Some(send), outcomes, begun: 0, ahead, given_up, thread: Some(thread) })
    }

    /// Hands a message to the thread; gives it back if that has not got so far. That it has ended
    /// shows as the outcome.
    fn try_send(&self, message: Message) -> Result<(), Message> {
        match self.send.as_ref().map(|send| send.try_send(message)) {
            Some(Err(TrySendError::Full(message))) => Err(message),
            _ => Ok(()),
        }
    }
}

impl Drop for ThreadSnapshots {
    fn drop(&mut self) {
        self.given_up.store(ALL, Ordering::Relaxed);
        self.send = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked writes no more either.
            let _ = thread.join();
        }
    }
}

impl Snapshots for ThreadSnapshots {
    fn begin(&mut self, start: SnapshotStart) -> bool {
        // Records of one that was given up may still be on their way.
        let is_begun = self.try_send(Message::Begin(self.begun + 1, start)).is_ok();
        self.begun += u64::from(is_begun);
        is_begun
    }

    fn push(&mut self, records: Vec<u8>) -> Option<Vec<u8>> {
        let ahead = match RecordsAhead::new(records, &self.ahead) {
            Ok(ahead) => ahead,
            Err(records) => return Some(records),
        };
        match self.try_send(Message::Records(ahead)) {
            Err(Message::Records(mut ahead)) => Some(std::mem::take(&mut ahead.records)),
            _ => None,
        }
    }

    fn finish(&mut self, last: Lsn) -> bool {
        self.try_send(Message::Finish(last)).is_ok()
    }

    fn give_up(&mut self) {
        self.given_up.store(self.begun, Ordering::Relaxed);
        // Where too much is on its way for another message, the thread does not sleep.
        let _ = self.try_send(Message::GiveUp);
    }

    fn outcome(&mut self) -> Option<Result<SnapshotInfo, SnapshotError>> {
        loop {
            match self.outcomes.try_recv() {
                Ok((number, outcome)) if number == self.begun => return Some(outcome),
                // Of one that was given up.
                Ok(_) => {}
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {
                    let gone = std::io::Error::other("the thread that writes it has ended");
                    return Some(Err(DiskError::new("writing", "a snapshot", gone).into()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
