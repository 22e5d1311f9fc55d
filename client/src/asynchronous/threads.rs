//! The runtime's threads for blocking calls, of which a client takes few at a time.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use tokio::sync::{Semaphore, oneshot};

use super::group::{Answer, Asked, Group, Keys, Kind, To};
use super::unanswered::runtime_has_ended;
use crate::client::TableClient;
use crate::error::ClientError;

/// Calls that take blocking threads of the runtime at a time, where no worker makes them.
const BLOCKING: usize = 4;

/// Makes reads as the client for threads does, on threads that may block.
pub(super) struct Threads<K: BuildKeys> {
    client: TableClient<K>,
    turns: Arc<Semaphore>,
}

impl<K: BuildKeys> Threads<K> {
    pub(super) fn new(client: TableClient<K>) -> Self {
        Self { client, turns: Arc::new(Semaphore::new(BLOCKING)) }
    }

    /// Has keys read, and lets go of what the call holds when that has ended: not when the call is given up.
    pub(super) async fn ask<R>(
        &self,
        (kind, keys): (Kind, Keys<K::Owned>),
        until: Instant,
        answer: impl Fn(To<R>) -> Answer<K>,
        held: impl Send + 'static,
    ) -> Result<R, ClientError> {
        let (to, answered) = oneshot::channel();
        let group = Group::of(kind, Asked { keys, answer: answer(to), until });
        let client = self.client.clone();
        let read = move || {
            group.read_by(&client);
            drop(held);
        };
        self.run(read).await?;
        answered.await.map_err(|_| runtime_has_ended())?
    }

    /// Has a group read.
    pub(super) async fn read(&self, group: Group<K>) -> Result<(), ClientError> {
        let client = self.client.clone();
        self.run(move || group.read_by(&client)).await
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
