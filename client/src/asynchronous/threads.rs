//! The runtime's threads for blocking calls, of which a client takes few at a time.

use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use tokio::sync::Semaphore;

use super::group::Group;
use super::unanswered::runtime_has_ended;
use crate::core::{Connector, Core};
use crate::error::ClientError;

/// Calls to one memory node that take blocking threads of the runtime at a time, where no worker
/// makes them.
const OF_ONE: usize = 4;

/// Calls to all memory nodes that do. A runtime has 512 such threads unless it is told otherwise,
/// and others want some of them.
const OF_ALL: usize = 64;

/// Makes reads as the client for threads does, on threads that may block.
#[derive(Clone)]
pub(super) struct Threads {
    of_one: Arc<Semaphore>,
    of_all: Arc<Semaphore>,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self { of_one: Arc::new(Semaphore::new(OF_ONE)), of_all: Arc::new(Semaphore::new(OF_ALL)) }
    }

    /// Those of the same client for another memory node: one that is silent keeps none from others.
    pub(super) fn for_another(&self) -> Self {
        Self { of_all: Arc::clone(&self.of_all), ..Self::new() }
    }

    /// Has a group of one memory node's keys read.
    pub(super) async fn read<K: BuildKeys, T: Connector>(
        &self,
        core: &Arc<Core<K, T>>,
        mut group: Group<K>,
    ) -> Result<(), ClientError> {
        let core = Arc::clone(core);
        self.run(move || {
            if group.is_wanted_still() {
                core.here(|held| group.read_with(&*core, held));
            }
        })
        .await
    }

    /// Runs what may block on one of the runtime's threads for that, of which few are taken at a time.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, ClientError> {
        let turn = Arc::clone(&self.of_one).acquire_owned().await;
        self.run_alone(move || {
            let _turn = turn;
            run()
        })
        .await
    }

    /// As [`run`](Self::run), what is the only one of its kind that the memory node has at a time: it does
    /// not wait for others.
    pub(super) async fn run_alone<R: Send + 'static>(
        &self,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, ClientError> {
        let turn = Arc::clone(&self.of_all).acquire_owned().await;
        let ran = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            run()
        });
        ran.await.map_err(|_| runtime_has_ended())
    }
}
