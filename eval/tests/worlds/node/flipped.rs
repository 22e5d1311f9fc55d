//! A memory node in whose region bits flip, and its disk.

use fpcache_eval::history::keys::NumberedKeys;
use fpcache_memserver::durability::Disk;

use super::Stage;
use crate::flips::Flipped;

impl<K: NumberedKeys> Stage<K> {
    /// What has flipped in its region; from here on nothing does if it `is_over`.
    pub fn flipped(&self, is_over: bool) -> Flipped {
        let mut kept = self.kept();
        kept.flipped.is_over |= is_over;
        kept.flipped.clone()
    }

    /// A write of a key was done that began after `flips` flips.
    pub fn is_written(&self, key: u64, flips: u64) {
        self.kept().flipped.is_written(key, flips);
    }

    /// The next life finds the notes of this one, and no region.
    pub fn move_region_away(&self) {
        self.kept().region_is_away = true;
    }

    pub fn want_snapshot(&self) {
        self.kept().wants_snapshot = true;
    }

    /// The snapshots on the disk.
    pub fn snapshots(&self) -> Vec<String> {
        let names = self.kept().disk.list().unwrap();
        names.into_iter().filter(|name| name.ends_with(".fps")).collect()
    }
}
