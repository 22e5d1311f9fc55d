//! Registrations of memory with devices, which must be taken back before the memory goes.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memory that is registered with a device.
pub(crate) trait Registered: Debug + Send + Sync {
    /// Takes back what reaches past `from`: when this returns, no device reads there any more.
    fn withdraw(&self, from: u64);
}

/// All of one memory, of whichever mapping of it.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    registered: Mutex<Vec<Weak<dyn Registered>>>,
}

impl Registrations {
    /// Remembers one as long as it lives.
    #[cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "who registers is not built"))]
    pub(crate) fn enter(&self, registered: &Arc<dyn Registered>) {
        let mut all = self.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(registered));
    }

    /// Has all take back what reaches past `from`.
    pub(crate) fn withdraw(&self, from: u64) {
        let all: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|registered| registered.withdraw(from));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Registered>>> {
        // Held for single calls of the list.
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
