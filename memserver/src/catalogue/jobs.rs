//! The thread that creates and drops tables, one at a time and in the order of the requests. It
//! takes milliseconds to create and remove files and memory; clients of other tables do not wait
//! for that.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::map::RangeMap;
use fpcache::message::{ErrorCode, Refusal};
use fpcache_fabric::descriptors::TakenDescriptors;
use fpcache_fabric::{ClientId, Waker};
use tracing::error;

use super::closed::{NotDropped, Removing, remove};
use super::descriptor::TableDescriptor;
use super::error::TableOpenError;
use super::folders::TablesFolder;
use super::hosted::{HostedTable, LeftRegion};
use super::open::Opening;
use crate::priority::lower_priority;

/// A table that is to be made.
pub(super) struct CreateJob {
    pub(super) name: TableName,
    pub(super) descriptor: TableDescriptor,
    /// The map it is to go by, if it is a range of a table over several memory nodes.
    pub(super) map: Option<Arc<RangeMap>>,
    pub(super) folder: Option<Arc<TablesFolder>>,
    pub(super) opening: Opening,
    pub(super) waker: Waker,
    /// The process's descriptors that it is to have.
    pub(super) descriptors: TakenDescriptors,
}

impl CreateJob {
    /// Makes it: it is there for good, or not at all.
    pub(super) fn run(self) -> Result<HostedTable, Refusal> {
        let Self { name, descriptor, map, folder, .. } = &self;
        let (name, folder) = (*name, folder.clone());
        if let Some(folder) = &folder {
            folder.create(&name, descriptor, map.as_deref()).map_err(|error| unable(&name, &error.into()))?;
        }
        self.open().map_err(|why| {
            if let Some(folder) = &folder
                && let Err(error) =
                    folder.drop_table(&name).and_then(|()| folder.clear_dropped(name.as_str()))
            {
                error!("the table `{name}` was not created: {error}");
            }
            unable(&name, &why)
        })
    }

    /// Opens a table that has its folder.
    pub(super) fn open(self) -> Result<HostedTable, TableOpenError> {
        let Self { name, descriptor, map, folder, opening, waker, descriptors } = self;
        let folders = folder.as_ref().map(|folder| folder.of(&name)).transpose()?;
        let mut table = opening.open(name, &descriptor, folders.as_ref(), waker)?;
        table.descriptors = Some(descriptors);
        if map.is_some_and(|map| !table.adopt_map(map)) {
            return Err(TableOpenError::Map { name });
        }
        Ok(table)
    }
}

/// The refusal of a table that cannot be made.
pub(super) fn unable(name: &TableName, why: &TableOpenError) -> Refusal {
    let code = match why {
        TableOpenError::Denied(_) | TableOpenError::Region { .. } | TableOpenError::Descriptors { .. } => {
            ErrorCode::NoMemory
        }
        TableOpenError::Folder(_) | TableOpenError::Disk(_) => ErrorCode::NotDurable,
        _ => ErrorCode::Internal,
    };
    Refusal::new(code, format!("the table `{name}` cannot be created: {why}"))
}

/// A table that is to be dropped, and is not served any more.
pub(super) struct Dropping {
    pub(super) table: HostedTable,
    pub(super) folder: Option<Arc<TablesFolder>>,
}

impl Dropping {
    /// Removes it: when that returns it is gone for good.
    pub(super) fn run(self) -> Result<(), NotDropped> {
        let Self { table, folder } = self;
        let name = table.name;
        // Its threads end here: its folder is not written to from now on.
        let left = LeftRegion::of(table);
        remove(&name, folder.as_deref(), Some(left), |error| {
            let why =
                format!("the table `{name}` could not be dropped and is closed now: {error}; drop it again");
            Refusal::new(ErrorCode::NotDurable, why)
        })
    }
}

/// A later map for a range, on its way to the disk.
pub(super) struct Mapping {
    pub(super) name: TableName,
    pub(super) map: Arc<RangeMap>,
    pub(super) folder: Option<Arc<TablesFolder>>,
}

impl Mapping {
    /// Makes it last.
    fn run(&self) -> Result<(), Refusal> {
        let Some(folder) = &self.folder else { return Ok(()) };
        folder.put_map(&self.name, &self.map).map_err(|error| {
            let why = format!("the map of the range `{}` could not be written: {error}", self.name);
            Refusal::new(ErrorCode::NotDurable, why)
        })
    }
}

