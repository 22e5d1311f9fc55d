//! Scans: what copies know of the leaves from a key on, a READ for each, many with one doorbell.
//!
//! A copy that is old may not know a leaf that was added. So the header of every node whose copy is
//! used is READ with what the copy leads to; the node is READ whole if it is not what it was.
//! Nothing above a node matters to it: all keys that begin with the bytes that lead to it are below
//! it for good.

use std::rc::Rc;

use super::layout::{HEAD, HEADER_BYTES, LEAF, Node, Slot, leaf_bytes, node_bytes, read_words};
use super::scanning::{Entry, Scanning, What, children, skip};
use super::{Smart, Task};
use crate::bench::Operation;
use crate::words::{Address, Next, Turn};

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

    /// What begins with the keys that are not among the entries: the node with the most bytes that
    /// there is a copy of, or the root.
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
