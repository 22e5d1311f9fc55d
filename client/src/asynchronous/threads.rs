//! The runtime's threads for blocking calls, of which a client takes few at a time.

use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use tokio::sync::Semaphore;

use super::group::Group;
use super::unanswered::runtime_has_ended;
use crate::core::{Connector, Core};
use crate::error::ClientError;

/// Calls that take blocking threads of the runtime at a time, where no worker makes them.
const BLOCKING: usize = 4;

/// Makes reads as the client for threads does, on threads that may block.
pub(super) struct Threads {
    turns: Arc<Semaphore>,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self { turns: Arc::new(Semaphore::new(BLOCKING)) }
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
                group.read_by(&*core);
            }
        })
        .await
    }

    /// Runs what may block on one of the runtime's threads for that, of which few are taken at a time.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, ClientError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let ran = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            run()
        });
        ran.await.map_err(|_| runtime_has_ended())
    }
}
