//! Pages of separators that are byte strings of any length.
//!
//! They cost their entry eight bytes as a number does, as long as they differ within seven bytes
//! after what their block of eight begins with, and what front coding leaves of their tails where
//! they do not.

mod head;
mod search;
mod text;

use super::key::{DirectoryKey, SeparatorKind};
use super::leaf::{LEAF, Leaf};
use super::node::counted_bytes;
use super::separators::{PAGE, Separators, Steps};
use search::{PageSearch, Trail};
use std::sync::Arc;
use text::{Cursor, Packed, Text};

impl DirectoryKey for [u8] {}

impl SeparatorKind for [u8] {
    type Text = Text;
    /// As in a group: two steps of eight.
    type Block = Separators<Text>;
    type Trail = Trail;
    type Cursor = Cursor;

    const WIDTH: usize = PAGE;

    fn owned_bytes(separator: &Vec<u8>) -> usize {
        separator.capacity()
    }

    fn text_bytes(text: &Text) -> usize {
        counted_bytes(text.layout())
    }

    fn block_bytes(block: &Separators<Text>) -> usize {
        Self::text_bytes(&block.text)
    }

    fn block(all: &[Vec<u8>]) -> Separators<Text> {
        Self::pack(all)
    }

    fn pack(all: &[Vec<u8>]) -> Separators<Text> {
        let strings: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let Packed { heads, pivots, text } = Packed::new(&strings);
        Separators { heads, pivots, text }
    }

    fn first(separators: &Separators<Text>) -> &[u8] {
        separators.text.first()
    }

    fn separator(separators: &Separators<Text>, index: usize) -> Vec<u8> {
        let mut cursor = Cursor::default();
        cursor.seek(&separators.heads, &separators.text, index);
        cursor.string
    }

    #[inline(always)]
    fn enter(first: &[u8], key: &[u8]) -> Result<Trail, usize> {
        Trail::new(key, first)
    }

    #[inline(always)]
    fn search_block(block: &Separators<Text>, key: &[u8], trail: &mut Trail, steps: impl Steps) -> usize {
        Self::search_group(block, key, trail, steps)
    }

    #[inline(always)]
    fn search_group(separators: &Separators<Text>, key: &[u8], trail: &mut Trail, _: impl Steps) -> usize {
        let Separators { pivots, heads, text } = separators;
        PageSearch { pivots, slots: heads, text, key }.run(trail)
    }

    #[inline(always)]
    fn search_leaf<T>(leaf: &Leaf<Text, T>, key: &[u8], trail: &mut Trail, _: impl Steps) -> usize {
        let Leaf { pivots, entries, text } = leaf;
        PageSearch { pivots, slots: entries, text, key }.run(trail)
    }

    #[inline(always)]
    fn block_of_leaf<T>(leaf: &Leaf<Text, T>, key: &[u8], trail: Trail, _: impl Steps) -> usize {
        let Leaf { pivots, entries, text } = leaf;
        PageSearch { pivots, slots: entries, text, key }.block(trail)
    }

    #[inline(always)]
    fn shared(trail: Trail) -> usize {
        trail.shared
    }

    fn leaves<T: Clone>(entries: Vec<(Vec<u8>, T)>, most: usize) -> Vec<Leaf<Text, T>> {
        let mut strings: Vec<&[u8]> = Vec::with_capacity(entries.len());
        strings.extend(entries.iter().map(|(string, _)| string.as_slice()));
        leaves(&strings, entries.iter().map(|(_, entry)| entry), most).collect()
    }

    fn splice<T: Clone>(
        leaf: &mut Leaf<Text, T>,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        with: &[(Vec<u8>, T)],
    ) -> (usize, Vec<Leaf<Text, T>>) {
        let old = Strings::of([&*leaf]);
        let old_strings = old.slices();
        let first = start.map_or(0, |start| old_strings.partition_point(|string| *string < start));
        let after = end.map_or(old_strings.len(), |end| old_strings.partition_point(|string| *string < end));
        let after = after.max(first);
        let mut strings = old_strings[..first].to_vec();
        strings.extend(with.iter().map(|(string, _)| string.as_slice()));
        strings.extend_from_slice(&old_strings[after..]);
        let entries = Arc::clone(&leaf.entries);
        let kept = |range: std::ops::Range<usize>| entries[range].iter().map(|(_, entry)| entry);
        let all = kept(0..first).chain(with.iter().map(|(_, entry)| entry)).chain(kept(after..entries.len()));
        let mut new = leaves(&strings, all, LEAF);
        *leaf = new.next().unwrap_or_else(|| self::leaf(&[], Arc::new([])));
        let right = new.collect();
        (after - first, right)
    }

    fn join<T: Clone>(left: &Leaf<Text, T>, right: &Leaf<Text, T>) -> Vec<Leaf<Text, T>> {
        let all = left.entries.iter().chain(&*right.entries).map(|(_, entry)| entry);
        leaves(&Strings::of([left, right]).slices(), all, LEAF).collect()
    }

    fn seek<T>(leaf: &Leaf<Text, T>, at: usize, cursor: &mut Cursor) {
        cursor.seek(&leaf.entries, &leaf.text, at);
    }

    fn step<T>(leaf: &Leaf<Text, T>, at: usize, cursor: &mut Cursor) {
        cursor.step(&leaf.entries, &leaf.text, at);
    }

    fn current(cursor: &Cursor) -> &[u8] {
        &cursor.string
    }
}

/// The fewest leaves, of nearly equal size, of at most `most` entries each.
fn leaves<'a, T: Clone + 'a>(
    mut strings: &[&[u8]],
    mut entries: impl Iterator<Item = &'a T>,
    most: usize,
) -> impl Iterator<Item = Leaf<Text, T>> {
    let mut left = strings.len().div_ceil(most);
    std::iter::from_fn(move || {
        let (first, rest) = strings.split_at(strings.len().div_ceil(left.max(1)));
        (strings, left) = (rest, left.saturating_sub(1));
        let packed = (!first.is_empty()).then(|| Packed::new(first))?;
        let slots = packed.heads.iter().zip(entries.by_ref().take(first.len()));
        let slots: Vec<(u64, T)> = slots.map(|(head, entry)| (*head, entry.clone())).collect();
        Some(Leaf { pivots: packed.pivots, entries: slots.into(), text: packed.text })
    })
}

fn leaf<T>(strings: &[&[u8]], entries: Arc<[(u64, T)]>) -> Leaf<Text, T> {
    let Packed { pivots, text, .. } = Packed::new(strings);
    Leaf { pivots, entries, text }
}

/// Strings of leaves, one after the other.
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn of<'a, T: 'a>(leaves: impl IntoIterator<Item = &'a Leaf<Text, T>>) -> Self {
        let (mut bytes, mut ends) = (Vec::with_capacity(PAGE * 16), Vec::with_capacity(PAGE));
        let mut cursor = Cursor::default();
        for leaf in leaves {
            for at in 0..leaf.entries.len() {
                cursor.step(&leaf.entries, &leaf.text, at);
                bytes.extend_from_slice(&cursor.string);
                ends.push(bytes.len());
            }
        }
        Self { bytes, ends }
    }

    fn slices(&self) -> Vec<&[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end]).collect()
    }
}
