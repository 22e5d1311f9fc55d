//! Stand-ins for cards where the feature `rdma` is off: types without values.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::{
    CardAnswer, CardChoice, CardCounters, CardFailure, Introduction, RdmaError, ServedAreas, WaitLimit,
};
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::verbs::Batch;

#[derive(Debug)]
pub(crate) struct NodeCard(Infallible);

#[derive(Debug)]
pub(crate) struct PeerQueuePair(#[allow(dead_code, reason = "it cannot be made")] Infallible);

#[derive(Debug)]
pub(crate) struct ClientCard(Infallible);

#[derive(Debug)]
pub(crate) struct Reader(Infallible);

impl NodeCard {
    pub(crate) fn open(_: &CardChoice) -> Result<Self, RdmaError> {
        Err(RdmaError::NotBuilt)
    }

    pub(crate) fn answer(
        &self,
        _: &ServedAreas<'_>,
        _: &mut Option<PeerQueuePair>,
        _: &[u8],
    ) -> Result<CardAnswer, RdmaError> {
        match self.0 {}
    }
}

impl ClientCard {
    pub(crate) fn open(_: &CardChoice) -> Result<Self, RdmaError> {
        Err(RdmaError::NotBuilt)
    }

    pub(crate) fn choice(&self) -> CardChoice {
        match self.0 {}
    }

    pub(crate) fn is_gone(&self) -> bool {
        match self.0 {}
    }
}

impl Reader {
    pub(crate) fn connect(
        _: &Arc<ClientCard>,
        _: Box<dyn Introduction>,
        _: Option<u64>,
        _: &Arc<CardCounters>,
        _: Deadline,
    ) -> Result<Self, FabricError> {
        Err(RdmaError::NotBuilt.into())
    }

    pub(crate) fn leased_word(&self) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn path_mtu(&self) -> u32 {
        match self.0 {}
    }

    pub(crate) fn registered_from_begin(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn failed_wait(&self) -> Duration {
        match self.0 {}
    }

    pub(crate) fn take_uncounted(&mut self) -> u32 {
        match self.0 {}
    }

    pub(crate) fn run(&mut self, _: &mut Batch, _: usize, _: &WaitLimit<'_>) -> Result<(), CardFailure> {
        match self.0 {}
    }
}
