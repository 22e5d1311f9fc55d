//! Buffers of lookups, kept between calls so that a lookup allocates nothing.

use fpcache_fabric::{Batch, Landing};

use super::outcome::{Outcome, Outcomes};
use super::round::Trip;
use super::target::Target;
use crate::cache::Visitor;
use crate::key_space::KeySpace;
use crate::matching::Matcher;

/// Words of the longest window that is read the short way: 4 KiB.
const WINDOW_WORDS: usize = 512;
/// Words of the longest slot that is read the short way.
pub(super) const SLOT_WORDS: usize = 136;

/// What single lookups read into, aligned so that no vector store crosses a cache line: such stores are slow to read back.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Words {
    pub(super) window: [u64; WINDOW_WORDS],
    pub(super) slot: [u64; SLOT_WORDS],
}

/// Buffers of a lookup of a single key.
#[derive(Debug)]
pub(super) struct SingleScratch {
    pub(super) matcher: Matcher,
    pub(super) words: Box<Words>,
    /// For several candidates.
    pub(super) slots: Vec<u32>,
    pub(super) landings: Vec<Landing>,
    pub(super) batch: Batch,
    /// For a value outside its slot.
    pub(super) outside: Vec<u64>,
}

/// Buffers of a lookup of a group of keys.
#[derive(Debug)]
pub(super) struct GroupScratch<K: KeySpace> {
    /// The keys, and the bytes of those that have any.
    pub(super) keys: Vec<K::Kept>,
    pub(super) arena: Vec<u8>,
    pub(super) targets: Vec<Target>,
    /// Targets whose pages of the directory are not here: page and number of the target, ascending.
    pub(super) waiting: Vec<(u32, usize)>,
    pub(super) answers: Outcomes,
    pub(super) slots: Vec<u32>,
    /// The trip that has come back and the one that is being prepared.
    pub(super) trips: [Trip; 2],
}

/// Buffers of lookups, kept between calls so that a lookup allocates nothing. One thread's.
#[derive(Debug)]
pub struct LookupScratch<K: KeySpace> {
    pub(super) single: SingleScratch,
    pub(super) group: GroupScratch<K>,
    pub(super) visitor: Visitor,
}

impl<K: KeySpace> LookupScratch<K> {
    /// Buffers whose lookups match with this kernel.
    pub fn new(matcher: Matcher) -> Self {
        let words = Box::new(Words { window: [0; WINDOW_WORDS], slot: [0; SLOT_WORDS] });
        Self {
            single: SingleScratch {
                matcher,
                words,
                slots: Vec::new(),
                landings: Vec::new(),
                batch: Batch::new(),
                outside: Vec::new(),
            },
            group: GroupScratch {
                keys: Vec::new(),
                arena: Vec::new(),
                targets: Vec::new(),
                waiting: Vec::new(),
                answers: Outcomes::default(),
                slots: Vec::new(),
                trips: [Trip::default(), Trip::default()],
            },
            visitor: Visitor::default(),
        }
    }

    /// The same buffers, with what a thread needs to use a table's hot cache: see
    /// [`HotCache::visitor`](crate::cache::HotCache::visitor).
    #[must_use]
    pub fn with_visitor(self, visitor: Visitor) -> Self {
        Self { visitor, ..self }
    }

    /// The answers of the last finished [`Lookup`](super::Lookup), in the order of its keys, each with its value if the key is there.
    #[inline]
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = (&Outcome, Option<&[u8]>)> {
        self.group.answers.iter()
    }

    /// Exchanges the answers of the last finished [`Lookup`](super::Lookup) for `other`'s buffers, so that nothing is copied.
    #[inline]
    pub fn swap_outcomes(&mut self, other: &mut Outcomes) {
        std::mem::swap(&mut self.group.answers, other);
    }
}
