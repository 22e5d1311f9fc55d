//! Lookups of groups of keys, piece by piece and attempt by attempt.
//!
//! Each answer is linearizable by itself, and none is worse for what happens to other keys: one
//! replaced segment, one memory node that restarts in the middle of a long group, costs the keys
//! again that it has kept from their answers, and no others.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{
    Lookup, LookupScratch, Outcome, Outcomes, ReadError, Wanted, drive, look_up_all, look_up_more,
};
use fpcache::table::Table;
use fpcache_fabric::Endpoint;

use super::array_lookups::GROUP;
use super::pieces::{Pieces, keys_of_piece};
use super::recover::Retry;
use super::{Connector, Core, HeldContext};
use crate::error::ClientError;
use crate::session::Buffers;

/// How often a record that is being written is read for many callers, before the others get their
/// answers without it. To write one takes less than a round trip.
#[cfg(feature = "tokio")]
pub(crate) const FEW_TRIES: u32 = 16;

/// A group that is looked up, and its answers.
struct Gathered<'k, K: BuildKeys, I> {
    pieces: Pieces<'k, K::Key, I>,
    wanted: Wanted,
    /// How often a record that is being written is read, if that is to keep no other key's answer.
    tries: Option<u32>,
    /// Answers of the pieces so far, between attempts. Those of keys that are left are none.
    answers: Outcomes,
    /// Whether the answers are to have these buffers, not those that the reader keeps.
    has_room: bool,
}

