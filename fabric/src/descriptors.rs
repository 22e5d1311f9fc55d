//! A budget of the descriptors that a process may have open.
//!
//! The operating system counts descriptors but reserves none: the one that comes too late gets
//! EMFILE, and it may be the one that most needs a descriptor. So clients and regions *take* their
//! descriptors here before they open them, and what a memory node needs for its files is never
//! given to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of descriptors, and how many of them are taken.
#[derive(Debug)]
pub struct Descriptors {
    most: usize,
    taken: AtomicUsize,
}

/// Descriptors that were taken; given back when this is dropped.
#[derive(Debug)]
pub struct TakenDescriptors {
    of: Arc<Descriptors>,
    count: usize,
}

impl Descriptors {
    /// `most` descriptors in all.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0) })
    }

    /// No limit: for memory nodes that leave their process's limit to others.
    #[must_use]
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// How many can yet be taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.most.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Takes `count` descriptors if at least `leaving` remain then; `None` if not.
    #[must_use]
    pub fn take(self: &Arc<Self>, count: usize, leaving: usize) -> Option<TakenDescriptors> {
        let most = self.most.checked_sub(leaving)?;
        let add = |taken: usize| taken.checked_add(count).filter(|all| *all <= most);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(TakenDescriptors { of: Arc::clone(self), count })
    }
}

impl Drop for TakenDescriptors {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_taken_until_none_are_left_and_come_back() {
        let all = Descriptors::new(10);
        let some = all.take(6, 0).expect("there are ten");
        assert!(all.take(3, 2).is_none() && all.take(5, 0).is_none() && all.take(1, 11).is_none());
        let more = all.take(2, 2).expect("two remain");
        assert_eq!(all.left(), 2);
        drop(some);
        assert_eq!(all.left(), 8);
        drop(more);
        assert_eq!(all.left(), 10);
        assert!(Descriptors::unlimited().take(1 << 40, 0).is_some());
    }
}
