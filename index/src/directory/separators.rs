//! The separators of a page, and the search in them.

use std::array;
use std::borrow::Borrow;
use std::mem::needs_drop;

/// Keys of one step of a search: as many `u64`s as a cache line holds.
pub(super) const BLOCK: usize = 8;

/// Most items of a page: as many as two steps tell apart.
pub(super) const PAGE: usize = BLOCK * BLOCK;

/// Keys that one step compares. The block before ruled out that the key lies below its first one.
pub(super) const STEP: usize = BLOCK - 1;

/// The first separator below each child of an inner page.
///
/// A search of plain keys compares with seven pivots, every eighth separator, and then with seven separators of one block:
/// two cache lines, and the same instructions whatever the key and the number of children, so that no jump depends on
/// either. This is one page of a static B+-tree with blocks of a cache line (the S+ tree of S. Slotin, "Algorithms for
/// Modern Hardware", 2022, "Static B-Trees").
///
/// Keys that own memory are searched by halves: comparing one is dear and follows a pointer of its own, and room that is
/// filled with copies would cost memory for each.
#[derive(Clone, Debug)]
pub(super) enum Separators<S> {
    /// Of plain keys. Room behind the last separator repeats it.
    Padded {
        /// Separators 8, 16, … 56. The tag before and these fill a cache line when keys are `u64`s.
        pivots: [S; STEP],
        /// Separators from 1 on.
        rest: [S; PAGE - 1],
        /// Separator 0, with which no search needs to compare.
        first: S,
    },
    /// Of keys that own memory, or of no children.
    Exact(Box<[S]>),
}

impl<S> Separators<S> {
    /// Separator 0.
    pub(super) fn first(&self) -> Option<&S> {
        match self {
            Self::Padded { first, .. } => Some(first),
            Self::Exact(all) => all.first(),
        }
    }

    /// Separators 1 and following of a page of `children`.
    pub(super) fn rest(&self, children: usize) -> &[S] {
        let (rest, room) = match self {
            Self::Padded { rest, .. } => (&rest[..], children.saturating_sub(1)),
            Self::Exact(all) => (all.get(1..).unwrap_or_default(), usize::MAX),
        };
        &rest[..room.min(rest.len())]
    }

    /// Bytes outside the page.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Padded { .. } => 0,
            Self::Exact(all) => size_of_val(&**all),
        }
    }
}

impl<S: Clone> Separators<S> {
    /// Of at most [`PAGE`] children.
    pub(super) fn of(all: Vec<S>) -> Self {
        let Some((first, last)) = all.first().zip(all.last()).filter(|_| !needs_drop::<S>()) else {
            return Self::Exact(all.into());
        };
        let at = |index: usize| all.get(index).unwrap_or(last).clone();
        Self::Padded {
            pivots: array::from_fn(|i| at(BLOCK * (i + 1))),
            rest: array::from_fn(|i| at(i + 1)),
            first: first.clone(),
        }
    }

    /// Changes one separator of a page of `children`.
    pub(super) fn set(&mut self, children: usize, index: usize, separator: &S) {
        let mut all: Vec<S> = self.first().into_iter().chain(self.rest(children)).cloned().collect();
        if let Some(old) = all.get_mut(index) {
            old.clone_from(separator);
        }
        *self = Self::of(all);
    }

    /// Index of the greatest separator at or below `key`, 0 if there is none. May lie behind the last child and then means
    /// that one.
    #[inline(always)]
    pub(super) fn position<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        S: Borrow<Q>,
    {
        match self {
            Self::Padded { pivots, rest, .. } => {
                let block = BLOCK * count_not_above(pivots, Borrow::borrow, key);
                let keys = rest[block..].first_chunk::<STEP>();
                block + keys.map_or(0, |keys| count_not_above(keys, Borrow::borrow, key))
            }
            Self::Exact(all) => all.partition_point(|s| s.borrow() <= key).saturating_sub(1),
        }
    }
}

/// How many of `items`, which ascend, have their key at or below `key`. Compares with all of them.
#[inline(always)]
pub(super) fn count_not_above<I, Q: Ord + ?Sized>(
    items: &[I; STEP],
    key_of: impl Fn(&I) -> &Q,
    key: &Q,
) -> usize {
    items.iter().map(|item| usize::from(key_of(item) <= key)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of children, every key at, between and beyond the separators.
    fn assert_positions<S: Clone + Borrow<u64>>(wrap: impl Fn(u64) -> S) {
        for children in 1..=PAGE {
            let separators = Separators::of((1..=children as u64).map(|i| wrap(10 * i)).collect());
            assert_eq!(separators.first().map(|s| *s.borrow()), Some(10));
            assert_eq!(separators.rest(children).len(), children - 1);
            for key in 0..10 * children as u64 + 20 {
                let position = separators.position(&key).min(children - 1);
                assert_eq!(position as u64, (key / 10).clamp(1, children as u64) - 1, "{children} {key}");
            }
        }
    }

    /// A key that owns memory.
    #[derive(Clone)]
    struct Boxed(Box<u64>);

    impl Borrow<u64> for Boxed {
        fn borrow(&self) -> &u64 {
            &self.0
        }
    }

    #[test]
    fn plain_keys_are_found_in_pages_of_every_size() {
        assert_positions(|key| key);
        assert!(matches!(Separators::of(vec![1, 2]), Separators::Padded { .. }));
    }

    #[test]
    fn keys_that_own_memory_are_found_in_pages_of_every_size() {
        assert_positions(|key| Boxed(Box::new(key)));
        assert!(matches!(Separators::of(vec![Boxed(Box::new(1))]), Separators::Exact(_)));
    }

    #[test]
    fn a_changed_separator_is_searched_for() {
        for children in [1, 2, 8, 9, 17, 63, 64] {
            for index in 0..children {
                let mut separators = Separators::of((1..=children as u64).map(|i| 10 * i).collect());
                separators.set(children, index, &(10 * index as u64 + 7));
                let before = separators.position(&(10 * index as u64 + 6)).min(children - 1);
                let at = separators.position(&(10 * index as u64 + 7)).min(children - 1);
                assert_eq!((before, at), (index.saturating_sub(1), index), "{children}");
                assert_eq!(separators.rest(children).len(), children - 1);
            }
        }
    }
}