impl<'k, K: BuildKeys, I: Iterator<Item = &'k K::Key> + Clone> Gathered<'k, K, I> {
    /// Looks up keys that have no answers yet until all have one. They are among the buffers then.
    #[inline]
    fn attempt<E: Endpoint>(
        &mut self,
        (endpoint, table, lookup): (&mut E, &Table<K>, &mut LookupScratch<K>),
        progressed: &mut bool,
        has_time: impl Fn() -> bool,
    ) -> Result<(), ReadError> {
        if self.pieces.left.is_some() {
            let is_all = self.attempt_left((endpoint, table, lookup), progressed)?;
            if !is_all {
                return Ok(());
            }
        }
        match self.has_room || !self.answers.is_empty() {
            true => lookup.swap_outcomes(&mut self.answers),
            false => lookup.clear_outcomes(),
        }
        while !self.pieces.are_over() {
            let piece = self.pieces.piece();
            let looked = match self.tries {
                None => look_up_more(endpoint, table, lookup, piece, self.wanted),
                Some(tries) => {
                    let ways = table.ways(endpoint);
                    let looking = Lookup::more(table, lookup, piece).of(self.wanted).by(ways);
                    or_some(drive(endpoint, &mut looking.trying(tries)))
                }
            };
            if let Err(error) = looked {
                self.leave_rest(lookup, progressed);
                return Err(error);
            }
            self.pieces.pass();
            if !has_time() && !self.pieces.are_over() {
                return Err(ReadError::Unfinished { round_trips: (self.pieces.done / GROUP) as u32 });
            }
        }
        Ok(())
    }

    /// Keeps what the attempt at a piece has found that failed.
    #[cold]
    fn leave_rest(&mut self, lookup: &mut LookupScratch<K>, progressed: &mut bool) {
        *progressed |= self.pieces.leave(lookup.answered());
        lookup.swap_outcomes(&mut self.answers);
        self.fill(self.pieces.piece().count());
    }

    /// Notes that the first `keys` keys from the piece on have no answers, where nothing is noted.
    fn fill(&mut self, keys: usize) {
        for _ in self.answers.len()..self.pieces.done + keys {
            self.answers.push_server_side(None, &[], 0);
        }
    }

    /// Looks up those keys of the piece again that have no answers; `false` if all is done that is
    /// to be done, though some still have none.
    #[cold]
    fn attempt_left<E: Endpoint>(
        &mut self,
        (endpoint, table, lookup): (&mut E, &Table<K>, &mut LookupScratch<K>),
        progressed: &mut bool,
    ) -> Result<bool, ReadError> {
        let Some(left) = &self.pieces.left else { return Ok(true) };
        let keys = left.iter().map(|(_, key)| *key);
        let looked = match self.tries {
            None => look_up_all(endpoint, table, lookup, keys, self.wanted),
            Some(tries) => {
                let ways = table.ways(endpoint);
                let looking = Lookup::new(table, lookup, keys).of(self.wanted).by(ways);
                or_some(drive(endpoint, &mut looking.trying(tries)))
            }
        };
        let found = left.iter().zip(lookup.answered().zip(lookup.outcomes()));
        for ((place, _), (answered, (outcome, value))) in found {
            if answered {
                self.answers.replace(self.pieces.done + place, outcome, value);
            }
        }
        *progressed |= self.pieces.leave(lookup.answered());
        looked?;
        if self.tries.is_some() {
            let left = self.pieces.left.take().unwrap_or_default();
            let places: Vec<usize> = left.into_iter().map(|(place, _)| place).collect();
            lookup.put_outcomes(&mut self.answers, &places);
            return Ok(false);
        }
        self.pieces.pass();
        Ok(true)
    }
}

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Looks up a group of keys and passes the buffers with the answers to `take`.
    #[inline]
    pub(crate) fn lookup<'k, R>(
        &self,
        held: &mut HeldContext<K, T>,
        (keys, wanted): (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        mut take: impl FnMut(&mut LookupScratch<K>) -> R,
    ) -> Result<R, ClientError> {
        let pieces = Pieces::new(keys, keys_of_piece(T::IS_MAPPED));
        let mut gathered =
            Gathered { pieces, wanted, tries: None, answers: Outcomes::default(), has_room: false };
        self.gather(held, &mut gathered, within, |lookup, _| take(lookup))
    }

    /// As [`lookup`](Self::lookup), with the answers in buffers that are given.
    #[inline]
    pub(crate) fn lookup_into<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        (keys, wanted): (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        answers: &mut Outcomes,
    ) -> Result<(), ClientError> {
        let pieces = Pieces::new(keys, keys_of_piece(T::IS_MAPPED));
        answers.clear();
        let mut gathered =
            Gathered { pieces, wanted, tries: None, answers: std::mem::take(answers), has_room: true };
        let put = |lookup: &mut LookupScratch<K>, kept: &mut Outcomes| lookup.swap_outcomes(kept);
        self.gather(held, &mut gathered, within, put)?;
        *answers = gathered.answers;
        Ok(())
    }

    /// As [`lookup`](Self::lookup), but `take` may get answers of some keys alone: see
    /// [`LookupScratch::answered`]. A record that is being written is read [`FEW_TRIES`] times, and
    /// keeps its own callers waiting, but no others.
    #[cfg(feature = "tokio")]
    pub(crate) fn lookup_some<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        (keys, wanted): (impl Iterator<Item = &'k K::Key> + Clone, Wanted),
        within: Duration,
        mut take: impl FnMut(&LookupScratch<K>),
    ) -> Result<(), ClientError> {
        let (pieces, tries) = (Pieces::new(keys, usize::MAX), Some(FEW_TRIES));
        let mut gathered = Gathered { pieces, wanted, tries, answers: Outcomes::default(), has_room: false };
        self.gather(held, &mut gathered, within, |lookup, _| take(lookup))
    }

    /// Looks up until all keys have answers, and asks the memory node's processor for those of a
    /// piece that are left once the directory has been out of date too often with none of them
    /// found. Passes the buffers with the answers to `finish`, and those between attempts.
    #[inline(always)]
    fn gather<'k, I: Iterator<Item = &'k K::Key> + Clone, R>(
        &self,
        held: &mut HeldContext<K, T>,
        gathered: &mut Gathered<'k, K, I>,
        within: Duration,
        mut finish: impl FnMut(&mut LookupScratch<K>, &mut Outcomes) -> R,
    ) -> Result<R, ClientError> {
        // Where memory is mapped nothing is waited for that looks at the clock.
        let is_timed = T::IS_MAPPED && gathered.pieces.are_several();
        let began = is_timed.then(|| self.clock.now());
        let has_time =
            || began.is_none_or(|began| self.clock.now().saturating_duration_since(began) < within);
        let mut retry = self.begun(within);
        loop {
            let looked = self.try_table(held, &mut retry, |buffers, table, progressed| {
                let Buffers { endpoint, lookup, .. } = buffers;
                gathered.attempt((endpoint, table, lookup), progressed, has_time)?;
                Ok(finish(lookup, &mut gathered.answers))
            });
            match looked {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.is_of_empty_table() => {
                    gathered.fill(gathered.pieces.count());
                    return Ok(self.finish_elsewhere(gathered, finish));
                }
                Err(error) => return Err(error),
            }
            match self.ask_for_left(held, gathered, &mut retry) {
                Err(error) => self.recover_or_fail(held, error, &mut retry)?,
                Ok(()) if gathered.pieces.are_over() => return Ok(self.finish_elsewhere(gathered, finish)),
                Ok(()) => retry.note_progress(),
            }
        }
    }

    /// Passes answers to `finish` in buffers that are made for them.
    #[cold]
    fn finish_elsewhere<I, R>(
        &self,
        gathered: &mut Gathered<'_, K, I>,
        mut finish: impl FnMut(&mut LookupScratch<K>, &mut Outcomes) -> R,
    ) -> R {
        let mut lookup = LookupScratch::new(self.matcher);
        lookup.put_outcomes(&mut gathered.answers, &[]);
        finish(&mut lookup, &mut gathered.answers)
    }

    /// Asks the memory node's processor for those keys of a piece that have no answers.
    #[cold]
    fn ask_for_left<'k, I: Iterator<Item = &'k K::Key> + Clone>(
        &self,
        held: &mut HeldContext<K, T>,
        gathered: &mut Gathered<'k, K, I>,
        retry: &mut Retry,
    ) -> Result<(), ClientError> {
        if gathered.pieces.left.is_none() {
            // No attempt has come as far as to look for any.
            gathered.pieces.leave(std::iter::empty());
            gathered.fill(gathered.pieces.piece().count());
        }
        let Gathered { pieces, answers, .. } = &mut *gathered;
        let left = pieces.left.as_deref().unwrap_or_default();
        let mut places = left.iter().map(|(place, _)| pieces.done + place);
        self.lookup_server_side(held, left.iter().map(|(_, key)| *key), retry, |version, value, reads| {
            if let Some(place) = places.next() {
                let outcome = Outcome::server_side(version, value.len() as u64, reads);
                answers.replace(place, &outcome, version.map(|_| value));
            }
        })?;
        pieces.pass();
        Ok(())
    }
}

/// A record that is being written ends nothing: there are the answers of others.
pub(super) fn or_some(ended: Result<(), ReadError>) -> Result<(), ReadError> {
    match ended {
        Err(ReadError::Contended { .. }) => Ok(()),
        ended => ended,
    }
}
