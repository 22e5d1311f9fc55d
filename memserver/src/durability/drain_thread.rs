//! A thread that runs the drain.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fpcache_fabric::{Clock, NodeMemory};

use super::disk::Disk;
use super::drain::Drain;
use super::error::LogError;
use super::lsn::Lsn;
use super::signals::{Signals, Sleep};

/// How long a failed log waits before it tries again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How soon a thread that has fallen asleep looks whether it just missed something.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// What the drain's thread tells.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// Everything up to this LSN is durable.
    Synced(Lsn),
    /// The log fails; the thread tries again twice a second.
    Failed(LogError),
    /// The log continues.
    Recovered,
}

/// Runs a [`Drain`] on a thread of its own, so that no writer waits for the disk.
///
/// It sleeps until something is staged, or a sync is due or wanted. Dropping it stops it after a
/// last sync.
pub struct DrainThread {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

impl DrainThread {
    /// Starts the thread. `tell` is called on it whenever the synced LSN moves, the log fails or
    /// recovers; it must not block for long.
    ///
    /// # Errors
    /// If the operating system has no thread.
    pub fn spawn<M: NodeMemory + 'static, D: Disk + 'static>(
        drain: Drain<M, D>,
        clock: Arc<dyn Clock>,
        tell: impl FnMut(LogEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let signals = Arc::clone(&drain.signals);
        let synced = drain.progress().synced;
        let mut runner = Runner { drain, clock, tell, told: synced, retry_at: None };
        let thread = thread::Builder::new().name("fpcache-log".into()).spawn(move || runner.run())?;
        signals.set_thread(thread.thread().clone());
        // It may have gone to sleep before it could be woken.
        thread.thread().unpark();
        Ok(Self { signals, thread: Some(thread) })
    }
}

impl Drop for DrainThread {
    fn drop(&mut self) {
        self.signals.stop();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // That it has panicked was said.
            let _ = thread.join();
        }
    }
}

struct Runner<M, D, F> {
    drain: Drain<M, D>,
    clock: Arc<dyn Clock>,
    tell: F,
    told: Lsn,
    retry_at: Option<Instant>,
}

impl<M: NodeMemory, D: Disk, F: FnMut(LogEvent)> Runner<M, D, F> {
    fn run(&mut self) {
        while !self.drain.signals.is_stopping() {
            let now = self.clock.now();
            if self.retry_at.is_some_and(|at| at <= now) {
                self.retry(now);
            }
            if self.retry_at.is_none()
                && let Err(error) = self.drain.step(now)
            {
                self.failed(error, now);
            }
            self.tell_synced();
            self.sleep(now);
        }
        let now = self.clock.now();
        if self.retry_at.is_some() {
            self.retry(now);
        }
        if let Err(error) = self.drain.finish(now) {
            (self.tell)(LogEvent::Failed(error));
        }
        self.tell_synced();
    }

    fn retry(&mut self, now: Instant) {
        // A disk that has room for the header of a file may have none for what belongs into it.
        match self.drain.retry().and_then(|()| self.drain.step(now)) {
            Ok(_) => {
                self.retry_at = None;
                (self.tell)(LogEvent::Recovered);
            }
            Err(_) => self.retry_at = now.checked_add(RETRY_AFTER),
        }
    }

    fn failed(&mut self, error: LogError, now: Instant) {
        self.retry_at = now.checked_add(RETRY_AFTER);
        (self.tell)(LogEvent::Failed(error));
    }

    fn tell_synced(&mut self) {
        let synced = self.drain.progress().synced;
        if synced > self.told {
            self.told = synced;
            (self.tell)(LogEvent::Synced(synced));
        }
    }

    /// Sleeps until there is work: none, for a time, or until poked.
    fn sleep(&self, now: Instant) {
        let until = self.retry_at.or(self.drain.progress().due);
        let kind = if until.is_some() { Sleep::Dozing } else { Sleep::Idle };
        let signals = &self.drain.signals;
        signals.begin_sleep(kind);
        if !self.has_work(kind) {
            match until {
                Some(until) => thread::park_timeout(until.saturating_duration_since(now)),
                None => {
                    thread::park_timeout(SECOND_LOOK);
                    if signals.is_asleep() && !self.has_work(kind) {
                        thread::park();
                    }
                }
            }
        }
        signals.end_sleep();
    }

    fn has_work(&self, kind: Sleep) -> bool {
        let is_failing = self.retry_at.is_some();
        let has_staged = kind == Sleep::Idle && self.drain.has_staged();
        self.drain.signals.is_stopping() || !is_failing && (has_staged || self.drain.is_urgent())
    }
}
