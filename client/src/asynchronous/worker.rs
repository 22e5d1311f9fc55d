//! The workers that make groups of tasks' reads over sockets.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Lookup, Nearest, ReadError, Wanted};
use fpcache_fabric::Endpoint;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::config::AsyncConfig;
use super::counters::Counts;
use super::drive::Socket;
use super::group::{Group, Kind, MOST_KEPT_BYTES};
use super::queue::{Queue, QueueWorker, WorkerDemand};
use super::threads::Threads;
use super::unanswered::runtime_has_ended;
use crate::core::{Core, FEW_TRIES, HeldContext};
use crate::remote::RemoteNode;
use crate::session::{Buffers, ReaderContext};

/// Workers, and the queue from which they take groups. They end when this is dropped, or with their
/// runtime: then others are started in that of the next call.
pub(super) struct Workers<K: BuildKeys> {
    core: Arc<Core<K, RemoteNode>>,
    queue: Arc<Queue<K>>,
    threads: Threads,
}

impl<K: BuildKeys> Workers<K> {
    /// One for each socket, in this runtime.
    pub(super) fn new(
        core: &Arc<Core<K, RemoteNode>>,
        config: AsyncConfig,
        runtime: &Handle,
        (counts, threads): (&Arc<Counts>, &Threads),
    ) -> Self {
        // A call that waits for a record that cannot be read keeps no other calls from threads.
        let (workers, threads) = (config.sockets.max(1), threads.for_another());
        let queue = Arc::new(Queue::new(
            config.waiting.clamp(1, Semaphore::MAX_PERMITS),
            workers,
            Arc::clone(counts),
        ));
        let workers = Self { core: Arc::clone(core), queue, threads };
        if workers.queue.staff() == WorkerDemand::Wanted {
            workers.start(runtime);
        }
        workers
    }

    /// Starts as many workers as the queue counts with.
    fn start(&self, runtime: &Handle) {
        for _ in 0..self.queue.most_workers() {
            let post = QueueWorker::at(&self.queue);
            runtime.spawn(Worker::new(Arc::clone(&self.core), post, self.threads.clone()).run());
        }
    }

    pub(super) fn queue(&self) -> &Queue<K> {
        &self.queue
    }

    /// Starts workers in the runtime of the call that has put something into the queue, if they are
    /// wanted.
    #[inline]
    pub(super) fn ensure_workers(&self, staff: WorkerDemand) {
        if staff == WorkerDemand::Wanted {
            self.start_here();
        }
    }

    #[cold]
    fn start_here(&self) {
        match Handle::try_current() {
            Ok(runtime) => self.start(&runtime),
            // The queue is told that there are none, and tells the calls.
            Err(_) => (0..self.queue.most_workers()).for_each(|_| drop(QueueWorker::at(&self.queue))),
        }
    }
}

impl<K: BuildKeys> Drop for Workers<K> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// A task that takes groups from a queue and answers them, one at a time, with a reader's buffers
/// and a socket of its own.
struct Worker<K: BuildKeys> {
    core: Arc<Core<K, RemoteNode>>,
    post: QueueWorker<K>,
    threads: Threads,
    held: HeldContext<K, RemoteNode>,
    socket: Socket,
}

impl<K: BuildKeys> Worker<K> {
    fn new(core: Arc<Core<K, RemoteNode>>, post: QueueWorker<K>, threads: Threads) -> Self {
        let socket = Socket::new(core.connector().spin());
        Self { core, post, threads, held: None, socket }
    }

    /// Works until the queue is closed.
    async fn run(mut self) {
        while let Some(mut group) = self.post.queue().take().await {
            let is_scan = group.kind == Kind::Scan;
            if group.is_wanted_still() {
                match self.attempt(&mut group).await {
                    Some(Ok(())) => {}
                    Some(Err(ReadError::Contended { .. })) => self.set_apart(group),
                    Some(Err(_)) | None => self.read_on_thread(group).await,
                }
            }
            if is_scan {
                self.post.queue().end_scan();
            }
        }
    }

