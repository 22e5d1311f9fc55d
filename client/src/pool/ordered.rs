//! Ordered queries, range by range.

use std::borrow::Borrow;
use std::ops::Bound;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, Neighbour, Side};

use super::range::on_range;
use super::tries::Tries;
use super::{Pool, PoolHeld};
use crate::client::Record;
use crate::error::ClientError;

/// The record that was found, if there is one, and what it cost to find.
pub(crate) type Nearest<K> = (Option<Record<K>>, Cost);

impl<K: BuildKeys> Pool<K> {
    /// Finds the record nearest to a key, and passes it to `take`: in the key's range, or in the
    /// next one that has any.
    pub(crate) fn nearest_to<R>(
        &self,
        held: &mut PoolHeld<K>,
        (side, key): (Side, &K::Key),
        within: Duration,
        mut take: impl FnMut(Option<Neighbour<'_, K>>) -> R,
    ) -> Result<(R, Cost), ClientError> {
        let (mut tries, mut cost) = (Tries::new(within), Cost::default());
        'with_map: loop {
            let ranges = self.follow(held);
            let first = ranges.index_of(key);
            let mut index = first;
            loop {
                // Beyond the key's own range all records of a range are on the side that is asked
                // for.
                let key = match side {
                    _ if index == first => key,
                    Side::Floor => K::highest(),
                    Side::Ceiling => K::lowest(),
                };
                let left = tries.left();
                let hand_over = |found: Option<Neighbour<'_, K>>| found.map(|found| take(Some(found)));
                let found = on_range!(self, ranges, held, index, left, (core, own) => core.nearest_to(own, (side, key), left, hand_over));
                match found {
                    Ok((Some(taken), more)) => {
                        cost += more;
                        return Ok((taken, cost));
                    }
                    Ok((None, more)) => cost += more,
                    Err(error) => {
                        self.get_over(&ranges, index, error, &mut tries)?;
                        continue 'with_map;
                    }
                }
                match side {
                    Side::Floor if index > 0 => index -= 1,
                    Side::Ceiling if index + 1 < ranges.ranges.len() => index += 1,
                    _ => return Ok((take(None), cost)),
                }
            }
        }
    }

    /// Finds the records nearest to keys, one key after the other, as the ranges of the answers show only as they are found. All
    /// share the call's time.
    pub(crate) fn nearest_to_each<'k>(
        &self,
        held: &mut PoolHeld<K>,
        side: Side,
        keys: impl Iterator<Item = &'k K::Key>,
        within: Duration,
    ) -> Result<Vec<Nearest<K>>, ClientError> {
        let own =
            |found: Option<Neighbour<'_, K>>| found.map(|found| (found.key.to_owned(), found.value.to_vec()));
        let tries = Tries::begun(within);
        keys.map(|key| self.nearest_to(held, (side, key), tries.left(), own)).collect()
    }

    /// Scans downwards, range by range, from the greatest key within `to` to the least not below
    /// `from`.
    pub(crate) fn scan_back(
        &self,
        held: &mut PoolHeld<K>,
        (from, to): (&K::Key, Bound<&K::Key>),
        limit: usize,
        within: Duration,
        mut take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        let (mut to, mut left, mut cost) = (to.map(ToOwned::to_owned), limit, Cost::default());
        let mut tries = Tries::new(within);
        loop {
            let is_over = match to.as_ref().map(Borrow::borrow) {
                Bound::Excluded(to) => to <= from,
                Bound::Included(to) => to < from,
                Bound::Unbounded => false,
            };
            if left == 0 || is_over {
                return Ok(cost);
            }
            let ranges = self.follow(held);
            let index = match to.as_ref().map(Borrow::borrow) {
                Bound::Unbounded => ranges.ranges.len() - 1,
                Bound::Included(to) => ranges.index_of(to),
                // The range whose keys lie right below.
                Bound::Excluded(to) => {
                    let at = ranges.index_of(to);
                    if at > 0 && ranges.ranges[at].start.borrow() == to { at - 1 } else { at }
                }
            };
            let range = &ranges.ranges[index];
            let (mut taken, mut last) = (0, None);
            let mut hand_over = |key: K::View<'_>, value: &[u8]| {
                taken += 1;
                last = Some(key.borrow().to_owned());
                take(key, value);
            };
            let low = range.start.borrow().max(from);
            let span = (low, to.as_ref().map(Borrow::borrow));
            let scanned = on_range!(self, ranges, held, index, within, (core, own) => core.scan_back(own, span, left, within, &mut hand_over));
            left -= taken;
            match scanned {
                Ok(more) => {
                    cost += more;
                    tries = Tries::new(within);
                    if index == 0 {
                        return Ok(cost);
                    }
                    to = Bound::Excluded(range.start.clone());
                }
                Err(error) => {
                    if let Some(last) = last {
                        to = Bound::Excluded(last);
                    }
                    self.get_over(&ranges, index, error, &mut tries)?;
                }
            }
        }
    }

    /// Counts the keys from `start` up to `end`, or all that are not below `start`.
    pub(crate) fn count(
        &self,
        held: &mut PoolHeld<K>,
        (start, end): (&K::Key, Option<&K::Key>),
        within: Duration,
    ) -> Result<(u64, Cost), ClientError> {
        let (mut from, mut count, mut cost) = (start.to_owned(), 0, Cost::default());
        let mut tries = Tries::new(within);
        while end.is_none_or(|end| from.borrow() < end) {
            let ranges = self.follow(held);
            let index = ranges.index_of(from.borrow());
            let range = &ranges.ranges[index];
            let span = {
                let own_end = range.end.as_ref().map(Borrow::borrow);
                let until = match (own_end, end) {
                    (Some(own), Some(end)) => Some(own.min(end)),
                    (own, end) => own.or(end),
                };
                (from.borrow(), until)
            };
            let counted =
                on_range!(self, ranges, held, index, within, (core, own) => core.count(own, span, within));
            match counted {
                Ok((more, price)) => {
                    count += more;
                    cost += price;
                    tries = Tries::new(within);
                    match &range.end {
                        Some(end) => from = end.clone(),
                        None => break,
                    }
                }
                Err(error) => self.get_over(&ranges, index, error, &mut tries)?,
            }
        }
        Ok((count, cost))
    }
}
