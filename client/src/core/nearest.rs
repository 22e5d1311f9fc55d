//! Searches for the records nearest to keys: to one, or to a group, piece by piece and attempt by
//! attempt, as in [`gather`](super::gather).

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{
    Cost, Nearest, NearestScratch, Neighbour, ReadError, Side, drive_while, find_nearest_again,
    find_nearest_to,
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

/// A group of keys whose neighbours are looked for.
struct NearestGroup<'k, K: BuildKeys, I> {
    side: Side,
    pieces: Pieces<'k, K::Key, I>,
    /// How often slots that are being written are read, if that is to keep no other key's answer.
    tries: Option<u32>,
    /// The buffers of an attempt at a piece that has failed, with the answers that it has found: a
    /// reader may get others for the next one.
    kept: Option<Box<NearestScratch<K>>>,
}

impl<'k, K: BuildKeys, I: Iterator<Item = &'k K::Key> + Clone> NearestGroup<'k, K, I> {
    /// Looks for the neighbours of those keys of a piece that have no answers. All have them then,
    /// if that is no error and there is no number of tries.
    #[inline]
    fn attempt<E: Endpoint>(
        &mut self,
        (endpoint, view, nearest): (&mut E, &TableView<K>, &mut NearestScratch<K>),
        progressed: &mut bool,
        goes_on: impl FnMut(u32) -> bool,
    ) -> Result<(), ReadError> {
        match self.kept.take() {
            Some(kept) => *nearest = *kept,
            None => nearest.clear(),
        }
        let before = count_answers(nearest);
        let (side, keys) = (self.side, self.pieces.piece());
        let sought = match self.tries {
            None => find_nearest_again(endpoint, view, nearest, (side, keys), goes_on),
            Some(tries) => {
                let searching = Nearest::again(view, nearest, side, keys, endpoint.guards());
                or_some(drive_while(endpoint, &mut searching.trying(tries), goes_on))
            }
        };
        if sought.is_err() {
            *progressed |= count_answers(nearest) > before;
            self.kept = Some(Box::new(std::mem::take(nearest)));
        }
        sought
    }

    /// Passes to `take` what was found of a piece, where nothing is found of the other keys.
    #[cold]
    fn pass_kept(mut self, take: impl FnOnce(&NearestScratch<K>)) {
        let mut nearest = self.kept.take().unwrap_or_default();
        nearest.answer_rest(self.pieces.count());
        take(&nearest);
    }
}

fn count_answers<K: BuildKeys>(nearest: &NearestScratch<K>) -> usize {
    nearest.answered().filter(|is_answered| *is_answered).count()
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
        let mut sought = NearestGroup { side, pieces, tries: None, kept: None };
        let mut take = |nearest: &NearestScratch<K>| {
            nearest.answers().for_each(|(found, cost)| take(found, cost));
        };
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
                    take(nearest);
                    nearest.clear();
                    sought.pieces.pass();
                    has_time = sought.pieces.are_over() || goes_on(0);
                }
                Ok(())
            });
        or_nothing(ended, || sought.pass_kept(take))
    }

    /// As [`nearest`](Self::nearest), but some keys may have no answers: a record that is being
    /// written is read [`FEW_TRIES`] times. Passes the buffers with the answers to `take`.
    #[cfg(feature = "tokio")]
    pub(crate) fn nearest_some<'k>(
        &self,
        held: &mut HeldContext<K, T>,
        side: Side,
        keys: impl Iterator<Item = &'k K::Key> + Clone,
        within: Duration,
        mut take: impl FnMut(&NearestScratch<K>),
    ) -> Result<(), ClientError> {
        let pieces = Pieces::new(keys, usize::MAX);
        let mut sought = NearestGroup { side, pieces, tries: Some(FEW_TRIES), kept: None };
        let mut goes_on = self.patience(within);
        let ended =
            self.in_time_by_parts(held, within, |Buffers { endpoint, nearest, .. }, table, progressed| {
                sought.attempt((endpoint, table.view(), nearest), progressed, &mut goes_on)?;
                take(nearest);
                nearest.clear();
                Ok(())
            });
        or_nothing(ended, || sought.pass_kept(take))
    }
}

/// How a search has ended, which finds `nothing` in a table without parameters.
fn or_nothing(ended: Result<(), ClientError>, nothing: impl FnOnce()) -> Result<(), ClientError> {
    match ended {
        Err(error) if error.is_of_empty_table() => {
            nothing();
            Ok(())
        }
        ended => ended,
    }
}