    /// Makes the reads of a group, if nothing is in the way: all of its calls have their answers
    /// then, and of one that is contended all but those left in it.
    async fn attempt(&mut self, group: &mut Group<K>) -> Option<Result<(), ReadError>> {
        let Self { core, post, held, socket, .. } = self;
        let context = core.present(held).filter(|at| at.buffers.endpoint.socket().is_some())?;
        context.buffers.endpoint.set_patience(group.until().saturating_duration_since(Instant::now()));
        group.has_begun();
        Some(read(context, socket, post.queue(), group).await)
    }

    /// Leaves calls whose records cannot be read now to threads, each by itself: no worker and no
    /// other call waits for them.
    fn set_apart(&self, group: Group<K>) {
        for asked in group.asked {
            let (core, threads) = (Arc::clone(&self.core), self.threads.clone());
            let mut alone = Group::of(group.kind, asked);
            alone.has_begun();
            self.post.queue().counts().handed_over.add(1);
            // With an error the runtime is ending, and the caller with it.
            tokio::spawn(async move { threads.read(&core, alone).await });
        }
    }

    /// Makes the reads of a group as readers of threads do, on a thread that may block, and gets
    /// the worker ready for the next one.
    async fn read_on_thread(&mut self, mut group: Group<K>) {
        self.post.queue().counts().handed_over.add(1);
        self.socket.forget();
        let (core, mut held, until) = (Arc::clone(&self.core), self.held.take(), group.until());
        let read = tokio::task::spawn_blocking(move || {
            if !group.is_wanted_still() {
                return (held, group);
            }
            group.read_some_with(&*core, &mut held);
            if let Some(context) = &mut held {
                // In what the group left of its time, or else in the next group's: that waits.
                context.buffers.endpoint.set_patience(until.saturating_duration_since(Instant::now()));
                let _ = context.buffers.endpoint.connect();
            }
            (held, group)
        });
        // With an error the runtime is ending, and the group's callers with it.
        let (held, unanswered) = read.await.unwrap_or_default();
        self.held = held;
        self.set_apart(unanswered);
    }
}

/// Makes the reads of a group over the endpoint's socket, and answers them.
async fn read<K: BuildKeys>(
    context: &mut ReaderContext<K, fpcache_fabric::TcpConnection>,
    socket: &mut Socket,
    queue: &Queue<K>,
    group: &mut Group<K>,
) -> Result<(), ReadError> {
    let ReaderContext { table, buffers, .. } = context;
    let Buffers { endpoint, lookup, scan, nearest, .. } = buffers;
    let (view, until) = (table.view(), group.until());
    let count = || queue.counts().doorbells.add(1);
    match group.kind {
        Kind::Value | Kind::Presence => {
            let ways = table.ways(endpoint);
            let operation = Lookup::new(table, lookup, group.keys()).of(group.wanted()).by(ways);
            let ended = socket.drive(endpoint, &mut operation.trying(FEW_TRIES), until, count).await;
            let shape = &view.geometry().shape;
            match ended {
                Ok(()) => group.looked_up(shape, lookup.outcomes()),
                Err(ReadError::Contended { .. }) => group.looked_up_some(shape, lookup),
                Err(_) => {}
            }
            lookup.keep_at_most(MOST_KEPT_BYTES);
            ended
        }
        Kind::Nearest(side) => {
            let operation = Nearest::new(view, nearest, side, group.keys(), endpoint.guards());
            let ended = socket.drive(endpoint, &mut operation.trying(FEW_TRIES), until, count).await;
            match ended {
                Ok(()) => group.searched(nearest),
                Err(ReadError::Contended { .. }) => group.searched_some(nearest),
                Err(_) => {}
            }
            nearest.clear();
            ended
        }
        Kind::Scan => {
            let Some(section) = group.section() else {
                group.fail(&runtime_has_ended());
                return Ok(());
            };
            let mut operation = section.scan(table, scan, (section.limit, Wanted::Value));
            let ended = socket.drive(endpoint, &mut operation, until, count).await;
            if ended.is_err() {
                // The endpoint may have left it.
                socket.forget();
            }
            let part = section.part(&operation, ended);
            scan.clear();
            part.map(|part| group.scanned(part))
        }
    }
}
