//! Children by their separators: which one a key belongs to, and what a change of one separator
//! takes.

use super::key::DirectoryKey;
use super::separators::{ScalarSteps, Separators};
use std::borrow::Borrow;

/// Changes one separator of a page of `children`.
pub(super) fn set<K: DirectoryKey + ?Sized>(
    separators: &mut Separators<K::Text>,
    children: usize,
    index: usize,
    separator: K::Owned,
) {
    let mut all: Vec<K::Owned> = (0..children).map(|child| K::separator(separators, child)).collect();
    if let Some(old) = all.get_mut(index) {
        *old = separator;
    }
    *separators = K::pack(&all);
}

/// Index of the greatest separator at or below `key`, 0 if all are above. May lie after the last
/// child and then means that one.
pub(super) fn position<K: DirectoryKey + ?Sized>(separators: &Separators<K::Text>, key: &K) -> usize {
    K::enter(K::first(separators), key)
        .map_or(0, |mut trail| K::search_group(separators, key, &mut trail, ScalarSteps))
}

/// Index of the greatest separator below `key`, 0 if none is below.
pub(super) fn position_below<K: DirectoryKey + ?Sized>(
    separators: &Separators<K::Text>,
    children: usize,
    key: &K,
) -> usize {
    let at = position(separators, key).min(children.saturating_sub(1));
    if at > 0 && K::separator(separators, at).borrow() == key { at - 1 } else { at }
}

#[cfg(test)]
mod tests {
    use super::super::key::SeparatorKind;
    use super::super::separators::PAGE;
    use super::*;

    /// Every number of children, every key at, between and beyond the separators.
    fn assert_positions<K: DirectoryKey + ?Sized>(wrap: impl Fn(u64) -> K::Owned) {
        for children in 1..=PAGE {
            let all: Vec<K::Owned> = (1..=children as u64).map(|i| wrap(10 * i)).collect();
            let separators = K::pack(&all);
            assert!(all.iter().enumerate().all(|(i, separator)| K::separator(&separators, i) == *separator));
            for key in 0..10 * children as u64 + 20 {
                let expected = (key / 10).clamp(1, children as u64) - 1;
                let at = position::<K>(&separators, wrap(key).borrow()).min(children - 1);
                assert_eq!(at as u64, expected, "{children} {key}");
                let expected = (key.saturating_sub(1) / 10).clamp(1, children as u64) - 1;
                let below = position_below::<K>(&separators, children, wrap(key).borrow());
                assert_eq!(below as u64, expected, "{children} {key}");
            }
        }
    }

    #[test]
    fn numbers_are_found_in_pages_of_every_size() {
        assert_positions::<u64>(|key| key);
    }

    #[test]
    fn byte_strings_are_found_in_pages_of_every_size() {
        assert_positions::<[u8]>(|key| key.to_be_bytes().to_vec());
        assert_positions::<[u8]>(|key| format!("{key:06}").into_bytes());
        assert_positions::<[u8]>(|key| {
            format!("{:04} a long way to {}", key / 40, key % 40 + 10).into_bytes()
        });
        assert_positions::<[u8]>(|key| vec![0; key as usize]);
    }

    #[test]
    fn a_changed_separator_is_searched_for() {
        for children in [1, 2, 8, 9, 17, 63, 64] {
            for index in 0..children {
                let all: Vec<u64> = (1..=children as u64).map(|i| 10 * i).collect();
                let mut separators = <u64 as SeparatorKind>::pack(&all);
                set::<u64>(&mut separators, children, index, 10 * index as u64 + 7);
                let before = position(&separators, &(10 * index as u64 + 6)).min(children - 1);
                let at = position(&separators, &(10 * index as u64 + 7)).min(children - 1);
                assert_eq!((before, at), (index.saturating_sub(1), index), "{children}");
            }
        }
    }
}
