//! The records nearest to keys: any number of keys in the same doorbell batches.

use std::borrow::Borrow;

use fpcache_fabric::{Batch, Endpoint, REGION};

use super::Side;
use super::in_place::{GroupInPlace, OneInPlace};
use super::scratch::{KEPT_KEYS, KEPT_SEEKS, NearestScratch, Neighbour};
use super::seek::{Doorbell, FoundValue, SearchContext, SearchEnd, Seek};
use super::short::{self, NearestRecord};
use crate::key_space::KeySpace;
use crate::read::external::clear;
use crate::read::segment_search::PendingPages;
use crate::read::{Cost, MAX_ATTEMPTS, Operation, ReadError, Step, drive_while};
use crate::table_view::TableView;

/// Finds the records nearest to a group of keys, as [`Nearest`] does; the answers are
/// [`NearestScratch::answers`]. `goes_on` is asked before each round trip but the first, of how
/// many there were, whether to wait for more.
///
/// Over mapped memory a round trip is a wait for memory, and most keys are found in some hundred
/// instructions where they lie: those of a word each, in records of one length, that have a
/// neighbour in their segment.
///
/// # Errors
/// [`ReadError`]; [`Unfinished`](ReadError::Unfinished) where `goes_on` said no.
/// [`NearestScratch::answered`] says which keys have their answers all the same.
#[inline]
pub fn find_nearest<'k, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    view: &TableView<K>,
    scratch: &mut NearestScratch<K>,
    (side, keys): (Side, impl IntoIterator<Item = &'k K::Key>),
    goes_on: impl FnMut(u32) -> bool,
) -> Result<(), ReadError> {
    scratch.clear();
    find_nearest_again(endpoint, view, scratch, (side, keys), goes_on)
}

/// As [`find_nearest`], of those of the keys that have no answers among the buffers: of all of
/// them, if these have none.
///
/// # Errors
/// As for [`find_nearest`].
#[inline]
pub fn find_nearest_again<'k, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    view: &TableView<K>,
    scratch: &mut NearestScratch<K>,
    (side, keys): (Side, impl IntoIterator<Item = &'k K::Key>),
    goes_on: impl FnMut(u32) -> bool,
) -> Result<(), ReadError> {
    let keys = keys.into_iter();
    match endpoint.in_place(REGION)? {
        Some(look) if scratch.answers.is_empty() && short::is_there(view) => {
            let matcher = scratch.matcher;
            matcher.run(GroupInPlace { look, view, scratch, side, keys })?;
            if scratch.keys.is_empty() {
                return Ok(());
            }
        }
        _ => scratch.postpone_unanswered(keys),
    }
    let is_guarded = endpoint.guards();
    drive_while(endpoint, &mut Nearest::of_postponed(view, scratch, side, is_guarded), goes_on)
}

/// Finds the record nearest to one key and hands it to `take`, with what it cost. As
/// [`find_nearest`].
///
/// # Errors
/// As for [`find_nearest`].
#[inline]
pub fn find_nearest_to<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    view: &TableView<K>,
    scratch: &mut NearestScratch<K>,
    (side, key): (Side, &K::Key),
    goes_on: impl FnMut(u32) -> bool,
    take: impl FnOnce(Option<Neighbour<'_, K>>, Cost) -> R,
) -> Result<R, ReadError> {
    if let Some(look) = endpoint.in_place(REGION)?.filter(|_| short::is_there(view)) {
        let buffers = &mut scratch.short;
        if let Some(found) = scratch.matcher.run(OneInPlace { look, view, buffers, side, key })?
            && let Some((key, value)) = scratch.short.record::<K>(&found)
        {
            let NearestRecord { version, cost, .. } = found;
            return Ok(take(Some(Neighbour { key: key.borrow(), version, value }), cost));
        }
    }
    scratch.clear();
    scratch.postpone(key);
    let is_guarded = endpoint.guards();
    drive_while(endpoint, &mut Nearest::of_postponed(view, scratch, side, is_guarded), goes_on)?;
    let (found, cost) = scratch.answers().next().ok_or(ReadError::Stale)?;
    let taken = take(found, cost);
    scratch.clear();
    Ok(taken)
}

/// Finds, for each key of a group, the record with the greatest key not above it, or with the least
/// key not below it. Each answer was the nearest record at one instant of the call; no two need
/// have been so at the same.
///
/// # Cost
/// One round trip, and the slots of the key's window with eight more: 27 for uniform keys, 76 at
/// most at an ε of 32, in two READs at a segment's edge. One more round trip, with the same bytes,
/// where one of them was written to since its segment was loaded: the slots are read twice to prove
/// that they were all so at one instant, and again for as long as they change. One more in a few
/// cases in a thousand, where the nearest record lies further off, and some where many records in a
/// row were deleted; one for a page of the directory that is not here; one for an external value.
/// The keys of a group share their round trips, for up to 64 MiB of slots and values at a time:
/// where many keys lie before a long run of slots that were emptied, some wait until others have
/// done.
#[derive(Debug)]
pub struct Nearest<'a, K: KeySpace> {
    rule: SearchContext<'a, K>,
    scratch: &'a mut NearestScratch<K>,
    is_checked: bool,
    /// Whether some key's neighbours lie in a segment that was replaced.
    is_stale: bool,
}

