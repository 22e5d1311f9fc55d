//! The hotspot buffer: which entry of a leaf a hot key was last found in.

use crate::words::Address;

/// Bytes that the published buffer takes for an entry.
pub const ENTRY_BYTES: u64 = 16;

/// Entries that compete with one another.
const WAYS: usize = 8;

/// Entries of a leaf that go to one bucket together.
const GROUP: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Leaf and entry; 0 for none.
    place: u64,
    fingerprint: u16,
    uses: u16,
}

/// Counts uses; of a full bucket the least used entry goes.
#[derive(Debug)]
pub struct HotEntries {
    buckets: Vec<[Entry; WAYS]>,
}

fn place(leaf: Address, entry: usize) -> u64 {
    leaf << 6 | entry as u64
}

impl HotEntries {
    /// Of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self { buckets: vec![[Entry::default(); WAYS]; (bytes / ENTRY_BYTES) as usize / WAYS] }
    }

    /// Entries there is room for.
    pub fn capacity(&self) -> u64 {
        (self.buckets.len() * WAYS) as u64
    }

    fn bucket(&self, leaf: Address, entry: usize) -> Option<usize> {
        let group = place(leaf, entry - entry % GROUP).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (!self.buckets.is_empty()).then(|| ((u128::from(group) * self.buckets.len() as u128) >> 64) as usize)
    }

    /// Of the hot ones among these entries of a leaf, the most used that has the fingerprint.
    pub fn find(
        &self,
        leaf: Address,
        entries: impl Iterator<Item = usize>,
        fingerprint: u16,
    ) -> Option<usize> {
        let mut best: Option<(u16, usize)> = None;
        for entry in entries {
            let (place, bucket) = (place(leaf, entry), &self.buckets[self.bucket(leaf, entry)?]);
            let found = bucket.iter().find(|e| e.place == place && e.fingerprint == fingerprint);
            if let Some(found) = found
                && best.is_none_or(|(uses, _)| found.uses > uses)
            {
                best = Some((found.uses, entry));
            }
        }
        best.map(|(_, entry)| entry)
    }

    /// A key with this fingerprint was found in an entry.
    pub fn note(&mut self, leaf: Address, entry: usize, fingerprint: u16) {
        let Some(bucket) = self.bucket(leaf, entry) else { return };
        let (place, bucket) = (place(leaf, entry), &mut self.buckets[bucket]);
        if let Some(known) = bucket.iter_mut().find(|e| e.place == place) {
            known.uses = known.uses.saturating_add(1);
            known.fingerprint = fingerprint;
            return;
        }
        if let Some(least) = bucket.iter_mut().min_by_key(|e| e.uses) {
            *least = Entry { place, fingerprint, uses: 1 };
        }
    }
}
