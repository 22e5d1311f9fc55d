//! Room in a region.

/// Hands out a region's bytes from its start towards its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocator {
    next: u64,
    end: u64,
}

/// The region has no room for so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Allocator {
    /// Hands out `start..end`; both are multiples of eight.
    pub(crate) fn new(start: u64, end: u64) -> Self {
        Self { next: start, end: end & !7 }
    }

    /// The offset of `len` fresh bytes, a multiple of eight.
    pub(crate) fn allocate(&mut self, len: usize) -> Result<u64, Exhausted> {
        let offset = self.next;
        let len = (len as u64).checked_next_multiple_of(8).ok_or(Exhausted)?;
        let next = offset.checked_add(len).filter(|next| *next <= self.end).ok_or(Exhausted)?;
        self.next = next;
        Ok(offset)
    }

    /// End of the bytes handed out.
    pub(crate) fn used(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_apart_and_inside() {
        let mut a = Allocator::new(4096, 4096 + 64);
        assert_eq!(a.allocate(1), Ok(4096));
        assert_eq!(a.allocate(9), Ok(4104));
        assert_eq!(a.allocate(41), Err(Exhausted));
        assert_eq!(a.allocate(40), Ok(4120));
        assert_eq!(a.allocate(usize::MAX), Err(Exhausted));
        assert_eq!(a.used(), 4160);
    }
}
