//! Buffers of lookups, kept between calls so that a lookup allocates nothing.

use fpcache_fabric::{Batch, Landing};

use super::outcome::{Outcome, Outcomes};
use super::target::Target;
use crate::key_space::KeySpace;
use crate::matching::Matcher;

/// Words of the longest window that is read the short way: 4 KiB.
const WINDOW_WORDS: usize = 512;
/// Words of the longest slot that is read the short way.
pub(super) const SLOT_WORDS: usize = 136;

/// What single lookups read into, aligned so that no vector store crosses a cache line: such stores are slow to read back.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct SingleBuffer {
    pub(super) window: [u64; WINDOW_WORDS],
    pub(super) slot: [u64; SLOT_WORDS],
}

impl Default for SingleBuffer {
    fn default() -> Self {
        Self { window: [0; WINDOW_WORDS], slot: [0; SLOT_WORDS] }
    }
}

/// Buffers of lookups, kept between calls so that a lookup allocates nothing.
#[derive(Debug)]
pub struct LookupScratch<K: KeySpace> {
    pub(super) matcher: Matcher,
    /// What a lookup of a single key reads into.
    pub(super) words: Box<SingleBuffer>,
    pub(super) targets: Vec<Target<K>>,
    pub(super) answers: Outcomes,
    /// Where each target's window arrives.
    pub(super) windows: Vec<Landing>,
    /// Targets whose candidates' slots were asked for, a row per slot.
    pub(super) candidates: Vec<(usize, Landing)>,
    /// Targets whose windows are read as a range after all.
    pub(super) ranges: Vec<(usize, Landing)>,
    pub(super) slots: Vec<u32>,
    pub(super) batches: [Batch; 2],
}

impl<K: KeySpace> LookupScratch<K> {
    /// Buffers whose lookups match with this kernel.
    pub fn new(matcher: Matcher) -> Self {
        Self {
            matcher,
            words: Box::default(),
            targets: Vec::new(),
            answers: Outcomes::default(),
            windows: Vec::new(),
            candidates: Vec::new(),
            ranges: Vec::new(),
            slots: Vec::new(),
            batches: [Batch::new(), Batch::new()],
        }
    }

    /// The answers of the last finished [`Lookup`](super::Lookup), in the order of its keys, each with its value if the key is there.
    #[inline]
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = (&Outcome, Option<&[u8]>)> {
        self.answers.iter()
    }

    /// Exchanges the answers of the last finished [`Lookup`](super::Lookup) for `other`'s buffers, so that nothing is copied.
    #[inline]
    pub fn swap_outcomes(&mut self, other: &mut Outcomes) {
        std::mem::swap(&mut self.answers, other);
    }
}
