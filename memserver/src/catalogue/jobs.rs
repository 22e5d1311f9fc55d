//! The thread that creates and drops tables, one at a time and in the order of the requests. It
//! takes milliseconds to create and remove files and memory; clients of other tables do not wait
//! for that.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
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

/// What the thread does.
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

/// The thread, the job under way, and the requests that wait for it.
#[derive(Debug)]
pub(super) struct Jobs {
    /// `None` once the thread is to end.
    send: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// Whose job is under way.
    client: Option<ClientId>,
    waiting: VecDeque<(ClientId, Vec<u8>)>,
    /// The table that is being dropped: if that fails it is closed.
    pub(super) dropped: Option<(TableName, KeyKind)>,
    /// Its clients: they are hung up on when the job has ended, however it did.
    pub(super) farewells: Vec<ClientId>,
    pub(super) replies: VecDeque<(ClientId, Vec<u8>)>,
}

impl Jobs {
    /// Starts the thread, which wakes the loop whenever a job has ended, however it did.
    pub(super) fn begin(waker: Waker) -> io::Result<Self> {
        let (send, jobs) = sync_channel::<Job>(1);
        let (tell, done) = sync_channel(1);
        let run = move || {
            lower_priority();
            for job in jobs {
                let failed = || Refusal::new(ErrorCode::Internal, "the thread for it has failed");
                // What a panic leaves is dropped with the job.
                let ended = catch_unwind(AssertUnwindSafe(|| job.run()));
                if tell.send(ended.unwrap_or_else(|_| Done::Dropped(Err(failed().into())))).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        let thread = Some(thread::Builder::new().name("fpcache-tables".into()).spawn(run)?);
        Ok(Self {
            send: Some(send),
            done,
            thread,
            client: None,
            waiting: VecDeque::new(),
            dropped: None,
            farewells: Vec::new(),
            replies: VecDeque::new(),
        })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.client.is_some()
    }

    /// Has a request wait for the job under way.
    pub(super) fn wait(&mut self, client: ClientId, request: &[u8]) {
        self.waiting.push_back((client, request.to_vec()));
    }

    /// The next request, if no job is under way.
    pub(super) fn next_waiting(&mut self) -> Option<(ClientId, Vec<u8>)> {
        if self.is_busy() { None } else { self.waiting.pop_front() }
    }

    /// Has the thread do a job for a client's request; none may be under way.
    pub(super) fn start(&mut self, client: ClientId, job: Job) {
        self.client = Some(client);
        if let Some(send) = &self.send {
            // It waits for one, and ends after this.
            let _ = send.send(job);
        }
    }

    /// The result of the job under way, once it is done.
    pub(super) fn take_done(&mut self) -> Option<(ClientId, Done)> {
        let done = self.done.try_recv().ok()?;
        Some((self.client.take()?, done))
    }

    /// Forgets what a client that has gone was waiting for.
    pub(super) fn disconnected(&mut self, client: ClientId) {
        self.waiting.retain(|(other, _)| *other != client);
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.send = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
