//! A shard of the pages that are kept, within a number of bytes.

use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::Page;
use crate::key_space::KeySpace;
use crate::layout::DirectoryPage;

/// A share of the pages that are kept, the least recently used the first to go, behind one lock. On
/// cache lines of its own, so that threads in different shards do not disturb each other.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard<K: KeySpace> {
    kept: Mutex<PageCache<K>>,
    /// Bytes for pages and their list nodes.
    room: usize,
    /// Most pages.
    most: usize,
}

#[derive(Debug)]
struct PageCache<K: KeySpace> {
    pages: LruCache<u32, Arc<Page<K>>, BuildHasherDefault<PageHasher>>,
    /// Bytes of the pages and their list nodes.
    bytes: usize,
}

/// Fewest pages of average size for which another shard is worth its table.
const PAGES_PER_SHARD: usize = 8;
const MAX_SHARDS: usize = 16;

/// How many shards, and how large each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardSizes {
    /// A power of two.
    pub(super) shards: usize,
    room: usize,
    most: usize,
}

impl ShardSizes {
    /// Shards that take no more than `bytes`, for a directory of `pages` pages with `segments`
    /// segments each on average. Room for at least one full page if there are
    /// [`Shard::LEAST_BYTES`], else for none.
    pub(super) fn new<K: KeySpace>(bytes: usize, pages: usize, segments: usize) -> Self {
        let average = Shard::<K>::entry_bytes(segments.clamp(1, DirectoryPage::most_descriptors::<K>()));
        let full = Shard::<K>::FULL_BYTES;
        let shards = (bytes / (PAGES_PER_SHARD * full)).clamp(1, MAX_SHARDS);
        let shards = (1 << shards.ilog2()).min(pages.next_power_of_two());
        let share = (bytes / shards).saturating_sub(Shard::<K>::FIXED_BYTES);
        let mut most = (share / average).min(pages.div_ceil(shards)).max(1);
        while most > 1 && table_bytes(2 * most) + full > share {
            most /= 2;
        }
        Self { shards, room: share.saturating_sub(table_bytes(2 * most)), most }
    }
}

impl<K: KeySpace> Shard<K> {
    /// A shard itself and the two ends of its list.
    const FIXED_BYTES: usize = size_of::<Self>() + 2 * NODE_BYTES;

    /// Bytes of one shard with room for one full page.
    pub(super) const LEAST_BYTES: usize = Self::FIXED_BYTES + table_bytes(2) + Self::FULL_BYTES;

    /// Bytes that no page exceeds: byte strings lack what they share with one another, as they do
    /// where the page lies.
    const FULL_BYTES: usize = {
        let separators = if K::FIXED_BYTES.is_some() { 0 } else { K::PAGE_BYTES };
        Self::entry_bytes(DirectoryPage::most_descriptors::<K>()) + separators
    };

    const fn entry_bytes(segments: usize) -> usize {
        NODE_BYTES + Page::<K>::shared_bytes(segments)
    }

    fn bytes_of(page: &Page<K>) -> usize {
        Self::entry_bytes(page.len()) + page.separators_bytes()
    }

    pub(super) fn new(split: ShardSizes) -> Self {
        // The table would double once the gaps that removed entries leave fill it, unless it has
        // room for twice as many.
        let capacity = NonZeroUsize::new(2 * split.most).unwrap_or(NonZeroUsize::MIN);
        let pages = LruCache::with_hasher(capacity, BuildHasherDefault::default());
        Self { kept: Mutex::new(PageCache { pages, bytes: 0 }), room: split.room, most: split.most }
    }

