//! Scans and counts in parts, at the pace of the caller.

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Scan, drive_while};

use super::read::{KEYS_AT_ONCE, scan_of, uncovered};
use super::{Connector, Core, Held};
use crate::empty::or_of_empty;
use crate::error::ClientError;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Makes the first part of a scan, which ends at `limit` or sooner to have long values taken,
    /// and hands it to `take`; `None` if the table has no parameters yet.
    pub(crate) fn scan_part<R>(
        &self,
        held: &mut Held<K, T>,
        span: (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
        mut take: impl FnMut(&Scan<'_, K>) -> R,
    ) -> Result<Option<R>, ClientError> {
        let mut goes_on = self.patience(within);
        let scanned = self.with_table(held, within, |buffers, table| {
            let mut scan = scan_of(table, &mut buffers.scan, span, limit);
            drive_while(&mut buffers.endpoint, &mut scan, &mut goes_on)?;
            Ok(Some(take(&scan)))
        });
        or_of_empty(scanned, None)
    }

    /// Counts the first keys of a range, as many as there is time for and at most those of one
    /// scan, and says from which key to go on.
    pub(crate) fn count_part(
        &self,
        held: &mut Held<K, T>,
        (start, end): (&K::Key, Option<&K::Key>),
        within: Duration,
    ) -> Result<(u64, Option<K::Owned>), ClientError> {
        let mut goes_on = self.patience(within);
        let counted = self.with_table(held, within, |buffers, table| {
            let mut scan = scan_of(table, &mut buffers.scan, (start, end), KEYS_AT_ONCE).of_keys();
            let ended = drive_while(&mut buffers.endpoint, &mut scan, &mut goes_on);
            let next = uncovered(&scan, KEYS_AT_ONCE);
            if next.as_ref().map(Borrow::borrow) == Some(start) {
                // What was counted before something went wrong counts.
                ended?;
            }
            Ok((scan.records().len() as u64, next))
        });
        or_of_empty(counted, (0, None))
    }
}
