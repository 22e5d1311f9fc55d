//! Scans of a table, up and down.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Cost, Operation, ReadError, Scan, ScanScratch, Wanted, advance};
use fpcache_fabric::Endpoint;

use super::section::Section;
use super::{Connector, Core, HeldContext};
use crate::empty_tables::or_if_empty;
use crate::error::ClientError;
use crate::flow::ScanFlow;
use crate::session::Buffers;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Scans the section that is the `rest` of a scan, and passes each record to `take`, in the
    /// section's order: keys alone where only their presence is wanted. Records found before the
    /// directory turned out to be out of date, or the memory node to be down, are passed on, and
    /// the scan continues after them, until `take` wants no more. After an error `rest` says from
    /// where.
    pub(crate) fn scan<F: ScanFlow>(
        &self,
        held: &mut HeldContext<K, T>,
        rest: &mut Option<Section<K>>,
        wanted: Wanted,
        within: Duration,
        mut take: impl FnMut(K::View<'_>, &[u8]) -> F,
    ) -> Result<Cost, ClientError> {
        let mut cost = Cost::default();
        let scanned = self.by_parts(held, within, |Buffers { endpoint, scan, .. }, table, progressed| {
            let kept = ClearedAtEnd(scan);
            // It may stop to have what was found taken, or many keys, before there are more.
            while let Some(section) = rest.take() {
                let most = section.at_once(wanted);
                let mut scan = section.scan(table, kept.0, (most, wanted));
                let ended = drive_while_progressing(endpoint, &mut scan, within);
                let flow = scan.records().try_for_each(|(key, value)| take(K::as_view(key), value).flow());
                // The time that this took is not the rest's.
                endpoint.set_patience(within);
                cost += scan.cost();
                if flow.is_break() {
                    return Ok(cost);
                }
                let limit = section.limit - scan.records().len();
                let span = if limit > 0 { section.rest(&scan, most) } else { None };
                *progressed |= span.as_ref() != Some(&section.span);
                *rest = span.map(|span| Section { span, limit, ..section });
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

/// Runs a scan that may take longer than its call's deadline as long as it gets on: each
/// round trip after one that got on has all of the time. The first one has what is left of the
/// attempt's, and those that read the same again, where it is stuck at one place, share theirs.
fn drive_while_progressing<K: BuildKeys, E: Endpoint>(
    endpoint: &mut E,
    scan: &mut Scan<'_, K>,
    within: Duration,
) -> Result<(), ReadError> {
    let (mut found, mut is_first) = (scan.records().len(), true);
    while advance(endpoint, scan)? {
        let now = scan.records().len();
        let progressed = scan.stuck_at().is_none() || now > found;
        if progressed && !is_first {
            endpoint.set_patience(within);
        }
        (found, is_first) = (now, false);
        endpoint.run(scan.batch())?;
    }
    Ok(())
}
