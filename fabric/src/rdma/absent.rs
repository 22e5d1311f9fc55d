//! Stand-ins for cards in a program that was built without them.

use std::sync::Arc;
use std::time::Duration;

use super::{
    CardAnswer, CardChoice, CardCounters, CardFailure, Introduction, RdmaError, ServedAreas, WaitLimit,
};
use crate::absent::absent;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::verbs::Batch;

absent! {
    pub(crate) NodeCard {
        fn answer(&ServedAreas<'_>, &mut Option<PeerQueuePair>, &[u8]) -> Result<CardAnswer, RdmaError>;
    }
    pub(crate) PeerQueuePair {}
    pub(crate) ClientCard {
        fn choice() -> CardChoice;
        fn is_gone() -> bool;
    }
    pub(crate) Reader {
        fn leased_word() -> Option<u64>;
        fn path_mtu() -> u32;
        fn registered_from_begin() -> u64;
        fn failed_wait() -> Duration;
        fn take_uncounted() -> u32;
        fn run(&mut Batch, usize, &WaitLimit<'_>) -> Result<(), CardFailure>;
    }
}

impl NodeCard {
    pub(crate) fn open(_: &CardChoice) -> Result<Self, RdmaError> {
        Err(RdmaError::NotBuilt)
    }
}

impl ClientCard {
    pub(crate) fn open(_: &CardChoice) -> Result<Self, RdmaError> {
        Err(RdmaError::NotBuilt)
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
}