    /// The page, which becomes the most recently used.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<Arc<Page<K>>> {
        self.lock().pages.get(&number).map(Arc::clone)
    }

    /// Keeps a page, in the place of the least recently used ones, unless it is kept already: then
    /// that one is returned.
    pub(super) fn keep(&self, number: u32, page: Page<K>) -> Arc<Page<K>> {
        let needed = Self::bytes_of(&page);
        let mut kept = self.lock();
        if let Some(page) = kept.pages.get(&number) {
            return Arc::clone(page);
        }
        let page = Arc::new(page);
        if needed > self.room {
            return page;
        }
        while kept.bytes + needed > self.room || kept.pages.len() >= self.most {
            let Some((_, old)) = kept.pages.pop_lru() else { break };
            kept.bytes -= Self::bytes_of(&old);
        }
        kept.bytes += needed;
        kept.pages.put(number, Arc::clone(&page));
        page
    }

    /// Bytes of the shard with its table and everything that is kept.
    pub(super) fn size_in_bytes(&self) -> usize {
        self.size_with(self.lock().bytes)
    }

    /// The bytes it never exceeds.
    pub(super) fn most_bytes(&self) -> usize {
        self.size_with(self.room)
    }

    fn size_with(&self, kept: usize) -> usize {
        Self::FIXED_BYTES + table_bytes(2 * self.most) + kept
    }

    /// Pages kept.
    pub(super) fn len(&self) -> usize {
        self.lock().pages.len()
    }

    fn lock(&self) -> MutexGuard<'_, PageCache<K>> {
        // Nothing that runs under the lock panics; if it did, pages might be forgotten, not be
        // wrong.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a node of the `lru` crate's list: number, shared page, both neighbours.
const NODE_BYTES: usize = size_of::<(u32, usize, usize, usize)>();

/// Bytes of the `lru` crate's hash table for at least this many entries: a power of two of buckets,
/// an eighth of them spare, of two pointers and a control byte each; and one more group of control
/// bytes.
const fn table_bytes(capacity: usize) -> usize {
    const GROUP: usize = 16;
    let buckets = match capacity {
        0..4 => 4,
        4..8 => 8,
        8..15 => 16,
        _ => (capacity.saturating_mul(8) / 7).next_power_of_two(),
    };
    buckets.saturating_mul(2 * size_of::<usize>() + 1).saturating_add(GROUP)
}

/// Spreads page numbers: multiplication by the golden ratio (Knuth, The Art of Computer Programming
/// 3, §6.4), both halves of which the table uses.
#[derive(Clone, Copy, Debug, Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

    type Shards = Shard<U64Keys>;

    #[test]
    fn every_split_stays_within_its_bytes_and_has_room_for_a_full_page() {
        for pages in [1, 2, 3, 17, 1000, 1 << 20] {
            for segments in [0, 1, 2, 50, 102, 1000] {
                let mut bytes = Shards::LEAST_BYTES;
                while bytes < 1 << 26 {
                    let split = ShardSizes::new::<U64Keys>(bytes, pages, segments);
                    let fixed = Shards::FIXED_BYTES + table_bytes(2 * split.most);
                    assert!(split.shards * (fixed + split.room) <= bytes, "{split:?} of {bytes} bytes");
                    assert!(
                        split.room >= Shards::entry_bytes(DirectoryPage::most_descriptors::<U64Keys>()),
                        "{split:?} of {bytes}"
                    );
                    assert!(split.shards.is_power_of_two() && split.most >= 1, "{split:?}");
                    bytes = bytes * 21 / 20 + 1;
                }
            }
        }
    }

    #[test]
    fn shards_come_with_the_bytes() {
        let shards = |bytes| ShardSizes::new::<U64Keys>(bytes, 1 << 20, 102).shards;
        assert_eq!([Shards::LEAST_BYTES, 64 << 10, 256 << 10, 1 << 20].map(shards), [1, 1, 4, 16]);
        assert_eq!(ShardSizes::new::<U64Keys>(1 << 20, 3, 102).shards, 4, "no more than pages");
        let none = ShardSizes::new::<U64Keys>(0, 5, 102);
        assert_eq!((none.shards, none.room), (1, 0));
    }
}
