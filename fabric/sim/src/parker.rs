//! Parking places where threads wait for their turns.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Where one thread waits for its turn.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    go: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Parker {
    /// Says whose parker it is; before it is woken.
    pub(crate) fn belongs_to(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    pub(crate) fn wake(&self) {
        self.go.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn park(&self) {
        while !self.go.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Parks no longer than `patience` of real time; false if it was not woken.
    pub(crate) fn park_for(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while !self.go.swap(false, Ordering::Acquire) {
            let Some(left) = patience.checked_sub(begun.elapsed()) else { return false };
            std::thread::park_timeout(left);
        }
        true
    }
}
