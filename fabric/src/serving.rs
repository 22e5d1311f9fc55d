//! Serving loops, and how they end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::error::FabricError;
use crate::memory::ForkFlag;

/// Ends a serving loop from any thread, at once also when it is parked.
#[derive(Clone, Debug)]
pub struct StopHandle {
    inner: Arc<StopInner>,
}

#[derive(Debug)]
struct StopInner {
    stopped: AtomicBool,
    wake: OwnedFd,
}

impl StopHandle {
    /// A handle that has not been used.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> Result<Self, FabricError> {
        use rustix::event::{EventfdFlags, eventfd};
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(FabricError::io("creating an event descriptor"))?;
        Ok(Self { inner: Arc::new(StopInner { stopped: AtomicBool::new(false), wake }) })
    }

    /// Ends the loop after the request in hand.
    pub fn stop(&self) {
        self.inner.stopped.store(true, Ordering::Release);
        // A full counter is readable, which is all that matters.
        let _ = rustix::io::write(&self.inner.wake, &1u64.to_le_bytes());
    }

    /// Whether it was used.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::Acquire)
    }
}

impl AsFd for StopHandle {
    /// Becomes readable when the handle is used, for loops that wait in `poll`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake.as_fd()
    }
}

/// A serving loop on its own thread; dropping it ends the loop, but not in a process that was
/// forked from the thread's.
#[derive(Debug)]
pub struct Serving {
    stop: StopHandle,
    thread: Option<JoinHandle<Result<(), FabricError>>>,
    /// Whose thread it is.
    here: ForkFlag,
}

impl Serving {
    pub(crate) fn spawn(
        name: &str,
        body: impl FnOnce(&StopHandle) -> Result<(), FabricError> + Send + 'static,
    ) -> Result<Self, FabricError> {
        let (stop, here) = (StopHandle::new()?, ForkFlag::raised()?);
        let seen = stop.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(&seen))
            .map_err(|source| FabricError::os("starting the serving thread", source))?;
        Ok(Self { stop, thread: Some(thread), here })
    }

    /// Tells the thread to end, and gives it. A process that was forked from the thread's has no
    /// thread to end.
    fn end(&mut self) -> Option<JoinHandle<Result<(), FabricError>>> {
        if self.here.is_inherited() {
            std::mem::forget(self.thread.take());
            return None;
        }
        self.stop.stop();
        self.thread.take()
    }

    /// Ends the loop and says how it ended.
    ///
    /// # Errors
    /// What the loop returned.
    ///
    /// # Panics
    /// With the service's panic, if it did.
    pub fn stop(mut self) -> Result<(), FabricError> {
        match self.end().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(thread) = self.end() {
            // Its error has no receiver left; `stop` is for those who want it.
            let _ = thread.join();
        }
    }
}
