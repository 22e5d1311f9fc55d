//! Buffers of lookups, kept between calls so that a lookup allocates nothing.

use fpcache_fabric::Batch;

use super::ask_backoff::AskBackoff;
use super::engine::{Lists, Probe};
use super::external::clear;
use super::outcome::{Outcome, Outcomes};
use super::records::Records;
use crate::cache::CacheHandle;
use crate::key_space::KeySpace;
use crate::matching::Matcher;
use crate::plan::Plan;

/// Keys of a group, and bytes of these, for which there is room from one long group to the next.
const KEPT_KEYS: usize = 1 << 13;
const KEPT_ARENA: usize = 1 << 20;

/// Buffers of a lookup of a group of keys.
#[derive(Debug)]
pub(super) struct GroupScratch<K: KeySpace> {
    /// Answers that were there before this group's.
    pub(super) first: usize,
    /// The keys, and the bytes of those that have any.
    pub(super) keys: Vec<K::Kept>,
    pub(super) arena: Vec<u8>,
    pub(super) probes: Vec<Probe>,
    pub(super) answers: Outcomes,
    /// Whether a key may be there all the same that was found absent.
    pub(super) doubts_absence: bool,
    /// The batch that has come back and the one that is being prepared.
    pub(super) trips: [Batch; 2],
    /// The question to the memory node.
    pub(super) question: Vec<u8>,
    /// How that went.
    pub(super) asking: AskBackoff,
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
                first: 0,
                keys: Vec::new(),
                arena: Vec::new(),
                probes: Vec::new(),
                answers: Outcomes::default(),
                doubts_absence: false,
                trips: [Batch::new(), Batch::new()],
                question: Vec::new(),
                asking: AskBackoff::default(),
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

    /// Bytes of memory that are kept for keys, slots, windows and values, but for those that
    /// doorbell batches keep: some MiB at most, however long a group or a value was.
    pub fn kept_bytes(&self) -> usize {
        let Self { lists, record, group, .. } = self;
        let GroupScratch { keys, arena, probes, answers, .. } = group;
        let of_keys = keys.capacity() * size_of::<K::Kept>() + arena.capacity();
        let of_answers = probes.capacity() * size_of::<Probe>() + answers.kept_bytes();
        lists.kept_bytes() + record.kept_bytes() + of_keys + of_answers
    }

    /// Forgets the answers that were found, and does not keep the room for those of a long group.
    #[inline]
    pub fn clear_outcomes(&mut self) {
        self.group.answers.clear();
        self.group.answers.trim_buffers();
    }

    /// Gives back the buffers if they are more than `bytes` bytes: answers that were found are gone
    /// then.
    pub fn keep_at_most(&mut self, bytes: usize) {
        if self.kept_bytes() > bytes {
            let (handle, asking) = (std::mem::take(&mut self.handle), self.group.asking);
            *self = Self::new(self.matcher).with_cache_handle(handle);
            // Buffers are large where values are external, which is where most questions are in
            // vain.
            self.group.asking = asking;
        }
    }

    /// The answers of the last finished lookup of a group, in the order of its keys, each with its
    /// value if the key is there.
    #[inline]
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = (&Outcome, Option<&[u8]>)> {
        self.group.answers.iter()
    }

    /// Whether each key of the last group has its answer, in their order, after a lookup that ended
    /// in an error too: one in [`Contended`](super::ReadError::Contended) has what was not being
    /// written, and one in [`Stale`](super::ReadError::Stale) what was not in segments that have
    /// been replaced. Keys beyond those told of have none.
    pub fn answered(&self) -> impl Iterator<Item = bool> {
        let GroupScratch { first, probes, answers, doubts_absence, .. } = &self.group;
        // Where memory is looked at in place, there are probes only of groups in which some have
        // failed.
        let ended = probes.iter().map(Probe::has_answer).chain(std::iter::repeat(true));
        let outcomes = answers.outcomes.get(*first..).unwrap_or_default();
        let is_told =
            move |(outcome, ended): (&Outcome, bool)| ended && (outcome.version.is_some() || !doubts_absence);
        outcomes.iter().zip(ended).map(is_told)
    }

    /// Takes these answers for those of the last group, of which the keys in these places, in
    /// ascending order, have none.
    pub fn put_outcomes(&mut self, answers: &mut Outcomes, unanswered: &[usize]) {
        let group = &mut self.group;
        std::mem::swap(&mut group.answers, answers);
        (group.first, group.doubts_absence) = (0, false);
        group.probes.clear();
        unanswered.iter().for_each(|at| fail(&mut group.probes, *at));
    }

    /// Exchanges the answers of the last finished lookup of a group for `other`'s buffers, so that
    /// nothing is copied.
    #[inline]
    pub fn swap_outcomes(&mut self, other: &mut Outcomes) {
        std::mem::swap(&mut self.group.answers, other);
    }
}

impl<K: KeySpace> GroupScratch<K> {
    /// Begins a group of keys.
    #[inline]
    pub(super) fn begin<'k>(&mut self, keys: impl Iterator<Item = &'k K::Key>) {
        let Self { keys: kept, arena, probes, answers, trips, .. } = self;
        kept.clear();
        kept.shrink_to(KEPT_KEYS);
        arena.clear();
        arena.shrink_to(KEPT_ARENA);
        kept.extend(keys.map(|key| K::keep(key, arena)));
        probes.clear();
        probes.shrink_to(KEPT_KEYS);
        probes.resize(kept.len(), Probe::NEW);
        self.first = answers.len();
        answers.outcomes.resize(self.first + kept.len(), Outcome::begun(Plan::TwoStage));
        self.doubts_absence = false;
        trips.iter_mut().for_each(clear);
    }

    /// Begins a group of keys without probes: none has an answer, or all of those have one that are
    /// told of.
    #[inline(always)]
    pub(super) fn begin_in_place(&mut self) {
        self.probes.clear();
        self.first = self.answers.len();
        self.doubts_absence = false;
    }
}

/// Notes that the key in this place of its group has no answer, where those before it need no
/// probes.
#[cold]
pub(super) fn fail(probes: &mut Vec<Probe>, at: usize) {
    probes.resize(at, Probe::DONE);
    probes.push(Probe::FAILED);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

    #[test]
    fn buffers_that_are_given_back_leave_what_was_learned_of_questions_in_vain() {
        let mut scratch = LookupScratch::<U64Keys>::new(Matcher::detect());
        (0..4).for_each(|_| scratch.group.asking.note_answers(0, 64));
        let _ = scratch.group.answers.records.push(&[1; 1 << 16]);
        scratch.keep_at_most(1 << 15);
        assert!(scratch.kept_bytes() <= 1 << 15);
        assert!(!scratch.group.asking.may_ask());
    }
}
