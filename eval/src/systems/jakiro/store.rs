//! The partition of one server thread: buckets of eight slots, which evict the least recently used
//! pair.

/// Slots of a bucket.
pub const SLOTS: usize = 8;

/// What a bucket keeps of a pair: 32 bits of its key's hash, and where it lies. The one used last
/// comes first.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u32,
    /// The pair's number from 1; 0 is free, and no slot in use follows it.
    pair: u32,
}

/// The pairs of one server thread, which no other thread reads or writes.
#[derive(Debug)]
pub struct Partition {
    /// A cache line each.
    buckets: Vec<[Slot; SLOTS]>,
    /// Length of the key in two bytes, key, value.
    pairs: Vec<Box<[u8]>>,
}

/// The hash of a key. Its high bits choose the partition, the rest the bucket.
pub fn hash(key: &[u8]) -> u64 {
    cityhasher::hash(key)
}

/// Which of `partitions` partitions has the key.
pub fn partition_of(hash: u64, partitions: usize) -> usize {
    ((u128::from(hash) * partitions as u128) >> 64) as usize
}

/// Which of the `buckets` buckets of its partition has it.
pub fn bucket_of(hash: u64, buckets: usize) -> usize {
    (((hash & u64::from(u32::MAX)) * buckets as u64) >> 32) as usize
}

impl Partition {
    /// An empty one.
    pub fn new(buckets: usize) -> Self {
        Self { buckets: vec![Default::default(); buckets.max(1)], pairs: Vec::new() }
    }

    /// The value of a key, which is the one used last from here on.
    pub fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        let (bucket, slot) = self.find(key)?;
        let slots = &mut self.buckets[bucket];
        slots[..=slot].rotate_right(1);
        let pair = &self.pairs[slots[0].pair as usize - 1];
        Some(&pair[2 + key.len()..])
    }

    /// Stores a pair. In a full bucket it takes the place of the one used longest ago, and `true`
    /// says so.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        let length = (key.len() as u16).to_le_bytes();
        let pair: Box<[u8]> = [&length, key, value].concat().into();
        if let Some((bucket, slot)) = self.find(key) {
            let slots = &mut self.buckets[bucket];
            slots[..=slot].rotate_right(1);
            self.pairs[slots[0].pair as usize - 1] = pair;
            return false;
        }
        let hash = hash(key);
        let bucket = bucket_of(hash, self.buckets.len());
        let slots = &mut self.buckets[bucket];
        slots.rotate_right(1);
        let evicted = slots[0].pair;
        let number = match evicted {
            0 => {
                self.pairs.push(pair);
                self.pairs.len() as u32
            }
            number => {
                self.pairs[number as usize - 1] = pair;
                number
            }
        };
        slots[0] = Slot { tag: tag_of(hash), pair: number };
        evicted != 0
    }

    fn find(&self, key: &[u8]) -> Option<(usize, usize)> {
        let hash = hash(key);
        let (bucket, tag) = (bucket_of(hash, self.buckets.len()), tag_of(hash));
        let is_it = |slot: &Slot| {
            let pair = || &self.pairs[slot.pair as usize - 1];
            slot.pair != 0 && slot.tag == tag && key_of(pair()) == key
        };
        self.buckets[bucket].iter().position(is_it).map(|slot| (bucket, slot))
    }
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn key_of(pair: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_le_bytes([pair[0], pair[1]]));
    &pair[2..2 + length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_bucket_gives_up_the_pair_used_longest_ago() {
        let mut partition = Partition::new(1);
        let key = |number: u8| [number; 3];
        for number in 0..8 {
            assert!(!partition.put(&key(number), &[number]));
        }
        assert_eq!(partition.get(&key(0)), Some(&[0][..]));
        assert!(!partition.put(&key(1), b"new"), "it is replaced");
        assert!(partition.put(&key(8), &[8]), "2 is the one used longest ago");
        assert_eq!(partition.get(&key(2)), None);
        assert!(partition.put(&key(9), &[9]), "and then 3");
        let left: Vec<u8> = (0..10).filter(|number| partition.get(&key(*number)).is_some()).collect();
        assert_eq!(left, [0, 1, 4, 5, 6, 7, 8, 9]);
        assert_eq!(partition.get(&key(1)), Some(&b"new"[..]));
    }

    #[test]
    fn pairs_are_those_of_a_map_while_no_bucket_is_full() {
        let mut partition = Partition::new(4096);
        let mut map = std::collections::BTreeMap::new();
        for number in 0..4_000u64 {
            let key = (number * 7919 % 2_000).to_le_bytes();
            assert!(!partition.put(&key, &number.to_le_bytes()));
            map.insert(key, number.to_le_bytes());
        }
        for number in 0..3_000u64 {
            let key = number.to_le_bytes();
            assert_eq!(partition.get(&key), map.get(&key).map(|value| &value[..]));
        }
    }

    #[test]
    fn hashes_spread_over_partitions_and_buckets() {
        let mut counts = [[0; 4]; 3];
        for number in 0..12_000u64 {
            let hash = hash(&number.to_le_bytes());
            counts[partition_of(hash, 3)][bucket_of(hash, 4)] += 1;
        }
        assert!(counts.as_flattened().iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
