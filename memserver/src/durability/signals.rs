//! Signals between the writer and the drain of one process.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use super::error::LogError;
use super::lsn::Lsn;

/// How the drain's thread is waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sleep {
    /// For anything.
    Idle = 1,
    /// For a time; only a full ring or a wish is worth waking it.
    Dozing = 2,
}

const AWAKE: u8 = 0;

#[derive(Debug, Default)]
pub(super) struct Signals {
    /// `AWAKE` or a `Sleep`. Awake for good where no thread drains.
    sleep: AtomicU8,
    thread: OnceLock<Thread>,
    wanted: AtomicU64,
    stop: AtomicBool,
    has_failed: AtomicBool,
    lost: AtomicU64,
    failure: Mutex<Option<LogError>>,
    failures: AtomicU64,
}

impl Signals {
    /// Wakes the drain if it sleeps idly, or in any way if it is `urgent`. To be called after the
    /// store that the drain is to see.
    ///
    /// There is no fence between the two: it would wait for every cache miss of the record's
    /// stores, several times what staging costs. So the drain may just miss the store and this just
    /// miss its sleep; the drain looks a second time after a millisecond.
    #[inline]
    pub(super) fn nudge(&self, urgent: bool) {
        let sleep = self.sleep.load(Ordering::Relaxed);
        if sleep == Sleep::Idle as u8 || (urgent && sleep == Sleep::Dozing as u8) {
            self.wake();
        }
    }

    /// Wakes the drain, however it sleeps. Either the drain, which says that it sleeps before it
    /// looks for work, sees the caller's store, or this sees it asleep: the two fences are of
    /// Dekker's kind.
    fn wake_drain(&self) {
        fence(Ordering::SeqCst);
        self.nudge(true);
    }

    #[cold]
    fn wake(&self) {
        if self.sleep.swap(AWAKE, Ordering::AcqRel) != AWAKE
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Names the thread to wake. The first caller's stays.
    pub(super) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Says that the drain is about to sleep; it must look for work once more before it does.
    pub(super) fn begin_sleep(&self, sleep: Sleep) {
        self.sleep.store(sleep as u8, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether nobody has woken the drain since it fell asleep.
    pub(super) fn is_asleep(&self) -> bool {
        self.sleep.load(Ordering::Acquire) != AWAKE
    }

    /// Says that the drain is awake.
    pub(super) fn end_sleep(&self) {
        self.sleep.store(AWAKE, Ordering::Relaxed);
    }

    pub(super) fn want(&self, lsn: Lsn) {
        self.wanted.fetch_max(lsn, Ordering::Release);
        self.wake_drain();
    }

    pub(super) fn wanted(&self) -> Lsn {
        self.wanted.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_drain();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Says that the disk lost records up to this one.
    pub(super) fn set_lost(&self, last: Lsn) {
        self.lost.fetch_max(last, Ordering::Release);
    }

    /// The last record that the disk lost; 0 if it lost none.
    #[inline]
    pub(super) fn lost(&self) -> Lsn {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn set_failure(&self, failure: Option<LogError>) {
        let has_failed = failure.is_some();
        self.failures.fetch_add(u64::from(has_failed), Ordering::Relaxed);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        self.has_failed.store(has_failed, Ordering::Release);
    }

    /// How often it failed, retries included.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn failure(&self) -> Option<LogError> {
        if !self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
