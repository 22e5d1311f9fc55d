//! Ordered queries, range by range.

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, Neighbour, Side};
use fpcache_fabric::FabricError;

use super::map_retries::Tries;
use super::{Pool, PoolHeld};
use crate::client::Record;
use crate::error::ClientError;
use crate::one_node::with_direct;

/// The record that was found, if there is one, with its version, and what it cost to find.
type RangeNearest<K> = (Option<(u32, Record<K>)>, Cost);

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
        let (mut tries, mut cost) = (Tries::begun(within), Cost::default());
        'with_map: loop {
            let ranges = self.follow(held);
            let own = ranges.index_of(key);
            for (index, edge) in ranges.in_search_order(side).skip_while(|(index, _)| *index != own) {
                let from = if index == own { key } else { edge };
                if index != own && tries.left().is_zero() {
                    // It is not for this memory node that the time was too short.
                    let waiting_for = "the ranges before";
                    return Err(FabricError::DeadlinePassed { waiting_for }.into());
                }
                let hand_over = |found: Option<Neighbour<'_, K>>| found.map(|found| take(Some(found)));
                let place = ranges.place(&mut held.held[index], index, &self.config, &tries);
                let found = place.and_then(|place| with_direct!(place, (core, own) => core.nearest_to(own, (side, from), tries.left(), hand_over)));
                match found {
                    Ok((taken, more)) => {
                        cost += more;
                        if let Some(taken) = taken {
                            return Ok((taken, cost));
                        }
                    }
                    Err(error) => {
                        self.recover_range(&ranges, index, error, &mut tries)?;
                        continue 'with_map;
                    }
                }
            }
            return Ok((take(None), cost));
        }
    }

    /// Finds the records nearest to keys, range by range: each is asked once, for its own keys and
    /// for those that have found nothing before it. With a newer map those keys begin anew that have
    /// no record yet. All share the call's time. Passes them to `take` in the order of the keys.
    pub(crate) fn nearest<'k>(
        &self,
        held: &mut PoolHeld<K>,
        side: Side,
        keys: impl Iterator<Item = &'k K::Key>,
        within: Duration,
        mut take: impl FnMut(Option<Neighbour<'_, K>>, Cost),
    ) -> Result<(), ClientError> {
        let keys: Vec<&K::Key> = keys.collect();
        let (mut tries, mut has_asked) = (Tries::begun(within), false);
        let mut nearest: Vec<RangeNearest<K>> = keys.iter().map(|_| (None, Cost::default())).collect();
        'with_map: loop {
            let ranges = self.follow(held);
            let left = keys.iter().copied().enumerate().filter(|(at, _)| nearest[*at].0.is_none());
            let own = ranges.divide(left);
            // Which keys have found nothing in the ranges from their own on.
            let mut beyond: Vec<usize> = Vec::new();
            for (index, edge) in ranges.in_search_order(side) {
                let own = &own[index];
                if own.is_empty() && beyond.is_empty() {
                    continue;
                }
                if has_asked && tries.left().is_zero() {
                    // It is not for this memory node that the time was too short.
                    let waiting_for = "the other keys of the group";
                    return Err(FabricError::DeadlinePassed { waiting_for }.into());
                }
                has_asked = true;
                let asked = own.iter().map(|at| keys[*at]).chain((!beyond.is_empty()).then_some(edge));
                let mut found: Vec<RangeNearest<K>> = Vec::new();
                let keep = |neighbour: Option<Neighbour<'_, K>>, cost| {
                    let own = |at: Neighbour<'_, K>| (at.version, (at.key.to_owned(), at.value.to_vec()));
                    found.push((neighbour.map(own), cost));
                };
                let place = ranges.place(&mut held.held[index], index, &self.config, &tries);
                let ended = place.and_then(|place| with_direct!(place, (core, own) => core.nearest(own, side, asked.clone(), tries.left(), keep)));
                // Those that were found before an error stay.
                let mut found = found.into_iter();
                for (at, (record, cost)) in own.iter().zip(found.by_ref()) {
                    nearest[*at].0 = record;
                    nearest[*at].1 += cost;
                }
                if let Err(error) = ended {
                    self.recover_range(&ranges, index, error, &mut tries)?;
                    continue 'with_map;
                }
                if let Some((record, cost)) = found.next() {
                    for at in &beyond {
                        nearest[*at].0.clone_from(&record);
                        nearest[*at].1 += cost;
                    }
                }
                beyond.extend(own);
                beyond.retain(|at| nearest[*at].0.is_none());
            }
            for (found, cost) in &nearest {
                let own = found.as_ref().map(|(version, (key, value))| (key.borrow(), *version, &value[..]));
                take(own.map(|(key, version, value)| Neighbour { key, version, value }), *cost);
            }
            return Ok(());
        }
    }
}
