//! A client's scans: by doorbell batches, range after range where the table has several memory
//! nodes.

use std::borrow::Borrow;
use std::sync::Arc;

use fpcache::read::{ReadError, Scan};

use super::client::Client;
use super::keys::Numbered;
use crate::bench::Answer;

/// How often a scan that does not get on brings the table up to date: only the table answers scans.
const REFRESHES: u32 = 64;

/// Records that were found: numbers that stand for keys, and the first 8 bytes of values.
type Records = Vec<(u64, u64)>;

impl<K: Numbered> Client<K> {
    pub(super) async fn scan(&mut self, key: u64, count: usize) -> Answer {
        let mut records = Records::with_capacity(count);
        let mut from = K::of_number(key, self.shared.sizes.key);
        for node in self.shared.node_of(key)..self.shared.nodes.len() {
            match self.scan_range(node, from, count, &mut records).await {
                // What it began with is below whatever another range has.
                Ok(begun) => from = begun,
                Err(why) => return Answer::Failed(why),
            }
            if records.len() == count {
                break;
            }
        }
        Answer::Records(records)
    }

    /// Scans the range of a memory node; gives back where the last attempt began.
    async fn scan_range(
        &mut self,
        node: usize,
        mut from: K::Owned,
        count: usize,
        records: &mut Records,
    ) -> Result<K::Owned, String> {
        let mut stale = 0;
        loop {
            let held = self.shared.held(self.me, node);
            let (table, version) = (Arc::clone(&held.table.borrow()), held.version.get());
            let mut scratch = std::mem::take(&mut self.scan);
            let mut scan = Scan::new(table.view(), &mut scratch, from.borrow(), count - records.len())
                .with_groups(table.groups());
            let ended = self.drive(node, &mut scan).await;
            let uncovered = scan.uncovered().map(|(from, _)| from);
            let found = scan.records().map(|(key, value)| {
                let word = value.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                (K::number_of(key), word)
            });
            records.extend(found);
            self.scan = scratch;
            let Some(next) = uncovered else { return Ok(from) };
            if next != from {
                (from, stale) = (next, 0);
            }
            match ended {
                Ok(()) | Err(ReadError::Contended { .. }) => {}
                Err(error @ ReadError::Stale) => {
                    stale += 1;
                    if stale > REFRESHES {
                        return Err(error.to_string());
                    }
                    let has_newer = self.catch_up(node, version).await.map_err(|error| error.to_string())?;
                    if !has_newer {
                        self.ask_for_directory(node).await;
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}
