//! A bump allocator for the memory of a region.

use std::sync::Arc;

use crate::budget::Grant;

/// Hands out a region's bytes from its start towards the end that it can have.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    next: u64,
    grant: Arc<Grant>,
}

/// The region has no room for this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Allocator {
    /// Hands out what lies after `start`, a multiple of eight, as far as it is granted.
    pub(crate) fn new(start: u64, grant: Arc<Grant>) -> Self {
        Self { next: start, grant }
    }

    /// The offset of `len` fresh bytes, a multiple of eight.
    pub(crate) fn allocate(&mut self, len: usize) -> Result<u64, Exhausted> {
        let offset = self.next;
        let len = (len as u64).checked_next_multiple_of(8).ok_or(Exhausted)?;
        let next = offset.checked_add(len).ok_or(Exhausted)?;
        self.grant.cover(next).map_err(|_| Exhausted)?;
        self.next = next;
        Ok(offset)
    }

    /// End of the bytes handed out.
    pub(crate) fn used(&self) -> u64 {
        self.next
    }

    /// What of the region may be used.
    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_apart_and_inside() {
        let mut a = Allocator::new(4096, Grant::whole(4096 + 64));
        assert_eq!(a.allocate(1), Ok(4096));
        assert_eq!(a.allocate(9), Ok(4104));
        assert_eq!(a.allocate(41), Err(Exhausted));
        assert_eq!(a.allocate(40), Ok(4120));
        assert_eq!(a.allocate(usize::MAX), Err(Exhausted));
        assert_eq!(a.used(), 4160);
    }
}
