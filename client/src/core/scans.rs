//! Scans of a table, up and down.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, Operation, ReadError, Scan, ScanBack, ScanScratch, Wanted, advance};
use fpcache::table::Table;
use fpcache_fabric::Endpoint;

use super::{Connector, Core, HeldContext};
use crate::empty_tables::or_if_empty;
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::session::Buffers;

/// Keys that are scanned at a time without their values.
const KEYS_AT_ONCE: usize = 1 << 16;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Scans from where `rest` begins up to `end`, and passes each record to `take` in key order:
    /// keys alone where only their presence is wanted. Records found before the directory turned
    /// out to be out of date, or the memory node to be down, are passed on, and the scan continues
    /// after them, until `take` wants no more. After an error `rest` says from where.
    pub(crate) fn scan<F: ScanFlow>(
        &self,
        held: &mut HeldContext<K, T>,
        rest: &mut Rest<K::Owned>,
        (end, wanted): (Option<&K::Key>, Wanted),
        within: Duration,
        mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        let mut cost = Cost::default();
        let scanned = self.by_parts(held, within, |Buffers { endpoint, scan, .. }, table, progressed| {
            let kept = ClearedAtEnd(scan);
            // It may stop to have what was found taken, or many keys, before there are more.
            while let Some(from) = rest.from.take() {
                let limit = if wanted == Wanted::Value { rest.limit } else { rest.limit.min(KEYS_AT_ONCE) };
                let mut scan = scan_of(table, kept.0, (from.borrow(), end), limit);
                if wanted != Wanted::Value {
                    scan = scan.of_keys();
                }
                let ended = drive_while_progressing(endpoint, &mut scan, Scan::stuck_at, within);
                let flow = hand_over::<K, F>(scan.records(), &mut take);
                // The time that this took is not the rest's.
                endpoint.set_patience(within);
                cost += scan.cost();
                if flow.is_break() {
                    rest.limit = 0;
                    return Ok(cost);
                }
                rest.limit -= scan.records().len();
                rest.from = if rest.limit > 0 { uncovered(&scan, limit) } else { None };
                *progressed |= rest.from.as_ref() != Some(&from);
                ended?;
            }
            Ok(cost)
        });
        or_if_empty(scanned, Cost::default())
    }

    /// Passes the first keys of a range to `take`, as many as there is time for, up to `limit` and
    /// to those of one scan, and says from which key to go on.
    #[cfg(feature = "tokio")]
    pub(crate) fn keys_part(
        &self,
        held: &mut HeldContext<K, T>,
        (start, end): (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
        mut take: impl FnMut(&K::Key),
    ) -> Result<Option<K::Owned>, ClientError> {
        let (mut goes_on, limit) = (self.patience(within), limit.min(KEYS_AT_ONCE));
        let found = self.with_table(held, within, |buffers, table| {
            let mut scan = scan_of(table, &mut buffers.scan, (start, end), limit).of_keys();
            let ended = fpcache::read::drive_while(&mut buffers.endpoint, &mut scan, &mut goes_on);
            let next = uncovered(&scan, limit);
            if next.as_ref().map(Borrow::borrow) == Some(start) {
                // What was found before something went wrong counts.
                ended?;
            }
            scan.records().for_each(|(key, _)| take(key));
            buffers.scan.clear();
            Ok(next)
        });
        or_if_empty(found, None)
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

/// A scan's buffers: no thread keeps the memory of a long one, however it ends, also if what takes
/// its records panics.
struct ClearedAtEnd<'s, K: BuildKeys>(&'s mut ScanScratch<K>);

impl<K: BuildKeys> Drop for ClearedAtEnd<'_, K> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Passes records to `take` until that wants no more.
fn hand_over<'r, K: BuildKeys, F: ScanFlow>(
    mut records: impl Iterator<Item = (&'r K::Key, &'r [u8])>,
    mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
) -> ControlFlow<()> {
    records.try_for_each(|(key, value)| take(K::as_view(key), value).flow())
}

/// What is left of a scan.
pub(crate) struct Rest<From> {
    /// Where it goes on; `None` at its end.
    pub(crate) from: Option<From>,
    /// Records that are still wanted: none once the one that takes them wants no more.
    pub(crate) limit: usize,
}

impl<From> Rest<From> {
    pub(crate) fn new(from: From, limit: usize) -> Self {
        Self { from: Some(from), limit }
    }
}

/// A scan from a key up to an end, of at most `limit` records.
pub(super) fn scan_of<'s, K: BuildKeys>(
    table: &'s Table<K>,
    scratch: &'s mut ScanScratch<K>,
    (start, end): (&K::Key, Option<&'s K::Key>),
    limit: usize,
) -> Scan<'s, K> {
    let scan = Scan::new(table.view(), scratch, start, limit).with_groups(table.groups());
    match end {
        Some(end) => scan.until(end),
        None => scan,
    }
}

/// The key from which to go on after a scan of `limit` records; `None` if nothing is left.
pub(super) fn uncovered<K: BuildKeys>(scan: &Scan<'_, K>, limit: usize) -> Option<K::Owned> {
    match scan.records().last() {
        // It stopped because there are enough for once.
        Some((last, _)) if scan.records().len() == limit => K::successor(last),
        _ => scan.uncovered().map(ToOwned::to_owned),
    }
}

/// An operation that finds record after record.
trait FindsRecords: Operation {
    /// How many it has found so far.
    fn found(&self) -> usize;
}

impl<K: BuildKeys> FindsRecords for Scan<'_, K> {
    fn found(&self) -> usize {
        self.records().len()
    }
}

impl<K: BuildKeys> FindsRecords for ScanBack<'_, K> {
    fn found(&self) -> usize {
        self.records().len()
    }
}

/// Runs an operation that may take longer than its call's deadline as long as it gets on: each
/// round trip after one that got on has all of the time. The first one has what is left of the
/// attempt's, and those that read the same again, where it is `stuck_at` one place, share theirs.
fn drive_while_progressing<E: Endpoint, O: FindsRecords>(
    endpoint: &mut E,
    operation: &mut O,
    stuck_at: impl Fn(&O) -> Option<usize>,
    within: Duration,
) -> Result<(), ReadError> {
    let (mut found, mut is_first) = (operation.found(), true);
    while advance(endpoint, operation)? {
        let now = operation.found();
        let progressed = stuck_at(operation).is_none() || now > found;
        if progressed && !is_first {
            endpoint.set_patience(within);
        }
        (found, is_first) = (now, false);
        endpoint.run(operation.batch())?;
    }
    Ok(())
}
