//! Messages from thread to thread, and waking their receiver.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::FabricError;
use crate::lock::lock;

/// A queue with one taker, who sleeps on a descriptor when there is nothing.
///
/// *No wake-up is lost.* The taker says that it is about to sleep, then looks into the queue under
/// its lock; a sender puts the message there under the lock and looks afterwards whether the taker
/// sleeps. Whichever of the two had the lock later sees what the other did before.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    queue: Mutex<VecDeque<T>>,
    /// Messages in it, so that looking costs a load.
    count: AtomicUsize,
    sleeps: AtomicBool,
    event: OwnedFd,
}

impl<T> Mailbox<T> {
    pub(super) fn new() -> Result<Self, FabricError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(FabricError::io("creating an event descriptor"))?;
        let queue = Mutex::new(VecDeque::new());
        Ok(Self { queue, count: AtomicUsize::new(0), sleeps: AtomicBool::new(false), event })
    }

    /// Puts a message into the queue and wakes its taker if it sleeps.
    pub(super) fn post(&self, message: T) {
        let mut queue = lock(&self.queue);
        queue.push_back(message);
        self.count.store(queue.len(), Ordering::Release);
        drop(queue);
        if self.sleeps.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes the taker, also before it sleeps.
    pub(super) fn wake(&self) {
        // A full counter is readable, which is all that matters.
        let _ = rustix::io::write(&self.event, &1u64.to_le_bytes());
    }

    /// The oldest message.
    pub(super) fn take(&self) -> Option<T> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = lock(&self.queue);
        let message = queue.pop_front();
        self.count.store(queue.len(), Ordering::Release);
        message
    }

    /// How many there are at least, as seen from the taker.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Says that the taker is about to wait for the descriptor; `false` if there are messages, and
    /// it must not.
    pub(super) fn begin_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        lock(&self.queue).is_empty()
    }

    /// The taker is awake, and takes back what woke it.
    pub(super) fn end_sleep(&self, was_woken: bool) {
        self.sleeps.store(false, Ordering::SeqCst);
        if was_woken {
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        }
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
