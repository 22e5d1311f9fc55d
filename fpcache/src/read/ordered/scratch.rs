//! Buffers of searches for the nearest records, and their answers.

use std::ops::Range;

use fpcache_fabric::Batch;

use super::seek::Seek;
use super::short::ShortScratch;
use crate::key_space::KeySpace;
use crate::matching::Matcher;
use crate::read::Cost;
use crate::read::segment_search::PendingPages;

/// Keys for which there is room from one long group to the next, and bytes of these and of values.
pub(super) const KEPT_KEYS: usize = 1 << 12;
const KEPT_BYTES: usize = 1 << 20;
/// Searches whose buffers are kept from one group to the next, as many as a client's groups have: 16
/// MiB at most.
pub(super) const KEPT_SEEKS: usize = 1 << 12;

/// A record that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour<'a, K: KeySpace> {
    /// Its key.
    pub key: &'a K::Key,
    /// Its version.
    pub version: u32,
    /// Its value.
    pub value: &'a [u8],
}

/// How the search for one key ended: where the record that was found lies in the buffers, and what
/// it cost.
#[derive(Clone, Debug)]
pub(super) struct NearestResult<K: KeySpace> {
    pub(super) found: Option<(K::Kept, u32, Range<usize>)>,
    pub(super) cost: Cost,
    /// Whether it has ended with an answer, which may be that there is no such record.
    pub(super) is_answered: bool,
}

impl<K: KeySpace> NearestResult<K> {
    /// No answer yet.
    fn none() -> Self {
        Self { found: None, cost: Cost::default(), is_answered: false }
    }
}

/// Buffers of searches for the nearest records, kept between calls. One thread's.
///
/// Of what a search reads nothing is kept after it, however it ends, but its answers until they are
/// [cleared](Self::clear) or the next one begins. Buffers take 20 MiB at most from then on.
#[derive(Debug)]
pub struct NearestScratch<K: KeySpace> {
    pub(super) matcher: Matcher,
    pub(super) short: ShortScratch,
    pub(super) batch: Batch,
    pub(super) coming: PendingPages<K>,
    /// The keys that are looked for in doorbell batches, with their places among the answers, and a
    /// search for each; up to [`KEPT_SEEKS`] are kept from calls with more keys.
    pub(super) keys: Vec<(usize, K::Kept)>,
    pub(super) seeks: Vec<Seek<K>>,
    pub(super) answers: Vec<NearestResult<K>>,
    /// The bytes of keys that have any, and of values.
    pub(super) arena: Vec<u8>,
    pub(super) values: Vec<u8>,
}

impl<K: KeySpace> Default for NearestScratch<K> {
    fn default() -> Self {
        Self {
            matcher: Matcher::detect(),
            short: ShortScratch::default(),
            batch: Batch::new(),
            coming: PendingPages::default(),
            keys: Vec::new(),
            seeks: Vec::new(),
            answers: Vec::new(),
            arena: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<K: KeySpace> NearestScratch<K> {
    /// The answers of the last finished search of a group, in the order of its keys, and what each
    /// cost.
    pub fn answers(&self) -> impl ExactSizeIterator<Item = (Option<Neighbour<'_, K>>, Cost)> {
        self.answers.iter().map(|NearestResult { found, cost, .. }| {
            let neighbour = found.as_ref().map(|(key, version, value)| Neighbour {
                key: K::kept(key, &self.arena),
                version: *version,
                value: &self.values[value.clone()],
            });
            (neighbour, *cost)
        })
    }

    /// Whether each key has its answer, in their order, after a search that ended in an error too,
    /// such as [`Contended`](crate::read::ReadError::Contended) or
    /// [`Stale`](crate::read::ReadError::Stale). Keys beyond those told of have none.
    pub fn answered(&self) -> impl Iterator<Item = bool> {
        self.answers.iter().map(|answer| answer.is_answered)
    }

    /// Bytes of memory that are kept for keys and answers, but for those that doorbell batches and
    /// searches keep.
    pub fn kept_bytes(&self) -> usize {
        let of_keys = self.keys.capacity() * size_of::<(usize, K::Kept)>() + self.arena.capacity();
        let of_answers = self.answers.capacity() * size_of::<NearestResult<K>>() + self.values.capacity();
        of_keys + of_answers
    }

    /// Forgets the answers, and lets go of their memory, if that is much.
    #[inline]
    pub fn clear(&mut self) {
        self.keys.clear();
        self.keys.shrink_to(KEPT_KEYS);
        self.answers.clear();
        self.answers.shrink_to(KEPT_KEYS);
        self.arena.clear();
        self.arena.shrink_to(KEPT_BYTES);
        self.values.clear();
        self.values.shrink_to(KEPT_BYTES);
    }

    /// Takes it for found, at no cost, that there is no neighbour of those of this many keys that
    /// have no answers.
    pub fn answer_rest(&mut self, keys: usize) {
        self.answers.resize_with(keys, NearestResult::none);
        for answer in self.answers.iter_mut().filter(|answer| !answer.is_answered) {
            *answer = NearestResult { is_answered: true, ..NearestResult::none() };
        }
    }

    /// Leaves a key to doorbell batches.
    #[inline]
    pub(super) fn postpone(&mut self, key: &K::Key) {
        self.keys.push((self.answers.len(), K::keep(key, &mut self.arena)));
        self.answers.push(NearestResult::none());
    }

    /// Forgets the bytes of the keys that were looked for, of which each attempt adds some, and
    /// keeps those of the keys that were found.
    #[cold]
    fn forget_sought(&mut self) {
        let before = std::mem::take(&mut self.arena);
        for (key, ..) in self.answers.iter_mut().filter_map(|answer| answer.found.as_mut()) {
            *key = K::keep(K::kept(key, &before), &mut self.arena);
        }
    }

    /// Leaves those of a group's keys to doorbell batches that have no answers yet.
    pub(super) fn postpone_unanswered<'k>(&mut self, keys: impl Iterator<Item = &'k K::Key>) {
        self.keys.clear();
        if !self.answers.is_empty() {
            self.forget_sought();
        }
        for (place, key) in keys.enumerate() {
            match self.answers.get_mut(place) {
                None => self.postpone(key),
                Some(answer) if answer.is_answered => {}
                Some(answer) => {
                    *answer = NearestResult::none();
                    self.keys.push((place, K::keep(key, &mut self.arena)));
                }
            }
        }
    }
}
