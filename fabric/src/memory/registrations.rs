//! Registrations of memory with devices, which must be taken back before the memory goes.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;

/// Memory that is registered with a device.
pub(crate) trait Registered: Debug + Send + Sync {
    /// Takes back what reaches past `from`: when this returns, no device reads there any more,
    /// unless it was [kept](Registrations::keep).
    fn withdraw(&self, from: u64);
}

/// All of one memory, of whichever mapping of it.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    registered: Mutex<Vec<Weak<dyn Registered>>>,
    /// Up to where devices may read for ever.
    kept: AtomicU64,
}

impl Registrations {
    /// Remembers one as long as it lives.
    #[cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "who registers is not built"))]
    pub(crate) fn enter(&self, registered: &Arc<dyn Registered>) {
        let mut all = lock(&self.registered);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(registered));
    }

    /// Notes that a device has not given back bytes that reach up to `end`.
    #[cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "no device is built"))]
    pub(crate) fn keep(&self, end: u64) {
        self.kept.fetch_max(end, Ordering::Release);
    }

    /// Has all take back what reaches past `from`; `false` if a device may read there all the same.
    pub(crate) fn withdraw(&self, from: u64) -> bool {
        let all: Vec<_> = lock(&self.registered).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|registered| registered.withdraw(from));
        self.kept.load(Ordering::Acquire) <= from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HugePages, SharedMemory};

    #[derive(Debug)]
    struct Refuses(Arc<Registrations>);

    impl Registered for Refuses {
        fn withdraw(&self, _: u64) {
            self.0.keep(8192);
        }
    }

    /// A hole was made, and the device went on with pages that were not the memory's any more.
    #[test]
    fn memory_that_a_device_does_not_give_back_stays() {
        let (memory, _) = SharedMemory::create_memfd("region", 3 * 4096, HugePages::No).unwrap();
        (0..3).for_each(|page| memory.store_relaxed(page * 4096, 7).unwrap());
        let words = || [0, 4096, 8192].map(|offset| memory.load_relaxed(offset).unwrap());
        let registered: Arc<dyn Registered> = Arc::new(Refuses(Arc::clone(memory.registrations())));
        memory.registrations().enter(&registered);
        assert_eq!((memory.discard_from(4096), words()), (Ok(false), [7; 3]));
        drop(registered);
        assert_eq!((memory.discard_from(0), words()), (Ok(false), [7; 3]));
        assert_eq!((memory.discard_from(8192), words()), (Ok(true), [7, 7, 0]));
    }
}
