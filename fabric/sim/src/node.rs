//! A memory node as the scheduler knows it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use fpcache_fabric::{Answers, MemoryError, Service, SharedMemory, ThreadMemory};

use crate::memory::{SimMemory, Stores, lock};
use crate::options::NodeOptions;
use crate::queue_pair::SimArea;
use crate::room::RoomWaiters;

/// The death of a memory node, for what it had outside simulated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDeath {
    /// Which life ended.
    pub life: u64,
    /// Stores that became visible, over all lives.
    pub stores: u64,
}

/// A life that is to begin.
pub(crate) struct Life {
    /// The memory node's memories, holding what survived.
    pub(crate) memories: Vec<Arc<SimMemory>>,
    /// Which life it is, from 1.
    pub(crate) number: u64,
    /// The connection over which threads of its own read its region.
    pub(crate) connection: usize,
}

/// The state of a life that has begun.
pub(crate) struct StartedLife {
    pub(crate) service: Box<dyn Service>,
    pub(crate) answers: Option<Arc<dyn Answers>>,
}

/// Makes the service of each life. It knows the world that the memory node is in; the memory node
/// does not.
pub(crate) type Start = Box<dyn FnMut(Life) -> Result<StartedLife, String> + Send>;
/// Is told of each death, after the service was dropped.
pub(crate) type OnDeath = Box<dyn FnMut(NodeDeath) + Send>;

/// An item that waits for the memory node's loop.
#[derive(Debug)]
pub(crate) enum Item {
    Connect(usize),
    Request { connection: usize, call: u64, bytes: Arc<[u8]> },
    Disconnect(usize),
}

pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) options: NodeOptions,
    pub(crate) stores: Arc<Mutex<Stores>>,
    pub(crate) inbox: VecDeque<Item>,
    pub(crate) areas: Arc<[SimArea]>,
    pub(crate) start: Option<Start>,
    pub(crate) on_death: Option<OnDeath>,
    /// Dies when this many stores have become visible, over all lives.
    pub(crate) dies_at: Option<u64>,
    /// The requests that wait for the service to have room.
    pub(crate) room: RoomWaiters,
    /// The code that answers questions in this life, and the memory of the threads that do so.
    pub(crate) answers: Option<Arc<dyn Answers>>,
    pub(crate) thread_memories: Vec<ThreadMemory>,
    pub(crate) service: Option<Box<dyn Service>>,
    pub(crate) draining: bool,
    pub(crate) turning: bool,
    /// The loop waits for the stores to be visible.
    pub(crate) held_up: bool,
    /// `work` must be called before the loop may rest.
    pub(crate) work_due: bool,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("up", &self.service.is_some()).finish()
    }
}

impl Node {
    pub(crate) fn new(options: NodeOptions, start: Start) -> Result<Self, MemoryError> {
        let visible: Result<Vec<_>, _> = options.memories.iter().map(|m| blank(m.bytes)).collect();
        Ok(Self {
            name: options.name.as_str().into(),
            options,
            stores: Arc::new(Mutex::new(Stores::new(visible?))),
            inbox: VecDeque::new(),
            areas: [].into(),
            start: Some(start),
            on_death: None,
            dies_at: None,
            room: RoomWaiters::default(),
            answers: None,
            thread_memories: Vec::new(),
            service: None,
            draining: false,
            turning: false,
            held_up: false,
            work_due: false,
        })
    }

    pub(crate) fn is_up(&self) -> bool {
        self.service.is_some()
    }

    /// Whether everything it was asked is done and everything it stored can be seen.
    pub(crate) fn is_settled(&self) -> bool {
        let is_asked = !self.inbox.is_empty() || self.room.is_awaited();
        self.is_up() && !is_asked && lock(&self.stores).is_empty() && !self.work_due
    }

    pub(crate) fn life(&self) -> u64 {
        lock(&self.stores).life
    }
}

/// Zeroed memory of whole words.
pub(crate) fn blank(bytes: usize) -> Result<Arc<SharedMemory>, MemoryError> {
    SharedMemory::anonymous(bytes.saturating_add(7) / 8 * 8).map(Arc::new)
}
