//! Ordered queries: nearest records, descending scans.

use std::borrow::Borrow;
use std::ops::Bound;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, Neighbour, ScanBack, Side, find_nearest_to};
use fpcache_fabric::Endpoint;

use super::attempts::drive_while_progressing;
use super::read::{ClearedAtEnd, Rest, hand_over};
use super::{Connector, Core, HeldContext};
use crate::empty_tables::or_if_empty;
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::session::Buffers;

/// Round trips between two looks at the clock.
const UNTIMED: u32 = 64;

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

    /// Scans downwards, from the greatest key within the beginning of `rest` to the least not below
    /// `from`, and hands each record to `take`. What was found before the directory turned out to
    /// be out of date, or the memory node to be gone, is handed over all the same; the scan goes on
    /// below it, until `take` wants no more. After an error `rest` says where.
    pub(crate) fn scan_back<F: ScanFlow>(
        &self,
        held: &mut HeldContext<K, T>,
        rest: &mut Rest<Bound<K::Owned>>,
        from: &K::Key,
        within: Duration,
        mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        let mut cost = Cost::default();
        let scanned = self.by_parts(held, within, |Buffers { endpoint, scan, .. }, table, progressed| {
            let kept = ClearedAtEnd(scan);
            // It may stop to have what was found taken before there is more.
            while let Some(to) = rest.from.take() {
                let bound = to.as_ref().map(Borrow::borrow);
                let mut scan = ScanBack::new(table.view(), kept.0, bound, from, rest.limit);
                let ended = drive_while_progressing(endpoint, &mut scan, ScanBack::stuck_at, within);
                let flow = hand_over::<K, F>(scan.records(), &mut take);
                // The time that this took is not the rest's.
                endpoint.set_patience(within);
                cost += scan.cost();
                if flow.is_break() {
                    rest.limit = 0;
                    return Ok(cost);
                }
                rest.limit -= scan.records().len();
                rest.from = scan.uncovered();
                *progressed |= rest.from.as_ref() != Some(&to);
                ended?;
            }
            Ok(cost)
        });
        or_if_empty(scanned, Cost::default())
    }
}
