//! Searches for the records nearest to keys: to one, or to a group, piece by piece and attempt by
//! attempt, as in [`gather`](super::gather).

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{
    Cost, Nearest, NearestScratch, Neighbour, ReadError, Side, drive_while, find_nearest, find_nearest_to,
};
use fpcache::table_view::TableView;
use fpcache_fabric::Endpoint;

#[cfg(feature = "tokio")]
use super::gather::FEW_TRIES;
use super::gather::or_some;
use super::pieces::{Pieces, keys_of_piece};
use super::{Connector, Core, HeldContext};
use crate::error::ClientError;
use crate::session::Buffers;

/// Round trips between two looks at the clock.
const UNTIMED: u32 = 64;

/// What was found: a record, if there is one, with its version, and what it cost.
struct NearestFound<K: BuildKeys> {
    record: Option<(K::Owned, u32, Vec<u8>)>,
    cost: Cost,
}

impl<K: BuildKeys> NearestFound<K> {
    /// No record, as in a table without parameters.
    const NOTHING: Self = Self { record: None, cost: NO_COST };
}

/// A group of keys whose neighbours are looked for.
struct NearestGroup<'k, K: BuildKeys, I> {
    side: Side,
    pieces: Pieces<'k, K::Key, I>,
    /// How often slots that are being written are read, if that is to keep no other key's answer.
    tries: Option<u32>,
    /// What was found for the keys of a piece, once an attempt at it has failed; `None` for those
    /// that have no answers.
    found: Vec<Option<NearestFound<K>>>,
}

