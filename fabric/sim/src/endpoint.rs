//! A queue pair to a simulated memory node.

use std::fmt;
use std::sync::Arc;
use std::sync::MutexGuard;

use fpcache_fabric::verbs::Tally;
use fpcache_fabric::{Another, AreaId, Batch, FabricError, Meter, RemoteAddr};
use zerocopy::IntoBytes;

use crate::anchor::Anchor;
use crate::baton::Shared;
use crate::queue_pair::{QueuePair, SimArea};
use crate::state::State;

/// A queue pair to one life of a simulated memory node.
pub struct SimEndpoint {
    anchor: Arc<Anchor>,
    pub(crate) number: usize,
    pub(crate) meter: Arc<Meter>,
    /// Whether areas can be looked at in place.
    pub(crate) maps: bool,
    /// For READs of words: kept so that they do not allocate.
    pub(crate) words: Batch,
}

impl fmt::Debug for SimEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimEndpoint").field("number", &self.number).finish_non_exhaustive()
    }
}

impl SimEndpoint {
    pub(crate) fn new(anchor: &Arc<Anchor>) -> Self {
        let meter = Arc::new(Meter::new());
        let mut state = anchor.shared.lock();
        let number = state.pairs.len();
        let lease = state.lease_of(anchor.connection);
        state.pairs.push(QueuePair::new(anchor.connection, Arc::clone(&meter), lease));
        // Half of them, so that both ways of reading meet every fault.
        let maps =
            state.links[anchor.connection].is_local || state.faults.in_place && state.random.below(2) == 0;
        drop(state);
        Self { anchor: Arc::clone(anchor), number, meter, maps, words: Batch::new() }
    }

    /// Begins a verb on a connection that is alive.
    pub(crate) fn begin(&self) -> Result<MutexGuard<'_, State>, FabricError> {
        let Anchor { shared, connection, .. } = &*self.anchor;
        let state = shared.begin().ok_or_else(|| shared.lock().links[*connection].disconnected())?;
        if state.links[*connection].is_alive() {
            Ok(state)
        } else {
            Err(state.links[*connection].disconnected())
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.anchor.shared
    }

    pub(crate) fn connection(&self) -> usize {
        self.anchor.connection
    }

    pub(crate) fn record(&self, tally: &Tally) {
        self.meter.record(tally);
    }

    /// Whether the memory node is known to live.
    pub(crate) fn check_alive(&self) -> Result<(), FabricError> {
        let (state, connection) = (self.shared().lock(), self.connection());
        if state.links[connection].is_alive() { Ok(()) } else { Err(state.links[connection].disconnected()) }
    }

    /// What a look in place sees: if the memory node has gone, what it left.
    pub(crate) fn or_after_death(
        &self,
        seen: Result<(), FabricError>,
        from: RemoteAddr,
        out: &mut [u64],
    ) -> Result<(), FabricError> {
        let Err(FabricError::Disconnected { .. }) = seen else { return seen };
        let state = self.shared().lock();
        let area = self.area_of(&state, from.area)?;
        area.visible
            .read_bytes(from.offset, out.as_mut_bytes())
            .map_err(|error| FabricError::of_access(from.area, error.into()))
    }

    fn area_of<'s>(&self, state: &'s State, id: AreaId) -> Result<&'s SimArea, FabricError> {
        let areas = &state.links[self.anchor.connection].areas;
        let area = areas.get(usize::from(id.0)).filter(|area| area.access.is_some());
        area.ok_or(FabricError::NoSuchArea { area: id })
    }

    /// The word at `at` as it is visible now.
    pub(crate) fn word(&self, state: &State, at: RemoteAddr) -> Result<u64, FabricError> {
        let area = self.area_of(state, at.area)?;
        area.visible.load_acquire(at.offset).map_err(|error| FabricError::of_access(at.area, error))
    }
}

impl Another for SimEndpoint {
    fn another(&self) -> Self {
        Self::new(&self.anchor)
    }
}
