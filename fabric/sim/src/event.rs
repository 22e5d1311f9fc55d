//! The events of a world, and their order.

use std::cmp::Ordering as Order;
use std::sync::Arc;

use crate::process_state::Waiter;

/// An event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A deadline passes.
    Timeout(Waiter),
    /// A sleep ends.
    Wake(Waiter),
    /// The next pieces of a queue pair's first batch are fetched.
    Fetch {
        endpoint: usize,
        ticket: u64,
    },
    /// The batch's completion arrives.
    Land {
        endpoint: usize,
        ticket: u64,
    },
    /// Stores become visible.
    Drain {
        node: usize,
        life: u64,
    },
    /// The memory node's loop comes round.
    Turn {
        node: usize,
        life: u64,
    },
    /// The memory node wanted to work at this time.
    Work {
        node: usize,
        life: u64,
    },
    /// The memory node starts again.
    Restart {
        node: usize,
    },
    /// Those connected to this life of the memory node notice that it is over.
    Notice {
        node: usize,
        life: u64,
    },
    Open {
        connection: usize,
    },
    Opened {
        connection: usize,
    },
    Deliver {
        connection: usize,
        call: u64,
        bytes: Arc<[u8]>,
    },
    Reply {
        connection: usize,
        call: u64,
        bytes: Vec<u8>,
    },
    Close {
        connection: usize,
    },
}

#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) at: u64,
    pub(crate) order: u64,
    pub(crate) event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The earliest is the greatest, because the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Order {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
