//! READs of external values by scans in either direction: after the stretches, of the records that
//! are kept, in order and several with one doorbell.

use super::scratch::{Progress, ScanScratch, ScannedValue};
use crate::key_space::KeySpace;
use crate::read::external::{Extents, clear};
use crate::table_view::TableView;

/// Most bytes of values that a scan asks for with one doorbell; a value that is longer comes alone.
const SCAN_BYTES: usize = 256 << 10;

/// The outcome of asking for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValuesRequest {
    /// They are on their way.
    Posted,
    /// There are enough for once.
    Enough,
    /// The first of them lies where none can: its slot is to be read again.
    Impossible,
}

impl<K: KeySpace> ScanScratch<K> {
    /// Asks for the next values that are missing, in order.
    #[cold]
    pub(super) fn ask_for_values(&mut self, view: &TableView<K>, progress: &mut Progress) -> ValuesRequest {
        // A caller that goes on from where the scan stops must make progress.
        if progress.whole > 0 && self.is_enough() {
            return ValuesRequest::Enough;
        }
        let of_table = Extents::of(view);
        let Self { batch, stretches, records, extents, landings, .. } = self;
        batch.clear();
        stretches.clear();
        landings.clear();
        let mut left = SCAN_BYTES;
        for found in records[progress.whole..].iter().filter(|found| !found.value.is_here()) {
            let Some((from, bytes)) = of_table.place(extents[found.value.start]) else { break };
            if bytes > left && !landings.is_empty() {
                break;
            }
            left = left.saturating_sub(bytes);
            landings.push(batch.read(from, bytes));
            progress.cost.reads += 1;
            progress.cost.bytes += bytes as u64;
        }
        if landings.is_empty() {
            return ValuesRequest::Impossible;
        }
        progress.cost.round_trips += 1;
        ValuesRequest::Posted
    }

    /// Takes the values that arrived, in order. `false` if one is not what its slot said: the scan
    /// goes on from there.
    #[cold]
    pub(super) fn take_values(&mut self, view: &TableView<K>, progress: &mut Progress) -> bool {
        let of_table = Extents::of(view);
        let Self { batch, records, arena, extents, landings, .. } = self;
        let mut landings = landings.drain(..);
        let mut is_proven = true;
        for found in &mut records[progress.whole..] {
            if !found.value.is_here() {
                let Some(landing) = landings.next() else { break };
                let value = of_table.value(extents[found.value.start], batch.bytes(landing));
                let Some(value) = value else {
                    is_proven = false;
                    break;
                };
                found.value = ScannedValue::of(value, arena);
                progress.attempts = 0;
            }
            progress.whole += 1;
        }
        drop(landings);
        clear(batch);
        is_proven
    }
}
