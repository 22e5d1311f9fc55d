//! Lanes: writes in flight, each with its own connection and identity.

use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteKind, WriteReply};
use fpcache_fabric::Posted;

use super::ahead::Ahead;
use super::connector::Connector;
use super::sending::Sending;
use super::writer::{Limits, Writer};

/// A way for one change at a time: what is sent along different lanes is under way together.
pub(crate) struct Lane<K: BuildKeys, T: Connector> {
    pub(super) connection: T::Connection,
    pub(super) writer: Writer,
    pub(super) flight: Option<Flight<K::Owned>>,
    pub(super) replies: Vec<WriteReply>,
}

/// A change under way.
pub(super) struct Flight<Key> {
    pub(super) key: Key,
    pub(super) kind: WriteKind,
    /// Goes ahead of the request, however often it is sent.
    pub(super) ahead: Ahead<'static>,
    pub(super) limits: Limits,
    pub(super) first: Option<First>,
}

/// What became of a change's first sending.
pub(super) enum First {
    Posted(Posted),
    /// The reply is the writer's.
    Answered,
    Failed(Sending),
}
