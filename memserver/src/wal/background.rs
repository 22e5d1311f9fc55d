//! Background work of the log and the snapshots: by threads, or step by step in a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
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
pub(crate) struct ThreadDrain {
    /// `None` once it has ended.
    thread: Option<DrainThread>,
}

impl ThreadDrain {
    /// Starts the thread, which wakes the memory node's loop when entries have reached the disk.
    pub(crate) fn spawn<M: NodeMemory, D: Disk + 'static>(
        drain: Drain<M, D>,
        waker: Waker,
    ) -> std::io::Result<Self> {
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

impl Draining for ThreadDrain {
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
    /// Whether none is under way, nor on its way out: it removes its file, which may have the name
    /// of the next one's.
    fn is_idle(&self) -> bool;
    /// Begins one; to be called when idle.
    fn begin(&mut self, start: SnapshotStart);
    /// Adds records, one after another in `records`, each after its length; gives them back if the
    /// disk has not yet got so far.
    fn push(&mut self, records: Vec<u8>) -> Option<Vec<u8>>;
    /// Ends the snapshot; `last` is the last entry of the log that may be contained in it, and is
    /// on the disk.
    fn finish(&mut self, last: Lsn);
    /// Gives up the one under way: its file is removed soon, for the log may need the room.
    fn give_up(&mut self);
    /// How the snapshot ended, once: an error perhaps before it was finished.
    fn outcome(&mut self) -> Option<Result<SnapshotInfo, SnapshotError>>;
}

/// Snapshots kept, the newest among them.
const SNAPSHOTS_KEPT: usize = 2;

/// A snapshot on its way to the disk.
struct Writing<D: Disk> {
    disk: D,
    lineage: u64,
    writer: SnapshotWriter<D>,
}

impl<D: Disk + Clone> Writing<D> {
    fn begin(disk: D, start: &SnapshotStart) -> Result<Self, SnapshotError> {
        has_room_for_snapshot(&disk, start.expected)?;
        let writer = SnapshotWriter::begin(disk.clone(), start.lineage, &start.header, start.first)?;
        Ok(Self { disk, lineage: start.lineage, writer })
    }

    fn push(&mut self, records: &[u8]) -> Result<(), SnapshotError> {
        each_record(records).try_for_each(|record| self.writer.push(record))
    }

    fn finish(mut self, last: Lsn) -> Result<SnapshotInfo, SnapshotError> {
        let info = self.writer.finish(last)?;
        if let Err(error) = prune(&mut self.disk, self.lineage, SNAPSHOTS_KEPT) {
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
}

impl<D: Disk + Clone> Snapshots for InlineSnapshots<D> {
    fn is_idle(&self) -> bool {
        self.writing.is_none() && self.outcome.is_none()
    }

    fn begin(&mut self, start: SnapshotStart) {
        match Writing::begin(self.disk.clone(), &start) {
            Ok(writing) => self.writing = Some(writing),
            Err(error) => self.outcome = Some(Err(error)),
        }
    }

    fn push(&mut self, records: Vec<u8>) -> Option<Vec<u8>> {
        if let Some(Err(error)) = self.writing.as_mut().map(|writing| writing.push(&records)) {
            (self.writing, self.outcome) = (None, Some(Err(error)));
        }
        None
    }

    fn finish(&mut self, last: Lsn) {
        if let Some(writing) = self.writing.take() {
            self.outcome = Some(writing.finish(last));
        }
    }

    fn give_up(&mut self) {
        (self.writing, self.outcome) = (None, None);
    }

    fn outcome(&mut self) -> Option<Result<SnapshotInfo, SnapshotError>> {
        self.outcome.take()
    }
}

enum Message {
    Records(Vec<u8>),
    Finish(Lsn),
}

/// Bytes of records on their way and being written: one message may have more, if it is alone.
const MOST_AHEAD: usize = 4 << 20;

/// A thread that writes one snapshot, and ends with it.
type SnapshotThread = JoinHandle<Result<SnapshotInfo, SnapshotError>>;

/// What a snapshot's thread shares with the memory node's.
#[derive(Clone, Default)]
struct Shared {
    is_given_up: Arc<AtomicBool>,
    /// Bytes of records on their way.
    ahead: Arc<AtomicUsize>,
}

/// A snapshot that a thread writes.
struct UnderWay {
    send: Sender<Message>,
    shared: Shared,
    /// Or why none was started.
    thread: Result<SnapshotThread, SnapshotError>,
}

/// Each on a thread of its own. Dropped, it waits until the thread has ended, which gives up the
/// snapshot under way: nothing writes to the folder from then on.
pub(crate) struct ThreadSnapshots<D> {
    disk: D,
    writing: Option<UnderWay>,
    /// That of a snapshot which was given up.
    leaving: Option<SnapshotThread>,
}

impl<D: Disk + Clone + 'static> ThreadSnapshots<D> {
    pub(crate) fn new(disk: D) -> Self {
        Self { disk, writing: None, leaving: None }
    }
}

impl<D> ThreadSnapshots<D> {
    fn leave(&mut self) {
        if let Some(UnderWay { shared, thread, .. }) = self.writing.take() {
            shared.is_given_up.store(true, Ordering::Relaxed);
            self.leaving = thread.ok();
        }
    }
}

impl<D> Drop for ThreadSnapshots<D> {
    fn drop(&mut self) {
        self.leave();
        if let Some(thread) = self.leaving.take() {
            // One that has panicked writes no more either.
            let _ = thread.join();
        }
    }
}

fn thread_error(doing: &'static str, source: std::io::Error) -> SnapshotError {
    DiskError::new(doing, "a snapshot", source).into()
}

/// Writes a snapshot. Returns early if it fails, or is given up, which removes it.
fn write_snapshot<D: Disk + Clone>(
    disk: D,
    start: &SnapshotStart,
    messages: Receiver<Message>,
    shared: &Shared,
) -> Result<SnapshotInfo, SnapshotError> {
    lower_priority();
    let mut writing = Writing::begin(disk, start)?;
    for message in messages {
        match message {
            _ if shared.is_given_up.load(Ordering::Relaxed) => break,
            Message::Records(records) => {
                writing.push(&records)?;
                shared.ahead.fetch_sub(records.len(), Ordering::Relaxed);
            }
            Message::Finish(last) => return writing.finish(last),
        }
    }
    Err(thread_error("writing", std::io::Error::other("it was given up")))
}

impl<D: Disk + Clone + 'static> Snapshots for ThreadSnapshots<D> {
    fn is_idle(&self) -> bool {
        self.writing.is_none() && self.leaving.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn begin(&mut self, start: SnapshotStart) {
        let (send, messages) = channel();
        let (disk, shared) = (self.disk.clone(), Shared::default());
        let its = shared.clone();
        let thread = thread::Builder::new()
            .name("fpcache-snapshot".into())
            .spawn(move || write_snapshot(disk, &start, messages, &its))
            .map_err(|source| thread_error("starting a thread for", source));
        self.writing = Some(UnderWay { send, shared, thread });
    }

    fn push(&mut self, records: Vec<u8>) -> Option<Vec<u8>> {
        let UnderWay { send, shared, .. } = self.writing.as_ref()?;
        let before = shared.ahead.load(Ordering::Relaxed);
        if before > 0 && before.saturating_add(records.len()) > MOST_AHEAD {
            return Some(records);
        }
        shared.ahead.fetch_add(records.len(), Ordering::Relaxed);
        // That the thread has ended shows as the outcome.
        let _ = send.send(Message::Records(records));
        None
    }

    fn finish(&mut self, last: Lsn) {
        if let Some(UnderWay { send, .. }) = &self.writing {
            let _ = send.send(Message::Finish(last));
        }
    }

    fn give_up(&mut self) {
        self.leave();
    }

    fn outcome(&mut self) -> Option<Result<SnapshotInfo, SnapshotError>> {
        let has_ended = |it: &mut UnderWay| it.thread.as_ref().map_or(true, JoinHandle::is_finished);
        let thread = self.writing.take_if(has_ended)?.thread;
        let gone = || std::io::Error::other("the thread that writes it has ended");
        Some(thread.and_then(|thread| thread.join().unwrap_or_else(|_| Err(thread_error("writing", gone())))))
    }
}

#[cfg(test)]
mod tests;
