//! A memory node whose disk fails.

use fpcache_eval::history::keys::NumberedKeys;

use super::Stage;
use crate::disk::Trouble;
use crate::failing_disks::Disks;

impl<K: NumberedKeys> Stage<K> {
    /// Its disk has this trouble until it has none any more.
    pub fn trouble_to_the_end(&self, trouble: Trouble) {
        let mut kept = self.kept();
        let mut random = kept.random.split();
        kept.troubles.begin(trouble, &kept.disk, &mut random);
        kept.troubles.stay();
    }

    /// Its disk is mended for good.
    pub fn end_of_troubles(&self) {
        let kept = self.kept();
        kept.troubles.mend(&kept.disk);
        kept.troubles.stay();
    }

    /// Adds what became of its disk.
    pub fn add_disk_to(&self, disks: &mut Disks) {
        let kept = self.kept();
        disks.refused_starts += kept.refused_starts;
        disks.went_back += kept.went_back;
        for (trouble, changes) in kept.troubles.failed() {
            *disks.failed.entry(trouble).or_default() += changes;
        }
    }
}
