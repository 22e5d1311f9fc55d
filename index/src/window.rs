//! The slots in which a key may live.

/// An inclusive run of slots of one segment: every live key of the segment lies in its window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// First slot of the window.
    pub first: u32,
    /// Last slot of the window, itself included.
    pub last: u32,
}

impl Window {
    /// Number of slots; at least 1 for every window that [`crate::SegmentModel::window`] returns.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a model's window is never empty")]
    pub fn len(&self) -> u32 {
        (self.last + 1).saturating_sub(self.first)
    }

    /// Whether `slot` lies in the window.
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.first <= slot && slot <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_includes_both_ends() {
        let window = Window { first: 3, last: 5 };
        assert_eq!(window.len(), 3);
        assert!((3..=5).all(|slot| window.contains(slot)));
        assert!(!window.contains(2) && !window.contains(6));
    }
}
