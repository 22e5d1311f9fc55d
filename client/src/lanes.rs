//! A set of lanes, over any kind of connection.

use std::sync::Arc;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteOperation, WriteReply};

use crate::core::{Connector, Core, Lane};
use crate::error::ClientError;

/// Lanes by number, each with one change under way at most.
pub(crate) trait Lanes<K: BuildKeys>: Send {
    /// By which identity the change went that a lane had last: the memory node that answers one
    /// change of an identity does not do its earlier ones any more. A lane that leads to one memory
    /// node has one identity.
    fn identity(&self, _lane: usize) -> usize {
        0
    }

    /// Whether the lane has that identity still. One that it has no more was of a table that was
    /// dropped, and nothing that went by it takes effect any more.
    fn has_identity(&self, _lane: usize, _identity: usize) -> bool {
        true
    }

    /// Sends a change along a lane that has none under way. After an error it was not sent.
    fn post(
        &mut self,
        lane: usize,
        operation: &WriteOperation<'_, &K::Key>,
        within: Duration,
    ) -> Result<(), ClientError>;

    /// Waits for the end of the change under way on a lane.
    fn settle(&mut self, lane: usize) -> Result<WriteReply, ClientError>;

    /// How the change under way on a lane ended, if that is known.
    fn settle_if_answered(&mut self, lane: usize) -> Option<Result<WriteReply, ClientError>>;
}

/// Lanes of one core, which takes them back.
pub(crate) struct OpenLanes<K: BuildKeys, T: Connector> {
    core: Arc<Core<K, T>>,
    lanes: Vec<Lane<K, T>>,
}

impl<K: BuildKeys, T: Connector> OpenLanes<K, T> {
    pub(crate) fn open(core: &Arc<Core<K, T>>, count: usize, within: Duration) -> Result<Self, ClientError> {
        // Those that were opened before one that was not are left again.
        let mut open = Self { core: Arc::clone(core), lanes: Vec::with_capacity(count) };
        for _ in 0..count {
            open.lanes.push(core.open_lane(within)?);
        }
        Ok(open)
    }
}

impl<K: BuildKeys, T: Connector> Lanes<K> for OpenLanes<K, T> {
    fn post(
        &mut self,
        lane: usize,
        operation: &WriteOperation<'_, &K::Key>,
        within: Duration,
    ) -> Result<(), ClientError> {
        self.core.post(&mut self.lanes[lane], operation, within)
    }

    fn settle(&mut self, lane: usize) -> Result<WriteReply, ClientError> {
        self.core.settle(&mut self.lanes[lane])
    }

    fn settle_if_answered(&mut self, lane: usize) -> Option<Result<WriteReply, ClientError>> {
        self.core.settle_if_answered(&mut self.lanes[lane])
    }
}

impl<K: BuildKeys, T: Connector> Drop for OpenLanes<K, T> {
    fn drop(&mut self) {
        self.lanes.drain(..).for_each(|lane| self.core.leave_lane(lane));
    }
}
