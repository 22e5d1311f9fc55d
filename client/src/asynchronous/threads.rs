//! The runtime's threads for blocking calls, of which a client takes few at a time: for groups
//! whose reads take more than waiting for a socket, which are made as readers of threads make them.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordShape;
use fpcache::read::{Outcomes, Wanted};
use tokio::sync::Semaphore;

use super::group::{Group, Kind, MOST_KEPT_BYTES, QueuedRead, ReplyTo};
use super::unanswered::runtime_has_ended;
use crate::client::Record;
use crate::core::{Connector, Core, HeldContext, SectionRead};
use crate::empty_tables::first_parameters;
use crate::error::ClientError;

/// Calls to one memory node that take blocking threads of the runtime at a time, where no worker
/// makes them.
const PER_NODE: usize = 4;

/// Calls to all memory nodes that do. A runtime has 512 such threads unless it is told otherwise,
/// and others want some of them.
const PER_CLIENT: usize = 64;

/// Makes reads as the client for threads does, on threads that may block.
#[derive(Clone)]
pub(super) struct Threads {
    per_node: Arc<Semaphore>,
    per_client: Arc<Semaphore>,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self {
            per_node: Arc::new(Semaphore::new(PER_NODE)),
            per_client: Arc::new(Semaphore::new(PER_CLIENT)),
        }
    }

    /// Those of the same client for another memory node: one that is silent keeps none from others.
    pub(super) fn for_another(&self) -> Self {
        Self { per_client: Arc::clone(&self.per_client), ..Self::new() }
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

    /// Runs what may block on one of the runtime's threads for that, of which few are taken at a
    /// time.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, ClientError> {
        let turn = Arc::clone(&self.per_node).acquire_owned().await;
        self.run_alone(move || {
            let _turn = turn;
            run()
        })
        .await
    }

    /// As [`run`](Self::run), what is the only one of its kind that the memory node has at a time:
    /// it does not wait for others.
    pub(super) async fn run_alone<R: Send + 'static>(
        &self,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, ClientError> {
        let turn = Arc::clone(&self.per_client).acquire_owned().await;
        let ran = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            run()
        });
        ran.await.map_err(|_| runtime_has_ended())
    }
}

impl<K: BuildKeys> Group<K> {
    /// Makes the reads with what a reader holds, and answers them, each by its deadline.
    pub(super) fn read_with<T: Connector>(&mut self, core: &Core<K, T>, held: &mut HeldContext<K, T>) {
        let within = self.until().saturating_duration_since(Instant::now());
        if let Err(error) = self.try_to_read(core, held, within) {
            self.fail(&error);
        }
    }

    /// As [`read_with`](Self::read_with), but no call waits for another's record: those whose
    /// record was being written all the time, or is damaged, stay without an answer.
    pub(super) fn read_some_with<T: Connector>(&mut self, core: &Core<K, T>, held: &mut HeldContext<K, T>) {
        let begun = Instant::now();
        let within = self.until().saturating_duration_since(begun);
        let (keys, wanted) = (self.owned_keys(), self.wanted());
        let each = || keys.iter().map(Borrow::borrow);
        let ended = match self.kind {
            Kind::Value | Kind::Presence => self.shape(core, held, within).and_then(|shape| {
                let within = within.saturating_sub(begun.elapsed());
                core.lookup_some(held, (each(), wanted), within, |found| self.looked_up_some(&shape, found))
            }),
            Kind::Nearest(side) => {
                core.nearest_some(held, side, each(), within, |found| self.searched_some(found))
            }
            Kind::Scan => return self.read_with(core, held),
        };
        if let Some(context) = held {
            context.buffers.lookup.keep_at_most(MOST_KEPT_BYTES);
            context.buffers.nearest.clear();
        }
        match ended {
            // One of them; each finds out for itself.
            Ok(()) | Err(ClientError::Damaged { .. }) => {}
            Err(error) => self.fail(&error),
        }
    }

    /// As [`read_with`](Self::read_with). After an error nothing is answered.
    pub(super) fn try_to_read<T: Connector>(
        &mut self,
        core: &Core<K, T>,
        held: &mut HeldContext<K, T>,
        within: Duration,
    ) -> Result<(), ClientError> {
        let begun = Instant::now();
        match self.kind {
            Kind::Value | Kind::Presence => {
                let shape = self.shape(core, held, within)?;
                let within = within.saturating_sub(begun.elapsed());
                // An attempt that fails has answered nothing.
                let (keys, wanted) = (self.owned_keys(), self.wanted());
                let (each, mut found) = (keys.iter().map(Borrow::borrow), Outcomes::default());
                core.lookup_into(held, (each, wanted), within, &mut found)?;
                self.looked_up(&shape, found.iter());
                Ok(())
            }
            Kind::Nearest(side) => {
                let keys = self.owned_keys();
                let mut found: Vec<Option<Record<K>>> = Vec::with_capacity(keys.len());
                let ended =
                    core.nearest(held, side, keys.iter().map(Borrow::borrow), within, |neighbour, _| {
                        found.push(neighbour.map(|found| (found.key.to_owned(), found.value.to_vec())));
                    });
                if let Some(context) = held {
                    context.buffers.nearest.clear();
                }
                ended?;
                self.searched_by(found.into_iter());
                Ok(())
            }
            Kind::Scan => {
                let Some(section) = self.section() else { return Ok(()) };
                let mut records = Vec::new();
                let take = |key: &K::Key, value: &[u8]| records.push((key.to_owned(), value.to_vec()));
                let rest = core.scan_part(held, (section, Wanted::Value), within, take)?;
                self.scanned(SectionRead { records, rest });
                Ok(())
            }
        }
    }

    fn owned_keys(&self) -> Vec<K::Owned> {
        self.keys().map(ToOwned::to_owned).collect()
    }

    /// How the table's records lie in slots, if that matters to an answer.
    fn shape<T: Connector>(
        &self,
        core: &Core<K, T>,
        held: &mut HeldContext<K, T>,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        let matters =
            |asked: &QueuedRead<K>| matches!(asked.answer, ReplyTo::Versioned(_) | ReplyTo::Words(_));
        match self.asked.iter().any(matters).then(|| core.shape_by(held, within)) {
            Some(Err(error)) if !error.is_of_empty_table() => Err(error),
            Some(Ok(shape)) => Ok(shape),
            // Nothing is found in a table that has none.
            Some(Err(_)) | None => Ok(first_parameters::<K>([]).shape),
        }
    }
}
