//! Virtual time as a [`Clock`].

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache_fabric::{Clock, Deadline};

use crate::baton::Shared;
use crate::time::nanos;

/// The time that a look at the clock takes, so that a loop that waits for a deadline without
/// sleeping ends.
const LOOK: u64 = 20;

/// A world's clock. Time passes as events happen, when a process sleeps, and 20 ns with each look.
#[derive(Clone)]
pub struct SimClock {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for SimClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimClock").field("elapsed", &self.elapsed()).finish()
    }
}

impl SimClock {
    /// Virtual time since the world began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.shared.time.now())
    }

    /// Passes `duration` of virtual time from now.
    #[must_use]
    pub fn deadline(&self, duration: Duration) -> Deadline {
        Deadline::after_on(self, duration)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        let time = &self.shared.time;
        time.base + Duration::from_nanos(time.pass(LOOK))
    }

    fn sleep(&self, duration: Duration) {
        self.shared.sleep(nanos(duration));
    }
}
