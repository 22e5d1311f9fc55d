//! Halving of a full leaf while its fingerprints are locked.

use super::{DmTree, HEAD, LEAF, RECORD, SPAN, Stage, TABLE, TABLE_BYTES, Task, USED, fingerprint, table_of};
use crate::words::{Next, Turn};

impl DmTree {
    /// WRITEs the right half of a full leaf with one record more, and its fingerprints, which this
    /// compute node owns.
    pub(super) fn halve(&mut self, task: &mut Task, leaf: &[u64], turn: &mut Turn<'_>) -> Next {
        let new = [turn.operation.key(), turn.operation.written().unwrap_or(0), USED];
        let mut records: Vec<[u64; RECORD]> = leaf.as_chunks::<RECORD>().0.to_vec();
        records.push(new);
        records.sort_unstable();
        let mut right = records.split_off(records.len() / 2);
        let middle = right[0][0];
        let sibling = turn.memory.allocate(LEAF, self.leaf_bytes() as u64);
        let at = turn.memory.allocate_on_compute(turn.compute, TABLE);
        self.owned[turn.compute] += TABLE_BYTES as u64;
        let (high, next) = (task.under_lock[2], task.under_lock[3]);
        let table = table_of(right.iter().map(|record| record[0]), sibling, (high, next));
        right.resize(SPAN, [0; RECORD]);
        turn.trip.write(sibling, right.as_flattened(), self.leaf_bytes());
        turn.trip.and_write(sibling + (SPAN * RECORD) as u64, &[high, next]);
        turn.trip.write(at, &table, TABLE_BYTES);
        // Of the old leaf the lower records stay where they are; the new one takes the place of one
        // that has moved.
        let entries = leaf.as_chunks::<RECORD>().0;
        let mut kept = 0u32;
        let mut bytes = [0; SPAN];
        for (entry, [key, ..]) in entries.iter().enumerate().filter(|(_, [key, ..])| *key < middle) {
            kept |= 1 << entry;
            bytes[entry] = fingerprint(*key);
        }
        if new[0] < middle {
            let entry = (!kept).trailing_zeros();
            kept |= 1 << entry;
            bytes[entry as usize] = fingerprint(new[0]);
            task.added = Some((entry, new));
        }
        task.becomes = vec![0, task.leaf, middle, at];
        task.becomes.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
        task.sibling = (middle, at);
        task.stage = Stage::Sibling(kept);
        Next::Trip
    }

    /// Leaves the entries in a halved leaf that stay there, and the one that was to be added.
    pub(super) fn clear_moved(&self, task: &mut Task, kept: u32, turn: &mut Turn<'_>) -> Next {
        // Scans see all of this or nothing.
        let fence = task.leaf + (SPAN * RECORD) as u64;
        turn.trip.write(fence, &task.becomes[2..HEAD], self.leaf_bytes());
        let entry_at = |entry: u32| task.leaf + u64::from(entry) * RECORD as u64;
        if let Some((entry, record)) = task.added {
            turn.trip.and_write(entry_at(entry), &record);
        }
        // Those that have moved must not be found by old copies of the fingerprints.
        for entry in (0..SPAN as u32).filter(|entry| kept >> entry & 1 == 0) {
            turn.trip.and_write(entry_at(entry), &[0; RECORD]);
        }
        task.stage = Stage::Cleared;
        Next::Trip
    }
}
