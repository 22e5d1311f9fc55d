//! Lanes over any kind of connection, for one write in flight each.

use std::sync::Arc;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteOperation, WriteReply};

use crate::core::{Connector, Core, Lane, no_reply};
use crate::error::ClientError;

/// A way for changes, with one under way at most.
pub(crate) trait WriteLane<K: BuildKeys>: Send {
    /// By which identity the last change went: the memory node that answers one change of an
    /// identity does not do its earlier ones any more. A lane that leads to one memory node has one
    /// identity.
    fn identity(&self) -> usize {
        0
    }

    /// Whether the lane has that identity still. One that it has no more was of a table that was
    /// dropped, and nothing that went by it takes effect any more.
    fn has_identity(&self, _identity: usize) -> bool {
        true
    }

    /// Which of the table's memory nodes the last change went to.
    fn node(&self) -> usize {
        0
    }

    /// Sends a change if none is under way. After an error it was not sent.
    fn post(&mut self, operation: &WriteOperation<'_, &K::Key>, within: Duration) -> Result<(), ClientError>;

    /// Waits for the end of the change under way.
    fn settle(&mut self) -> Result<WriteReply, ClientError>;

    /// How the change under way ended, if that is known: it is once its time is over.
    fn settle_if_answered(&mut self) -> Option<Result<WriteReply, ClientError>>;
}

/// A lane of a core, which takes it back.
pub(crate) struct OpenLane<K: BuildKeys, T: Connector> {
    core: Arc<Core<K, T>>,
    /// There until this is dropped.
    lane: Option<Lane<K, T>>,
}

impl<K: BuildKeys, T: Connector> OpenLane<K, T> {
    pub(crate) fn open(core: &Arc<Core<K, T>>, within: Duration) -> Result<Self, ClientError> {
        Ok(Self { core: Arc::clone(core), lane: Some(core.open_lane(within)?) })
    }
}

impl<K: BuildKeys, T: Connector> WriteLane<K> for OpenLane<K, T> {
    fn post(&mut self, operation: &WriteOperation<'_, &K::Key>, within: Duration) -> Result<(), ClientError> {
        self.core.post(self.lane.as_mut().ok_or_else(no_reply)?, operation, within)
    }

    fn settle(&mut self) -> Result<WriteReply, ClientError> {
        self.core.settle(self.lane.as_mut().ok_or_else(no_reply)?)
    }

    fn settle_if_answered(&mut self) -> Option<Result<WriteReply, ClientError>> {
        self.core.settle_if_answered(self.lane.as_mut()?)
    }
}

impl<K: BuildKeys, T: Connector> Drop for OpenLane<K, T> {
    fn drop(&mut self) {
        self.lane.take().into_iter().for_each(|lane| self.core.leave_lane(lane));
    }
}
