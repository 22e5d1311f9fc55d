//! A scan's knowledge of the leaves from a key on.

use std::rc::Rc;

use super::layout::{Node, Slot, byte_at, prefix};
use crate::words::{Address, Landed};

/// A scan under way.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    /// What is known of the wanted keys, in their order; what they are is found from the front on.
    pub(super) entries: Vec<Entry>,
    /// The keys from this one on are not among the entries; `None` if there are none.
    pub(super) next: Option<u64>,
    pub(super) wanted: usize,
}

/// Something with the keys from `least` on, as far as it has any.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) least: u64,
    pub(super) what: What,
    pub(super) landed: Option<Landed>,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Record(u64, u64),
    Leaf(Address),
    /// A node with this many slots.
    Node(Address, usize),
    /// The slot that leads to the root.
    Root,
    /// A copy, up to the end of which the entries after it are what it leads to.
    Copy(Address, Rc<[u64]>),
    End,
    /// What a node leads to by this byte and those after it.
    Rest(Rc<[u64]>, u16),
}

impl Entry {
    pub(super) fn new(least: u64, what: What) -> Self {
        Self { least, what, landed: None }
    }

    /// What a slot leads to.
    pub(super) fn of(slot: Slot, least: u64) -> Self {
        Self::new(
            least,
            match slot.is_leaf() {
                true => What::Leaf(slot.at()),
                false => What::Node(slot.at(), slot.slots()),
            },
        )
    }
}

/// What a node leads to that may have keys from `least` on.
pub(super) fn children(words: Rc<[u64]>, least: u64) -> Entry {
    let node = Node(&words);
    let first = match prefix(least, node.depth()) {
        same if same == node.prefix() => u16::from(byte_at(least, node.depth())),
        after if after > node.prefix() => 256,
        _ => 0,
    };
    Entry::new(least, What::Rest(words, first))
}

/// Passes over what a copy leads to.
pub(super) fn skip(entries: &mut impl Iterator<Item = Entry>) {
    let mut depth = 1;
    while depth > 0
        && let Some(entry) = entries.next()
    {
        match entry.what {
            What::Copy(..) => depth += 1,
            What::End => depth -= 1,
            _ => {}
        }
    }
}
