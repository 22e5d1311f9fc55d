//! Makes groups of tasks' reads over a socket.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Lookup, Nearest, ReadError};
use fpcache_fabric::Endpoint;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::config::AsyncConfig;
use super::counters::Counts;
use super::drive::Socket;
use super::group::{Group, Kind};
use super::queue::Queue;
use super::unanswered::runtime_has_ended;
use crate::core::{Core, Held};
use crate::remote::RemoteNode;
use crate::session::{Buffers, ReaderContext};

/// Bytes of answers that a worker keeps room for from one group to the next: of long values there may be gigabytes.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// Workers, and the queue from which they take groups. They end when this is dropped.
pub(super) struct Workers<K: BuildKeys>(Arc<Queue<K>>);

impl<K: BuildKeys> Workers<K> {
    /// One for each socket.
    pub(super) fn new(
        core: &Arc<Core<K, RemoteNode>>,
        config: AsyncConfig,
        runtime: &Handle,
        counts: &Arc<Counts>,
    ) -> Self {
        let workers = config.sockets.max(1);
        let queue = Arc::new(Queue::new(
            config.waiting.clamp(1, Semaphore::MAX_PERMITS),
            workers,
            Arc::clone(counts),
        ));
        for _ in 0..workers {
            runtime.spawn(Worker::new(Arc::clone(core), Arc::clone(&queue)).run());
        }
        Self(queue)
    }

    pub(super) fn queue(&self) -> &Queue<K> {
        &self.0
    }
}

impl<K: BuildKeys> Drop for Workers<K> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A task that takes groups from a queue and answers them, one at a time, with a reader's buffers and a socket of its own.
struct Worker<K: BuildKeys> {
    core: Arc<Core<K, RemoteNode>>,
    queue: Arc<Queue<K>>,
    held: Held<K, RemoteNode>,
    socket: Socket,
}

impl<K: BuildKeys> Worker<K> {
    fn new(core: Arc<Core<K, RemoteNode>>, queue: Arc<Queue<K>>) -> Self {
        let socket = Socket::new(core.connector().spin());
        Self { core, queue, held: None, socket }
    }

    /// Works until the queue is closed.
    async fn run(mut self) {
        while let Some(mut group) = self.queue.take().await {
            let is_scan = group.kind == Kind::Scan;
            if group.is_wanted_still() && !self.attempt(&mut group).await {
                self.get_over(group).await;
            }
            if is_scan {
                self.queue.end_scan();
            }
        }
    }

    /// Makes the reads of a group, if nothing is in the way: `true` if its calls have their answers.
    async fn attempt(&mut self, group: &mut Group<K>) -> bool {
        let Self { core, queue, held, socket } = self;
        let Some(context) = core.present(held).filter(|at| at.buffers.endpoint.socket().is_some()) else {
            return false;
        };
        context.buffers.endpoint.set_patience(group.until().saturating_duration_since(Instant::now()));
        group.has_begun();
        read(context, socket, queue, group).await.is_ok()
    }

    /// Makes the reads of a group as readers of threads do, on a thread that may block, and gets the worker ready for the next one.
    async fn get_over(&mut self, mut group: Group<K>) {
        self.queue.counts().handed_over.add(1);
        self.socket.forget();
        let (core, mut held) = (Arc::clone(&self.core), self.held.take());
        let read = tokio::task::spawn_blocking(move || {
            if !group.is_wanted_still() {
                return held;
            }
            group.read_with(&*core, &mut held);
            if let Some(context) = &mut held {
                // In what the group left of its time, or else in the next group's: that waits.
                context
                    .buffers
                    .endpoint
                    .set_patience(group.until().saturating_duration_since(Instant::now()));
                let _ = context.buffers.endpoint.connect();
            }
            held
        });
        // With an error the runtime is ending, and the group's callers with it.
        self.held = read.await.unwrap_or_default();
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
            let mut operation = Lookup::new(table, lookup, group.keys()).of(group.wanted()).by(ways);
            socket.drive(endpoint, &mut operation, until, count).await?;
            group.looked_up(&view.geometry().shape, lookup.outcomes());
            lookup.keep_at_most(MOST_KEPT_BYTES);
        }
        Kind::Nearest(side) => {
            let mut operation = Nearest::new(view, nearest, side, group.keys(), endpoint.guards());
            socket.drive(endpoint, &mut operation, until, count).await?;
            group.searched(nearest);
        }
        Kind::Scan => {
            let Some(section) = group.section() else {
                group.fail(&runtime_has_ended());
                return Ok(());
            };
            let mut operation = section.scan(table, scan);
            socket.drive(endpoint, &mut operation, until, count).await?;
            let part = operation.part();
            group.scanned(part);
        }
    }
    Ok(())
}
