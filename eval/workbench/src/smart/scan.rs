//! Scans: what copies know of the leaves from a key on, a READ for each, many with one doorbell.
//!
//! A copy that is old may not know a leaf that was added. So the header of every node whose copy is used is READ with what the copy
//! leads to; the node is READ whole if it is not what it was. Nothing above a node matters to it: all keys that begin
//! with the bytes that lead to it are below it for good.

use std::rc::Rc;

use super::layout::{
    HEAD, HEADER_BYTES, LEAF, Node, Slot, byte_at, leaf_bytes, node_bytes, prefix, read_words,
};
use super::{Smart, Task};
use crate::bench::Operation;
use crate::words::{Address, Landed, Next, Turn};

/// A scan under way.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    /// What is known of the wanted keys, in their order; what they are is found from the front on.
    entries: Vec<Entry>,
    /// The keys from this one on are not among the entries; `None` if there are none.
    next: Option<u64>,
    wanted: usize,
}

/// Something with the keys from `least` on, as far as it has any.
#[derive(Clone, Debug)]
struct Entry {
    least: u64,
    what: What,
    landed: Option<Landed>,
}

#[derive(Clone, Debug)]
enum What {
    Record(u64, u64),
    Leaf(Address),
    /// A node with so many slots.
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
    fn new(least: u64, what: What) -> Self {
        Self { least, what, landed: None }
    }

    /// What a slot leads to.
    fn of(slot: Slot, least: u64) -> Self {
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
fn children(words: Rc<[u64]>, least: u64) -> Entry {
    let node = Node(&words);
    let first = match prefix(least, node.depth()) {
        same if same == node.prefix() => u16::from(byte_at(least, node.depth())),
        after if after > node.prefix() => 256,
        _ => 0,
    };
    Entry::new(least, What::Rest(words, first))
}

impl Smart {
    pub(super) fn begin_scan(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        if let Operation::Scan { key, count } = turn.operation {
            let scan = &mut task.scan;
            (scan.next, scan.wanted) = (Some(key), count as usize);
            scan.entries.clear();
        }
        self.ask_scan(task, turn)
    }

    /// Takes what has landed, and asks for more.
    pub(super) fn scan_on(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let mut entries = std::mem::take(&mut task.scan.entries).into_iter();
        let mut known = Vec::new();
        while let Some(entry) = entries.next() {
            let Some(landed) = entry.landed else {
                known.push(entry);
                continue;
            };
            let words = turn.landed.words(landed);
            match entry.what {
                What::Root if Slot(words[0]).is_used() => known.push(Entry::of(Slot(words[0]), entry.least)),
                What::Leaf(_) if words[1] >= entry.least => {
                    known.push(Entry::new(words[1], What::Record(words[1], words[2])));
                }
                What::Node(at, _) if Node(words).slots() > words.len() - HEAD => {
                    known.push(Entry::new(entry.least, What::Node(at, Node(words).slots())));
                }
                What::Node(at, _) => {
                    let words = self.caches[turn.compute].keep(at, words);
                    known.push(children(words, entry.least));
                }
                What::Copy(at, copy) if *copy != *words => {
                    self.caches[turn.compute].drop(Node(&copy));
                    known.push(Entry::new(entry.least, What::Node(at, copy.len() - HEAD)));
                    skip(&mut entries);
                }
                _ => {}
            }
        }
        task.scan.entries = known;
        self.ask_scan(task, turn)
    }

    /// Asks for what is not known of the first wanted keys.
    fn ask_scan(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let Scanning { entries, next, wanted } = &mut task.scan;
        let mut left = std::mem::take(entries);
        left.reverse();
        // Keys that there are at least among the entries so far, and whether any is still to come.
        let (mut keys, mut asks) = (0, false);
        while keys < *wanted {
            let Some(mut entry) = left.pop().or_else(|| self.first_from(next, turn)) else { break };
            match entry.what {
                What::Record(..) => keys += 1,
                What::End => {}
                What::Rest(words, from) => {
                    if let Some(slot) = Node(&words).first_from(from) {
                        let after = u16::from(slot.byte()) + 1;
                        left.push(Entry::new(entry.least, What::Rest(words, after)));
                        left.push(Entry::of(slot, entry.least));
                    }
                    continue;
                }
                What::Leaf(at) => {
                    keys += 1;
                    entry.landed = Some(turn.trip.read(at, LEAF, leaf_bytes(self.sizes)));
                }
                What::Root => {
                    keys = *wanted;
                    entry.landed = Some(turn.trip.read(self.root, 1, 8));
                }
                What::Node(at, slots) => match self.copy(at, turn) {
                    Some(copy) => {
                        left.push(Entry::new(entry.least, What::End));
                        left.push(children(Rc::clone(&copy), entry.least));
                        let landed = read_words(at, copy.len() - HEAD, HEADER_BYTES, turn);
                        (entry.landed, entry.what) = (Some(landed), What::Copy(at, copy));
                    }
                    None => {
                        // No node leads to fewer than two.
                        keys += 2;
                        entry.landed = Some(read_words(at, slots, node_bytes(slots), turn));
                    }
                },
                // It has landed.
                What::Copy(..) => continue,
            }
            asks |= entry.landed.is_some();
            entries.push(entry);
        }
        if !asks {
            let records = entries.drain(..).filter_map(|entry| match entry.what {
                What::Record(key, value) => Some((key, value)),
                _ => None,
            });
            return Next::Done(crate::bench::Answer::Records(records.collect()));
        }
        // What copies lead to beyond the wanted keys ends with them all the same.
        left.reverse();
        entries.append(&mut left);
        Next::Trip
    }

    /// The copy of a node.
    fn copy(&self, at: Address, turn: &Turn<'_>) -> Option<Rc<[u64]>> {
        // Where a node lies and which bytes lead to it never change.
        let node = Node(turn.memory.words(at, HEAD));
        self.caches[turn.compute].of(node).map(|copy| Rc::clone(&copy.words))
    }

    /// What begins with the keys that are not among the entries: the node with the most bytes that there is a copy of, or the root.
    fn first_from(&self, next: &mut Option<u64>, turn: &Turn<'_>) -> Option<Entry> {
        let least = next.take()?;
        let Some(copy) = self.caches[turn.compute].deepest(least) else {
            return Some(Entry::new(least, What::Root));
        };
        let node = copy.node();
        let below = u64::MAX.checked_shr(8 * node.depth()).unwrap_or(0);
        *next = (node.prefix() | below).checked_add(1);
        Some(Entry::new(least, What::Node(copy.at, node.slots())))
    }
}

/// Passes over what a copy leads to.
fn skip(entries: &mut impl Iterator<Item = Entry>) {
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