/// What a thread does.
pub(super) enum Job {
    Make(Box<CreateJob>),
    Drop(Box<Dropping>),
    Remove(Removing),
    Map(Mapping),
}

/// Its result.
pub(super) enum Done {
    Made(Result<Box<HostedTable>, Refusal>),
    Dropped(Result<(), NotDropped>),
    Removed(TableName, Result<(), NotDropped>),
    Mapped(TableName, Arc<RangeMap>, Result<(), Refusal>),
}

impl Job {
    fn run(self) -> Done {
        match self {
            Self::Make(making) => Done::Made(making.run().map(Box::new)),
            Self::Drop(dropping) => Done::Dropped(dropping.run()),
            Self::Remove(removing) => Done::Removed(removing.name, removing.run()),
            Self::Map(mapping) => {
                let written = mapping.run();
                Done::Mapped(mapping.name, mapping.map, written)
            }
        }
    }
}

/// Wakes the loop when a job has ended, however it did.
struct WakeAtEnd(Waker);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A job under way.
#[derive(Debug)]
struct Running {
    client: ClientId,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
}

/// The job under way, and the requests that wait for it.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    running: Option<Running>,
    waiting: VecDeque<(ClientId, Vec<u8>)>,
    /// The table that is being dropped: if that fails it is closed.
    pub(super) dropped: Option<(TableName, KeyKind)>,
    /// Its clients: they are hung up on when the job has ended, however it did.
    pub(super) farewells: Vec<ClientId>,
    pub(super) replies: VecDeque<(ClientId, Vec<u8>)>,
    /// Whether the operating system has no thread.
    #[cfg(test)]
    pub(super) lacks_threads: bool,
}

impl Jobs {
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Has a request wait for the job under way.
    pub(super) fn wait(&mut self, client: ClientId, request: &[u8]) {
        self.waiting.push_back((client, request.to_vec()));
    }

    /// The next request, if no job is under way.
    pub(super) fn next_waiting(&mut self) -> Option<(ClientId, Vec<u8>)> {
        if self.is_busy() { None } else { self.waiting.pop_front() }
    }

    /// Starts a job for a client's request; the loop is woken when it is done. Where no thread can
    /// be started the job comes back as it was.
    pub(super) fn start(
        &mut self,
        client: ClientId,
        job: Job,
        waker: Waker,
    ) -> Result<(), (Box<Job>, Refusal)> {
        let (tell, done) = sync_channel(1);
        // A thread that is not started drops what it was started with: a table that is to be
        // dropped would be gone, and its readers not told.
        let (hand_over, handed) = sync_channel::<Job>(1);
        let run = move || {
            lower_priority();
            let _waking = WakeAtEnd(waker);
            // Dropped before the loop is woken, also by a panic: that is how the loop learns of
            // one.
            let tell = tell;
            if let Ok(job) = handed.recv() {
                // Nobody listens any more if the memory node has ended.
                let _ = tell.send(job.run());
            }
        };
        let thread = match self.spawn(run) {
            Ok(thread) => thread,
            Err(error) => {
                let why = format!("no thread can be started for it: {error}");
                return Err((Box::new(job), Refusal::new(ErrorCode::Internal, why)));
            }
        };
        self.running = Some(Running { client, done, thread });
        // There is room for one, and the thread takes it.
        let _ = hand_over.send(job);
        Ok(())
    }

    fn spawn(&self, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        #[cfg(test)]
        if self.lacks_threads {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        thread::Builder::new().name("fpcache-tables".into()).spawn(run)
    }

    /// The result of the job under way, once it is done.
    pub(super) fn take_done(&mut self) -> Option<(ClientId, Done)> {
        let done = match self.running.as_ref()?.done.try_recv() {
            Err(TryRecvError::Empty) => return None,
            done => done,
        };
        let failed = || Refusal::new(ErrorCode::Internal, "the thread for it has failed");
        // Nothing is left for it to do but to end, which is not waited for here: it may be waiting
        // for a processor.
        let Running { client, .. } = self.running.take()?;
        Some((client, done.unwrap_or_else(|_| Done::Dropped(Err(failed().into())))))
    }

    /// Forgets what a client that has gone was waiting for.
    pub(super) fn disconnected(&mut self, client: ClientId) {
        self.waiting.retain(|(other, _)| *other != client);
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        if let Some(Running { thread, .. }) = self.running.take() {
            let _ = thread.join();
        }
    }
}
