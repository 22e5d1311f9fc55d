//! The places of a memory node's files.

use std::path::PathBuf;

/// The region's file, and that of the recovery area.
pub(crate) const REGION_FILE: &str = "region.fpr";
pub(crate) const RECOVERY_AREA_FILE: &str = "notes.fpn";
/// What a recovery area is called before it takes the place of another.
pub(crate) const NEW_RECOVERY_AREA_FILE: &str = "notes.new";

/// Where a memory node's files lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// Log, snapshots and recovery area.
    pub data: PathBuf,
    /// The region, which may be larger than the disk: a folder on tmpfs or hugetlbfs will do.
    pub region: PathBuf,
}

impl Folders {
    /// The region's file.
    pub fn region_file(&self) -> PathBuf {
        self.region.join(REGION_FILE)
    }

    /// The recovery area's file.
    pub fn notes_file(&self) -> PathBuf {
        self.data.join(RECOVERY_AREA_FILE)
    }
}
