//! Scans in parts, at the pace of the caller.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::read::{Scan, drive_while};

use super::{Connector, Core, Held};
use crate::empty::or_of_empty;
use crate::error::ClientError;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Makes the first part of a scan, which ends at `limit` or sooner to have long values taken,
    /// and hands it to `take`; `None` if the table has no parameters yet.
    pub(crate) fn scan_part<R>(
        &self,
        held: &mut Held<K, T>,
        (start, end): (&K::Key, Option<&K::Key>),
        limit: usize,
        within: Duration,
        mut take: impl FnMut(&Scan<'_, K>) -> R,
    ) -> Result<Option<R>, ClientError> {
        let mut goes_on = self.patience(within);
        let scanned = self.with_table(held, within, |buffers, table| {
            let mut scan =
                Scan::new(table.view(), &mut buffers.scan, start, limit).with_groups(table.groups());
            if let Some(end) = end {
                scan = scan.until(end);
            }
            drive_while(&mut buffers.endpoint, &mut scan, &mut goes_on)?;
            Ok(Some(take(&scan)))
        });
        or_of_empty(scanned, None)
    }
}