impl<'k, K: BuildKeys, I: Iterator<Item = &'k K::Key> + Clone> NearestGroup<'k, K, I> {
    /// Looks for the neighbours of those keys of a piece that have no answers. All have them then,
    /// if that is no error and there is no number of tries; they are among the buffers, if none is
    /// kept from earlier attempts.
    #[inline]
    fn attempt<E: Endpoint>(
        &mut self,
        (endpoint, view, nearest): (&mut E, &TableView<K>, &mut NearestScratch<K>),
        progressed: &mut bool,
        goes_on: impl FnMut(u32) -> bool,
    ) -> Result<(), ReadError> {
        let left = self.pieces.left.as_ref().map(|left| left.iter().map(|(_, key)| *key));
        let sought = match (self.tries, left) {
            (None, None) => find_nearest(endpoint, view, nearest, (self.side, self.pieces.piece()), goes_on),
            (None, Some(left)) => find_nearest(endpoint, view, nearest, (self.side, left), goes_on),
            (Some(tries), left) => {
                let (is_guarded, all) = (endpoint.guards(), self.pieces.piece());
                let keys =
                    left.is_none().then_some(all).into_iter().flatten().chain(left.into_iter().flatten());
                let searching = Nearest::new(view, nearest, self.side, keys, is_guarded);
                or_some(drive_while(endpoint, &mut searching.trying(tries), goes_on))
            }
        };
        if sought.is_err() || self.tries.is_some() || self.pieces.left.is_some() {
            *progressed |= self.keep(nearest);
            nearest.clear();
        }
        sought
    }

    /// Keeps what an attempt has found, and leaves the other keys. Whether it has found something.
    #[cold]
    fn keep(&mut self, nearest: &NearestScratch<K>) -> bool {
        let own = |(record, cost): (Option<Neighbour<'_, K>>, Cost)| NearestFound {
            record: record.map(|found| (found.key.to_owned(), found.version, found.value.to_vec())),
            cost,
        };
        let answers = nearest.answered().zip(nearest.answers());
        match &self.pieces.left {
            None => {
                self.found.extend(answers.map(|(is, answer)| is.then(|| own(answer))));
                self.found.resize_with(self.pieces.piece().count(), || None);
            }
            Some(left) => {
                for ((place, _), (_, answer)) in left.iter().zip(answers).filter(|(_, (is, _))| *is) {
                    self.found[*place] = Some(own(answer));
                }
            }
        }
        self.pieces.leave(nearest.answered())
    }

    /// Passes what was kept of a piece to `take`, in the order of its keys, and goes on to the next
    /// one.
    #[cold]
    fn pass_kept(&mut self, mut take: impl FnMut(Option<Neighbour<'_, K>>, Cost)) {
        for found in self.found.drain(..) {
            let NearestFound { record, cost } = found.unwrap_or(NearestFound::NOTHING);
            let neighbour = record.as_ref().map(|(key, version, value)| Neighbour {
                key: key.borrow(),
                version: *version,
                value: &value[..],
            });
            take(neighbour, cost);
        }
        self.pieces.pass();
    }
}

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Finds the record nearest to a key, and passes it to `take`.
    #[inline]
    pub(crate) fn nearest_to<R>(
        &self,
        held: &mut HeldContext<K, T>,
        (side, key): (Side, &K::Key),
        within: Duration,
        mut take: impl FnMut(Option<Neighbour<'_, K>>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        let mut goes_on = self.patience(within);
        let found = self.with_table(held, within, |buffers, table| {
            let Buffers { endpoint, nearest, .. } = buffers;
            let take = |found: Option<Neighbour<'_, K>>, cost| (take(found), cost);
            find_nearest_to(endpoint, table.view(), nearest, (side, key), &mut goes_on, take)
        });
        match found {
            Err(error) if error.is_of_empty_table() => Ok((take(None), Cost::default())),
            found => found,
        }
    }

    /// Lets a search continue for this long, from the first look at the clock on.
    #[inline]
    pub(super) fn patience(&self, within: Duration) -> impl FnMut(u32) -> bool {
        let mut started = None;
        move |round_trips| {
            // Most have ended long before: the clock is not looked at for them.
            if !round_trips.is_multiple_of(UNTIMED) {
                return true;
            }
            let now = self.clock.now();
            now.saturating_duration_since(*started.get_or_insert(now)) < within
        }
    }

    /// Finds the records nearest to a group of keys, and passes each to `take`, in the order of the
    /// keys: some of them also before an error. None if the table has no parameters yet.
    #[inline]
    pub(crate) fn nearest<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        side: Side,
        keys: impl Iterator<Item = &'k K::Key> + Clone,
        within: Duration,
        mut take: impl FnMut(Option<Neighbour<'_, K>>, Cost),
    ) -> Result<(), ClientError> {
        let pieces = Pieces::new(keys, keys_of_piece(T::IS_MAPPED));
        let mut sought = NearestGroup { side, pieces, tries: None, found: Vec::new() };
        let mut goes_on = self.patience(within);
        // The clock starts with the first look at it.
        let mut has_time = !sought.pieces.are_several() || goes_on(0);
        let ended =
            self.in_time_by_parts(held, within, |Buffers { endpoint, nearest, .. }, table, progressed| {
                while !sought.pieces.are_over() {
                    if !has_time {
                        return Err(ReadError::Unfinished { round_trips: 0 });
                    }
                    sought.attempt((endpoint, table.view(), nearest), progressed, &mut goes_on)?;
                    if sought.pieces.left.is_some() {
                        sought.pass_kept(&mut take);
                    } else {
                        nearest.answers().for_each(|(found, cost)| take(found, cost));
                        nearest.clear();
                        sought.pieces.pass();
                    }
                    has_time = sought.pieces.are_over() || goes_on(0);
                }
                Ok(())
            });
        match ended {
            Err(error) if error.is_of_empty_table() => {
                let kept = sought.found.len();
                let others = sought.pieces.count() - kept;
                sought.pass_kept(&mut take);
                (0..others).for_each(|_| take(None, NO_COST));
                Ok(())
            }
            ended => ended,
        }
    }

    /// As [`nearest`](Self::nearest), but some keys may have no answers: a record that is being
    /// written is read [`FEW_TRIES`] times. Passes all answers, or that there is none, to `take`, in
    /// the order of the keys.
    #[cfg(feature = "tokio")]
    pub(crate) fn nearest_some<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        side: Side,
        keys: impl Iterator<Item = &'k K::Key> + Clone,
        within: Duration,
        take: impl FnOnce(Vec<Option<Option<crate::client::Record<K>>>>),
    ) -> Result<(), ClientError> {
        let pieces = Pieces::new(keys, usize::MAX);
        let mut sought = NearestGroup { side, pieces, tries: Some(FEW_TRIES), found: Vec::new() };
        let mut goes_on = self.patience(within);
        let ended =
            self.in_time_by_parts(held, within, |Buffers { endpoint, nearest, .. }, table, progressed| {
                sought.attempt((endpoint, table.view(), nearest), progressed, &mut goes_on)
            });
        match ended {
            Err(error) if error.is_of_empty_table() => {
                let keys = sought.pieces.count();
                sought.found.resize_with(keys, || None);
                for found in &mut sought.found {
                    found.get_or_insert(NearestFound::NOTHING);
                }
            }
            ended => ended?,
        }
        let answer = |found: NearestFound<K>| found.record.map(|(key, _, value)| (key, value));
        take(sought.found.into_iter().map(|found| found.map(answer)).collect());
        Ok(())
    }
}

const NO_COST: Cost =
    Cost { round_trips: 0, reads: 0, bytes: 0, false_candidates: 0, fallbacks: 0, conflicts: 0 };
