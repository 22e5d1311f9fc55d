//! The memory of requests that are on their way to the service.
//!
//! Requests take memory piece by piece, as they arrive, and hold it until the service has room for
//! them. So those to a region whose service stands still would have all of it in the end, and many
//! that are half sent could have it without one of them being whole. Hence the *shares*: three
//! quarters of the memory are given out such that requests to one region have no more than they
//! leave to others; and whichever of a region has waited longest takes what it needs of the rest.
//! The one that has waited longest of all takes it in any case, so that one gets on however long
//! requests may be.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;
use crate::region::RegionName;

/// Bytes that are held, and the numbers of those that wait for some, in the order in which they
/// began to.
#[derive(Debug, Default)]
struct Account {
    held: AtomicUsize,
    starved: Mutex<VecDeque<u64>>,
}

/// The memory for requests of all clients.
#[derive(Debug)]
pub(super) struct RequestMemory {
    bytes: usize,
    all: Account,
    next_starved: AtomicU64,
    regions: Mutex<HashMap<RegionName, Weak<Account>>>,
}

impl RequestMemory {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        let (all, next_starved) = (Account::default(), AtomicU64::new(0));
        Arc::new(Self { bytes, all, next_starved, regions: Mutex::default() })
    }

    /// The share of a region's clients.
    pub(super) fn share(self: &Arc<Self>, region: &RegionName) -> Share {
        let mut regions = lock(&self.regions);
        let own = regions.get(region).and_then(Weak::upgrade).unwrap_or_else(|| {
            regions.retain(|_, account| account.strong_count() > 0);
            let own = Arc::default();
            regions.insert(*region, Arc::downgrade(&own));
            own
        });
        Share { memory: Arc::clone(self), own }
    }
}

/// The share of one region's clients in the memory for requests.
#[derive(Clone, Debug)]
pub(super) struct Share {
    memory: Arc<RequestMemory>,
    own: Arc<Account>,
}

impl Share {
    /// For a request, which has nothing yet.
    pub(super) fn charge(&self) -> Charge {
        Charge { share: self.clone(), bytes: 0, number: None }
    }
}

/// Bytes that a request has of the memory for requests, until it is taken or given up.
#[derive(Debug)]
pub(super) struct Charge {
    share: Share,
    bytes: usize,
    /// Its number among those that wait for memory or have waited.
    number: Option<u64>,
}

impl Charge {
    /// Bytes that it has.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `bytes` bytes more; `false` if it has to wait for them.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let Share { memory, own } = &self.share;
        let all = memory.all.held.fetch_add(bytes, Ordering::Relaxed);
        let before = own.held.fetch_add(bytes, Ordering::Relaxed);
        let shared_out = memory.bytes - memory.bytes / 4;
        let is_within = before.saturating_add(bytes) <= shared_out.saturating_sub(all);
        let fits = all.saturating_add(bytes) <= memory.bytes;
        if !is_within && !self.may_exceed(fits) {
            self.give_back(bytes);
            return false;
        }
        self.bytes += bytes;
        true
    }

    /// Whether no other has waited longer: of its region, if it fits, and else of all. It waits
    /// from here on.
    #[cold]
    fn may_exceed(&mut self, fits: bool) -> bool {
        let Share { memory, own } = &self.share;
        let number = *self.number.get_or_insert_with(|| {
            let mut all = lock(&memory.all.starved);
            let number = memory.next_starved.fetch_add(1, Ordering::Relaxed);
            all.push_back(number);
            lock(&own.starved).push_back(number);
            number
        });
        fits && lock(&own.starved).front() == Some(&number)
            || lock(&memory.all.starved).front() == Some(&number)
    }

    fn give_back(&self, bytes: usize) {
        for account in [&self.share.memory.all, &self.share.own] {
            account.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.bytes);
        if let Some(number) = self.number {
            for account in [&self.share.memory.all, &self.share.own] {
                lock(&account.starved).retain(|other| *other != number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn share(memory: &Arc<RequestMemory>, region: &str) -> Share {
        memory.share(&RegionName::new(region).unwrap())
    }

    /// Charges of a mebibyte each until one has to wait, which is the last.
    fn fill(share: &Share) -> Vec<Charge> {
        let mut charges = Vec::new();
        loop {
            let mut charge = share.charge();
            let grew = (0..16).all(|_| charge.grow(MIB / 16));
            charges.push(charge);
            if !grew {
                return charges;
            }
        }
    }

    #[test]
    fn requests_to_one_region_leave_memory_to_those_to_others() {
        let memory = RequestMemory::new(16 * MIB);
        let first = share(&memory, "first");
        // Six by its share, one that has waited longest, and one that waits.
        assert_eq!(fill(&first).len(), 8, "and everything goes back");
        assert_eq!(memory.all.held.load(Ordering::Relaxed), 0);
        let regions: Vec<Share> = (0..12).map(|i| share(&memory, &format!("t{i}"))).collect();
        let held: Vec<Vec<Charge>> = regions.iter().map(fill).collect();
        let whole = held.iter().map(|charges| charges.iter().filter(|c| c.bytes == MIB).count());
        let whole: Vec<usize> = whole.collect();
        assert_eq!(whole[0], 7);
        assert!(whole[..5].iter().all(|whole| *whole >= 1), "{whole:?}");
        assert!(memory.all.held.load(Ordering::Relaxed) <= 16 * MIB);
        drop(held);
        assert_eq!(memory.all.held.load(Ordering::Relaxed), 0);
        assert!(lock(&memory.all.starved).is_empty());
    }

    #[test]
    fn whoever_has_waited_longest_gets_on_however_long_its_request() {
        let memory = RequestMemory::new(MIB);
        let own = share(&memory, "");
        let (mut first, mut second) = (own.charge(), own.charge());
        assert!(first.grow(MIB / 4) && second.grow(MIB / 4));
        assert!(second.grow(4 * MIB) && !first.grow(MIB) && second.grow(4 * MIB), "one at a time");
        drop(second);
        assert!(first.grow(MIB));
    }

    #[test]
    fn regions_without_clients_are_forgotten() {
        let memory = RequestMemory::new(MIB);
        for i in 0..100 {
            share(&memory, &format!("t{i}"));
        }
        assert_eq!(memory.regions.lock().unwrap().len(), 1);
    }
}
