//! Least recently used, about: a level tells how long ago an entry's last hit was, measured in
//! newcomers.

use crate::cache::bucket::TOP_LEVEL;
use crate::cache::replacement::Replacement;

/// A hit sets the level to the top, and every other newcomer lowers the whole bucket by one.
#[derive(Debug)]
pub(super) struct Lru;

impl Replacement for Lru {
    const FIRST_LEVEL: u32 = TOP_LEVEL;

    #[inline]
    fn after_hit(_: u32, _: u64) -> u32 {
        TOP_LEVEL
    }

    #[inline]
    fn lowers(_: usize, _: usize, chance: u64) -> bool {
        chance & 1 == 0
    }

    #[inline]
    fn admits(_: u32, _: i64, _: u64) -> bool {
        true
    }
}
