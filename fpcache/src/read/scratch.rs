//! Buffers of lookups, kept between calls so that a lookup allocates nothing.

use fpcache_fabric::Batch;

use super::asking::Asking;
use super::engine::{Lists, Probe};
use super::outcome::{Outcome, Outcomes};
use super::records::Records;
use crate::cache::CacheHandle;
use crate::key_space::KeySpace;
use crate::matching::Matcher;

/// Buffers of a lookup of a group of keys.
#[derive(Debug)]
pub(super) struct GroupScratch<K: KeySpace> {
    /// The keys, and the bytes of those that have any.
    pub(super) keys: Vec<K::Kept>,
    pub(super) arena: Vec<u8>,
    pub(super) probes: Vec<Probe>,
    pub(super) answers: Outcomes,
    /// The batch that has come back and the one that is being prepared.
    pub(super) trips: [Batch; 2],
    /// What the memory node is asked.
    pub(super) question: Vec<u8>,
    /// How that went.
    pub(super) asking: Asking,
}

/// Buffers of lookups, kept between calls so that a lookup allocates nothing. One thread's.
#[derive(Debug)]
pub struct LookupScratch<K: KeySpace> {
    pub(super) matcher: Matcher,
    pub(super) lists: Lists<K>,
    /// The record of a lookup of a single key.
    pub(super) record: Records,
    pub(super) group: GroupScratch<K>,
    pub(super) handle: CacheHandle,
}

impl<K: KeySpace> LookupScratch<K> {
    /// Buffers whose lookups match with this kernel.
    pub fn new(matcher: Matcher) -> Self {
        Self {
            matcher,
            lists: Lists::new(),
            record: Records::default(),
            group: GroupScratch {
                keys: Vec::new(),
                arena: Vec::new(),
                probes: Vec::new(),
                answers: Outcomes::default(),
                trips: [Batch::new(), Batch::new()],
                question: Vec::new(),
                asking: Asking::default(),
            },
            handle: CacheHandle::default(),
        }
    }

    /// The same buffers, with what a thread needs to use a table's hot cache: see
    /// [`HotCache::handle`](crate::cache::HotCache::handle).
    #[must_use]
    pub fn with_cache_handle(self, handle: CacheHandle) -> Self {
        Self { handle, ..self }
    }

    /// Bytes of memory that are kept for slots, windows and values.
    pub fn kept_bytes(&self) -> usize {
        let Self { lists, record, group, .. } = self;
        lists.kept_bytes() + record.kept_bytes() + group.answers.records.kept_bytes()
    }

    /// Gives back the buffers if they are more than so many bytes: answers that were found are gone then.
    pub fn keep_at_most(&mut self, bytes: usize) {
        if self.kept_bytes() > bytes {
            let (handle, asking) = (std::mem::take(&mut self.handle), self.group.asking);
            *self = Self::new(self.matcher).with_cache_handle(handle);
            // Buffers are large where values are external, which is where most questions are in vain.
            self.group.asking = asking;
        }
    }

    /// The answers of the last finished lookup of a group, in the order of its keys, each with its value if the key is there.
    #[inline]
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = (&Outcome, Option<&[u8]>)> {
        self.group.answers.iter()
    }

    /// Whether each key has its answer after a lookup in doorbell batches, in their order: also after one that ended in
    /// [`Contended`](super::ReadError::Contended), which has what was not being written.
    pub fn answered(&self) -> impl Iterator<Item = bool> {
        // Answers that were found in another way came all at once.
        let probes = self.group.probes.iter().map(Probe::is_done).chain(std::iter::repeat(true));
        probes.take(self.group.answers.len())
    }

    /// Exchanges the answers of the last finished lookup of a group for `other`'s buffers, so that nothing is copied.
    #[inline]
    pub fn swap_outcomes(&mut self, other: &mut Outcomes) {
        std::mem::swap(&mut self.group.answers, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

    #[test]
    fn buffers_that_are_given_back_leave_what_was_learned_of_questions_in_vain() {
        let mut scratch = LookupScratch::<U64Keys>::new(Matcher::detect());
        (0..4).for_each(|_| scratch.group.asking.came_back(0, 64));
        let _ = scratch.group.answers.records.push(&[1; 1 << 16]);
        scratch.keep_at_most(1 << 15);
        assert!(scratch.kept_bytes() <= 1 << 15);
        assert!(!scratch.group.asking.may_ask());
    }
}