impl<'a, K: KeySpace> Nearest<'a, K> {
    /// A search on one `side` of `keys`. `is_guarded` says whether the endpoint
    /// [guards](fpcache_fabric::Endpoint::guards) READs.
    #[inline]
    pub fn new<'k>(
        view: &'a TableView<K>,
        scratch: &'a mut NearestScratch<K>,
        side: Side,
        keys: impl IntoIterator<Item = &'k K::Key>,
        is_guarded: bool,
    ) -> Self {
        scratch.clear();
        Self::again(view, scratch, side, keys, is_guarded)
    }

    /// A search for those of the keys that have no answers among the buffers.
    pub fn again<'k>(
        view: &'a TableView<K>,
        scratch: &'a mut NearestScratch<K>,
        side: Side,
        keys: impl IntoIterator<Item = &'k K::Key>,
        is_guarded: bool,
    ) -> Self {
        scratch.postpone_unanswered(keys.into_iter());
        Self::of_postponed(view, scratch, side, is_guarded)
    }

    /// The same search, which gives up where it has read so often what was being written:
    /// [`NearestScratch::answered`] says of which keys there are answers all the same.
    #[must_use]
    pub fn trying(mut self, attempts: u32) -> Self {
        self.rule.most_attempts = attempts;
        self
    }

    /// A search of the keys that were put off.
    fn of_postponed(
        view: &'a TableView<K>,
        scratch: &'a mut NearestScratch<K>,
        side: Side,
        is_guarded: bool,
    ) -> Self {
        let NearestScratch { keys, seeks, .. } = &mut *scratch;
        seeks.resize_with(keys.len().max(seeks.len()), Seek::default);
        // Also where a search before was never dropped.
        seeks[..keys.len()].iter_mut().for_each(Seek::clear);
        scratch.batch.clear();
        scratch.coming.clear();
        let is_guarded = is_guarded && view.guards_slots();
        let rule = SearchContext { view, side, is_guarded, most_attempts: MAX_ATTEMPTS };
        Self { rule, scratch, is_checked: false, is_stale: false }
    }

    /// Takes what has come for all keys, also where that of one is no answer.
    fn take(&mut self) -> Result<(), ReadError> {
        let mut contended = Ok(());
        let NearestScratch { batch, coming, seeks, keys, arena, answers, values, .. } = &mut *self.scratch;
        for (seek, (place, wanted)) in seeks.iter_mut().zip(&*keys) {
            if seek.is_done() {
                continue;
            }
            let ended = match seek.take(K::kept(wanted, arena), &self.rule, (batch, coming)) {
                Ok(Some(ended)) => ended,
                Ok(None) => continue,
                Err(error @ ReadError::Contended { .. }) => {
                    contended = Err(error);
                    continue;
                }
                Err(ReadError::Stale) => {
                    // Others have their answers all the same.
                    seek.end();
                    self.is_stale = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let answer = &mut answers[*place];
            (answer.cost, answer.is_answered) = (seek.cost, true);
            // What was found is there.
            if let SearchEnd::Record(version, from) = ended
                && let Some((key, value)) = seek.record(self.rule.view)
            {
                let value = match from {
                    FoundValue::InSlot => value,
                    FoundValue::Landed(landing, bytes) => &batch.bytes(landing)[..bytes],
                };
                let start = values.len();
                values.extend_from_slice(value);
                let key = K::keep(key.borrow(), arena);
                answer.found = Some((key, version, start..values.len()));
            }
            seek.forget_record();
        }
        clear(batch);
        coming.clear();
        contended
    }

    /// Asks for what all keys need, as far as that may be under way at once. Whether one still
    /// waits for something.
    fn ask(&mut self) -> bool {
        let NearestScratch { batch, coming, seeks, keys, arena, .. } = &mut *self.scratch;
        let seeks = &mut seeks[..keys.len()];
        let kept = seeks.iter().map(Seek::kept).sum();
        let mut doorbell = Doorbell { batch, coming, kept };
        let mut waits = false;
        for (seek, (_, wanted)) in seeks.iter_mut().zip(&*keys) {
            if !seek.is_done() {
                seek.ask(K::kept(wanted, arena), &self.rule, &mut doorbell);
                waits = true;
            }
        }
        waits
    }
}

impl<K: KeySpace> Drop for Nearest<'_, K> {
    /// Gives back what the searches hold, however the call has ended.
    fn drop(&mut self) {
        let NearestScratch { batch, coming, seeks, keys, .. } = &mut *self.scratch;
        clear(batch);
        *coming = PendingPages::default();
        seeks.truncate(KEPT_SEEKS);
        seeks.shrink_to(KEPT_SEEKS);
        seeks.iter_mut().take(keys.len()).for_each(Seek::clear);
        keys.clear();
        keys.shrink_to(KEPT_KEYS);
    }
}

impl<K: KeySpace> Operation for Nearest<'_, K> {
    #[inline]
    fn step(&mut self) -> Result<Step, ReadError> {
        if !self.is_checked && !self.scratch.batch.is_empty() {
            // Nothing is taken of a batch before it is known that it may be believed.
            self.is_checked = true;
            return Ok(Step::Check(self.rule.view.holds_until()));
        }
        self.is_checked = false;
        loop {
            self.take()?;
            if !self.ask() {
                return if self.is_stale { Err(ReadError::Stale) } else { Ok(Step::Done) };
            }
            // What needs no READ, such as that there is no segment further on, is taken at once.
            if !self.scratch.batch.is_empty() {
                return Ok(Step::Post);
            }
        }
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batch
    }
}
