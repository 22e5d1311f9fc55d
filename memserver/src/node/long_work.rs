//! Work that takes a memory node many steps: a load, and a snapshot.

use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::ClientId;

use crate::damaged_records::LeftOut;
use crate::durability::Lsn;
use crate::loader::Loader;

/// Which load it is: a connection may be that of several handles and threads, each with loads of
/// its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoadId {
    pub(crate) client: ClientId,
    /// The number that the client gave it.
    pub(crate) number: u64,
}

/// A load in progress.
#[derive(Debug)]
pub(crate) struct Loading<K: BuildKeys> {
    pub(super) id: LoadId,
    pub(super) loader: Loader<K>,
    /// When its client was last heard of.
    pub(super) heard: Instant,
}

/// A snapshot under way.
#[derive(Debug)]
pub(crate) struct Snapshotting {
    pub(super) begun: Instant,
    /// Bytes of the log since the one before, when it began: the next one's again if it fails.
    pub(super) logged_before: u64,
    /// Records on their way to the disk.
    pub(super) records: Vec<u8>,
    /// The last entry of the log that may be contained, once all records are on their way.
    pub(super) last: Option<Lsn>,
    /// How often the log had failed when it was first seen to have no room for those up to it.
    pub(super) log_failures: Option<u64>,
    pub(super) is_finished: bool,
    /// What is damaged, and not in it.
    pub(super) left_out: LeftOut,
}
