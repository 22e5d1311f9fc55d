//! The thread that keeps the views for `answering` up to date.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fpcache::table_view::OpenError;
use fpcache_fabric::{Clock, SystemClock};

/// Bytes of models that all tables of a memory node may have for this together. A table whose
/// models find no room, or only in pages, answers nothing.
pub(super) const MODEL_BYTES: u64 = 32 << 20;
/// How long the follower looks away after each table, so that it leaves the processor to others
/// however often it is told.
const PAUSE: Duration = Duration::from_micros(100);

/// Something that is brought up to date once a thread has found it out of date.
pub(super) trait Follows: Send + Sync {
    fn follow(&self);
}

/// What the follower is told.
pub(super) enum FollowerTask {
    /// To bring a view up to date.
    Outdated(Weak<dyn Follows>),
    /// To free what may take long to free.
    Unused(Box<dyn Any + Send>),
}

impl FollowerTask {
    /// Does it, and says whether it was a view that was looked at.
    fn run(self) -> bool {
        match self {
            FollowerTask::Outdated(view) => {
                if let Some(view) = view.upgrade() {
                    view.follow();
                }
                true
            }
            FollowerTask::Unused(unused) => {
                drop(unused);
                false
            }
        }
    }
}

/// Brings views up to date, on a thread that begins when the first of them is needed. Clones share
/// it.
#[derive(Clone, Debug)]
pub struct Follower {
    pub(super) shared: Arc<FollowerShared>,
}

#[derive(Debug)]
pub(super) struct FollowerShared {
    /// `None` if no thread can be started.
    tell: OnceLock<Option<Sender<FollowerTask>>>,
    /// Bytes of models that all views have.
    pub(super) model_bytes: AtomicU64,
    pub(super) clock: Arc<dyn Clock>,
}

impl Default for Follower {
    fn default() -> Self {
        Self::with(OnceLock::new(), Arc::new(SystemClock))
    }
}

impl Follower {
    /// One without a thread, and a function that does its work, for simulated regions.
    #[must_use]
    pub fn by_hand(clock: Arc<dyn Clock>) -> (Self, Following) {
        let (tell, told) = channel();
        (Self::with(OnceLock::from(Some(tell)), clock), Following { told })
    }

    fn with(tell: OnceLock<Option<Sender<FollowerTask>>>, clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(FollowerShared { tell, model_bytes: AtomicU64::new(0), clock }) }
    }

    pub(super) fn tell(&self, what: FollowerTask) {
        let tell = self.shared.tell.get_or_init(|| {
            let (tell, told) = channel();
            let spawned =
                std::thread::Builder::new().name("fpcache-follow".into()).spawn(|| follow_all(told));
            spawned.is_ok().then_some(tell)
        });
        if let Some(tell) = tell {
            // The thread ends after the last sender.
            let _ = tell.send(what);
        }
    }
}

fn follow_all(told: Receiver<FollowerTask>) {
    for what in told {
        if what.run() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The work of a follower without a thread.
pub struct Following {
    told: Receiver<FollowerTask>,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").finish_non_exhaustive()
    }
}

impl Following {
    /// Does the next thing that there is to do; false once there will be no more. Does not block.
    pub fn follow_next(&self) -> bool {
        match self.told.try_recv() {
            Ok(what) => {
                what.run();
                true
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => false,
        }
    }
}

/// Bytes of models that a view has of those for all, until it is dropped.
#[derive(Debug)]
pub(super) struct ModelBytes {
    shared: Arc<FollowerShared>,
    bytes: u64,
}

impl ModelBytes {
    pub(super) fn nothing(follower: &Follower) -> Self {
        Self { shared: Arc::clone(&follower.shared), bytes: 0 }
    }

    pub(super) fn resize(&mut self, bytes: u64) -> Result<(), OpenError> {
        let charged = |all: u64| Some(all - self.bytes + bytes).filter(|all| *all <= MODEL_BYTES);
        let all = &self.shared.model_bytes;
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged).map_err(|_| no_room(bytes))?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for ModelBytes {
    fn drop(&mut self) {
        self.shared.model_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

pub(super) fn no_room(bytes: u64) -> OpenError {
    OpenError::Budget { budget: MODEL_BYTES, least: bytes }
}
