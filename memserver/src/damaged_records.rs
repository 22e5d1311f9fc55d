//! Damaged records and values that the newest snapshot was written without.
//!
//! The disk does not have it whole. So later snapshots may be without it too, which else wait until
//! it is written or deleted. This is kept in the recovery area: a start that reads the snapshot has
//! nothing damaged in memory.
//!
//! ```text
//! 0 XXH3-64 of what follows u64 · 8 how many u64 (u64::MAX: more than there is room for)
//! 16 of each: its place u64 · what was there u64
//! ```

use std::sync::Arc;

use fpcache_fabric::{AccessError, NodeMemory};
use xxhash_rust::xxh3::xxh3_64;

use crate::recovery_area::{LEFT_OUT, LEFT_OUT_BYTES};
use crate::table::error::DamagedRecord;

/// As many as there is room for.
const MOST: usize = (LEFT_OUT_BYTES - 16) / 16;
/// A number of records that are not all named.
const UNCOUNTED: u64 = u64::MAX;

/// Damaged records that the newest snapshot is without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Their identities.
    records: Vec<(u64, u64)>,
    /// Whether there are more, any of which may be left out.
    has_more: bool,
}

impl LeftOut {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && !self.has_more
    }

    pub(crate) fn has(&self, damaged: &DamagedRecord) -> bool {
        self.has_more || self.records.contains(&damaged.identity)
    }

    pub(crate) fn add(&mut self, damaged: &DamagedRecord) {
        self.add_identity(damaged.identity);
    }

    pub(crate) fn add_all(&mut self, others: &Self) {
        self.has_more |= others.has_more;
        others.records.iter().for_each(|identity| self.add_identity(*identity));
    }

    fn add_identity(&mut self, identity: (u64, u64)) {
        if self.records.contains(&identity) {
            return;
        }
        if self.records.len() < MOST { self.records.push(identity) } else { self.has_more = true }
    }

    /// Writes it into a recovery area. A process that ends meanwhile leaves records uncounted.
    pub(crate) fn note<M: NodeMemory>(&self, recovery_area: &Arc<M>) -> Result<(), AccessError> {
        let count = if self.has_more { UNCOUNTED } else { self.records.len() as u64 };
        let named = self.records.iter().flat_map(|(place, was)| [*place, *was]);
        let bytes: Vec<u8> = std::iter::once(count).chain(named).flat_map(u64::to_le_bytes).collect();
        recovery_area.store_release(LEFT_OUT + 8, UNCOUNTED)?;
        recovery_area.release();
        recovery_area.store_release(LEFT_OUT, xxh3_64(&bytes))?;
        recovery_area.release();
        recovery_area.write_bytes(LEFT_OUT + 16, &bytes[8..])?;
        recovery_area.release();
        recovery_area.store_release(LEFT_OUT + 8, count)
    }

    /// What was written into a recovery area.
    pub(crate) fn noted<M: NodeMemory>(recovery_area: &Arc<M>) -> Result<Self, AccessError> {
        let count = recovery_area.load_acquire(LEFT_OUT + 8)?;
        if count == 0 {
            return Ok(Self::default());
        }
        let uncounted = Self { records: Vec::new(), has_more: true };
        if count > MOST as u64 {
            return Ok(uncounted);
        }
        let mut bytes = vec![0; 8 + 16 * count as usize];
        recovery_area.read_bytes(LEFT_OUT + 8, &mut bytes)?;
        if recovery_area.load_acquire(LEFT_OUT)? != xxh3_64(&bytes) {
            return Ok(uncounted);
        }
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let records = words[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Ok(Self { records, has_more: false })
    }
}

#[cfg(test)]
mod tests {
    use fpcache_fabric::SharedMemory;

    use super::*;

    #[test]
    fn what_is_noted_is_read_again_and_what_cannot_be_read_counts_as_uncounted() {
        let memory = Arc::new(SharedMemory::anonymous(4096).expect("memory"));
        assert_eq!(
            LeftOut::noted(&memory),
            Ok(LeftOut::default()),
            "of a memory node that knew nothing of it"
        );
        let mut left_out = LeftOut::default();
        for at in 0..MOST as u64 {
            left_out.add_identity((8 * at, at));
            left_out.add_identity((8 * at, at));
            left_out.note(&memory).expect("inside");
            assert_eq!(LeftOut::noted(&memory).as_ref(), Ok(&left_out));
        }
        memory.store_relaxed(LEFT_OUT + 16, 7).expect("inside");
        let uncounted = LeftOut { records: Vec::new(), has_more: true };
        assert_eq!(LeftOut::noted(&memory), Ok(uncounted.clone()), "it was damaged");
        left_out.add_identity((1 << 20, 0));
        left_out.note(&memory).expect("inside");
        assert_eq!(LeftOut::noted(&memory), Ok(uncounted));
        LeftOut::default().note(&memory).expect("inside");
        assert_eq!(LeftOut::noted(&memory), Ok(LeftOut::default()));
    }
}
