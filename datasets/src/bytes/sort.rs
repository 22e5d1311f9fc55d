//! Sorting byte strings.

use super::arena::KeyArena;
use super::key::{number, shared};

/// Groups up to this size are sorted by comparing whole strings.
const SMALL: usize = 12;

/// A string as the sort sees it: the eight bytes after what its group shares, and after them how
/// much is left of the string, up to 9, and its index.
type Entry = (u64, u64);

const INDEX_BITS: u32 = 32;

/// The indices of the strings in ascending order, equal strings in the order of their indices.
/// `None` without memory, or for more than 2³² strings.
///
/// A multikey quicksort that takes eight bytes at a time (Bentley & Sedgewick, SODA 1997; the
/// cached bytes are those of Ng & Kakehi, IEICE 2007): a pass sorts by eight bytes, and each group
/// of strings that agree in them is sorted by the next eight. 16 bytes per string, and log n
/// comparisons of integers instead of strings per string and pass.
pub(crate) fn order(arena: &KeyArena) -> Option<Vec<u32>> {
    u32::try_from(arena.len()).ok()?;
    let mut entries: Vec<Entry> = Vec::new();
    entries.try_reserve_exact(arena.len()).ok()?;
    let depth = common_prefix(arena);
    entries.extend((0..arena.len()).map(|i| entry(arena, i as u64, depth)));
    // Strings of 4 KiB that agree in all their bytes would recurse too deeply: groups wait on a
    // list instead.
    let mut groups = vec![(0, entries.len(), depth)];
    while let Some((start, end, depth)) = groups.pop() {
        let group = &mut entries[start..end];
        if group.len() <= SMALL {
            group.sort_unstable_by(|&a, &b| {
                let tail = |entry| arena.get(index(entry)).get(depth..).unwrap_or_default();
                tail(a).cmp(tail(b)).then(index(a).cmp(&index(b)))
            });
            continue;
        }
        group.sort_unstable();
        let mut first = 0;
        while first < group.len() {
            let same = |&(head, low): &Entry| {
                (head, low >> INDEX_BITS) == (group[first].0, group[first].1 >> INDEX_BITS)
            };
            let last = first + group[first..].iter().take_while(|entry| same(entry)).count();
            // Equal strings are in order already; the others go on after these eight bytes.
            let goes_on = group[first].1 >> INDEX_BITS > 8;
            if goes_on && last - first > 1 {
                for slot in &mut group[first..last] {
                    *slot = entry(arena, slot.1 & u64::from(u32::MAX), depth + 8);
                }
                groups.push((start + first, start + last, depth + 8));
            }
            first = last;
        }
    }
    let mut order = Vec::new();
    order.try_reserve_exact(entries.len()).ok()?;
    order.extend(entries.into_iter().map(|(_, low)| low as u32));
    Some(order)
}

/// How many bytes all strings share.
fn common_prefix(arena: &KeyArena) -> usize {
    let Some(last) = arena.last() else { return 0 };
    arena.iter().fold(last.len(), |common, key| shared(&last[..common], key))
}

fn entry(arena: &KeyArena, index: u64, depth: usize) -> Entry {
    let tail = arena.get(index as usize).get(depth..).unwrap_or_default();
    (number(tail), (tail.len().min(9) as u64) << INDEX_BITS | index)
}

fn index(entry: Entry) -> usize {
    (entry.1 & u64::from(u32::MAX)) as usize
}

/// The distinct strings of two ascending arenas, each without duplicates, ascending. `None` without
/// memory.
pub(crate) fn merge(a: &KeyArena, b: &KeyArena) -> Option<KeyArena> {
    let mut merged = KeyArena::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let takes_a = j == b.len() || (i < a.len() && a.get(i) <= b.get(j));
        if takes_a && j < b.len() && a.get(i) == b.get(j) {
            j += 1;
        }
        let (from, next) = if takes_a { (a, &mut i) } else { (b, &mut j) };
        merged.try_push(from.get(*next)).ok()?;
        *next += 1;
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        // Few bytes and shared prefixes, so that ties, prefixes and zeros at the end meet.
        let tail = prop::collection::vec(prop::sample::select(vec![0u8, 0, 1, 255]), 0..20);
        let key = (prop::sample::select(vec![0usize, 7, 8, 9, 16, 31]), tail);
        let key = key.prop_map(|(prefix, tail)| [vec![b'p'; prefix], tail].concat());
        prop::collection::vec(key, 0..200)
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_slices_and_stable(keys in keys()) {
            let arena: KeyArena = keys.iter().collect();
            let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
            expected.sort_by_key(|&i| &keys[i as usize]);
            prop_assert_eq!(order(&arena).unwrap(), expected);
        }

        #[test]
        fn merging_gives_each_key_once(a in keys(), b in keys()) {
            let sorted = |keys: &[Vec<u8>]| -> KeyArena {
                keys.iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
            };
            let merged = merge(&sorted(&a), &sorted(&b)).unwrap();
            prop_assert_eq!(merged, sorted(&[a, b].concat()));
        }
    }

    #[test]
    fn long_equal_strings_do_not_recurse() {
        let arena: KeyArena = (0..100).map(|i| [vec![b'x'; 4_000], vec![b'0' + i % 7]].concat()).collect();
        let order = order(&arena).unwrap();
        assert!(order.windows(2).all(|pair| arena.get(pair[0] as usize) <= arena.get(pair[1] as usize)));
    }
}
