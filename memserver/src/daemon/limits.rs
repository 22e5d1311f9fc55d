//! Limits on open file descriptors, and how they are shared out.

use std::sync::Arc;

use fpcache_fabric::Descriptors;
use fpcache_fabric::shm::Listener;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::catalogue::{DESCRIPTORS_FOR_CLIENTS, TABLE_DESCRIPTORS};

/// Kept for the memory node itself beside what it has open when it begins: locks, signals, folders,
/// the log's next file, a region that is being made, a data set that is being loaded.
const OWN: usize = 32;

/// Raises this process's limit of open files as far as it may: the soft limit to the hard one. For
/// programs that are a memory node and nothing else; others decide for themselves. What the
/// operating system refuses stays as it is.
pub fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// What of a process's descriptors clients and tables share.
#[derive(Clone, Debug)]
pub(super) struct DescriptorLimit {
    /// The process's limit.
    pub(super) limit: usize,
    /// What remains of it for clients and tables.
    pub(super) shared: Arc<Descriptors>,
}

impl DescriptorLimit {
    /// The process's own, less what is open and what the memory node keeps for itself and
    /// `for_sockets`; as an error the limit and what it should at least be.
    pub(super) fn of_this_process(for_sockets: usize) -> Result<Self, (usize, usize)> {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let kept = open_now() + OWN + Listener::GREETING_DESCRIPTORS + for_sockets;
        let needed = kept + TABLE_DESCRIPTORS + DESCRIPTORS_FOR_CLIENTS;
        if limit < needed {
            return Err((limit, needed));
        }
        Ok(Self { limit, shared: Descriptors::new(limit - kept) })
    }
}

/// Descriptors of this process; a few where that cannot be told.
fn open_now() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(8, Iterator::count)
}
