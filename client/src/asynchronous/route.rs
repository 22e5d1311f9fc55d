//! The way in which reads of one memory node are made: by the task itself, or by workers over
//! sockets.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::consume_budget;

use super::config::AsyncConfig;
use super::counters::Counts;
use super::group::{Group, Keys, Kind, QueuedRead, Replier, ReplyTo};
use super::threads::Threads;
use super::unanswered::runtime_has_ended;
use super::worker::Workers;
use crate::core::Core;
use crate::error::ClientError;
use crate::mapped::MappedNode;
use crate::one_node::SharedCore;

/// Keys that a task looks up in place before others have their turn.
pub(super) const IN_PLACE: usize = 256;

/// How reads of one memory node are made.
pub(super) enum ReadRoute<K: BuildKeys> {
    InPlace(Arc<Core<K, MappedNode>>),
    Grouped(Workers<K>),
    /// By threads that may block.
    #[cfg(feature = "sim")]
    Blocking(Arc<Core<K, crate::simulated::SimulatedNode>>),
}

impl<K: BuildKeys> ReadRoute<K> {
    /// The way to a table on one memory node; its workers, if there are some, are to be that
    /// runtime's.
    pub(super) fn to(
        direct: &SharedCore<K>,
        config: AsyncConfig,
        runtime: impl FnOnce() -> Handle,
        (counts, threads): (&Arc<Counts>, &Threads),
    ) -> Self {
        match direct {
            SharedCore::Mapped(core) => Self::InPlace(Arc::clone(core)),
            SharedCore::Remote(core) => {
                Self::Grouped(Workers::new(core, config, &runtime(), (counts, threads)))
            }
            #[cfg(feature = "sim")]
            SharedCore::Simulated(core) => Self::Blocking(Arc::clone(core)),
        }
    }

    /// Has keys read, and waits for the answer.
    pub(super) async fn ask<R>(
        &self,
        threads: &Threads,
        (kind, keys): (Kind, Keys<K::Owned>),
        until: Instant,
        answer: impl Fn(Replier<R>) -> ReplyTo<K>,
    ) -> Result<R, ClientError> {
        let (to, answered) = oneshot::channel();
        let asked = QueuedRead { keys, answer: answer(to), until };
        // What is waited for before a worker has the read is on the heap: it is rare over sockets,
        // and the futures of common reads stay small without it.
        match self {
            Self::Grouped(workers) => {
                let staff = match workers.queue().push_at_once(kind, asked) {
                    Ok(staff) => staff,
                    Err(asked) => Box::pin(workers.queue().push(kind, asked)).await?,
                };
                workers.ensure_workers(staff);
            }
            Self::InPlace(core) => {
                let read = async move {
                    consume_budget().await;
                    let mut group = Group::of(kind, asked);
                    match core.at_once(|buffers, table| group.read_in_place(buffers, table)) {
                        Some(()) => Ok(()),
                        None => threads.read(core, group).await,
                    }
                };
                Box::pin(read).await?;
            }
            #[cfg(feature = "sim")]
            Self::Blocking(core) => Box::pin(threads.read(core, Group::of(kind, asked))).await?,
        }
        answered.await.map_err(|_| runtime_has_ended())?
    }
}
