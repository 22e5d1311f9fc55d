//! The folder in which the memory nodes of an experiment keep their data.

use std::path::PathBuf;

use clap::Args;
use fpcache_memserver::DurableConfig;
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;

/// What keeps data. Not `--data-dir` as the memory node calls it: that one means data sets here.
#[derive(Args, Clone, Debug, Default)]
pub struct StoreArgs {
    /// Make the memory node durable, in a new folder within this one that is removed at the end
    #[arg(long, value_name = "FOLDER")]
    pub store_dir: Option<PathBuf>,

    /// With --store-dir: when writes are synced to the disk: always (before they are acknowledged),
    /// at an interval such as 10ms, or never (left to the operating system)
    #[arg(long, value_name = "WHEN", default_value = "10ms", requires = "store_dir")]
    pub fsync: SyncPolicy,
}

impl StoreArgs {
    /// The sync policy for reports; `None` if not durable.
    pub fn reported(&self) -> Option<String> {
        self.store_dir.as_ref().map(|_| self.fsync.to_string())
    }

    /// The same in a memory node's own folder. `ordinal` distinguishes those of this process.
    #[must_use]
    pub fn of_node(&self, ordinal: u32) -> Self {
        let name = format!("fpcache-eval-{}-{ordinal}", std::process::id());
        Self { store_dir: self.store_dir.as_ref().map(|folder| folder.join(name)), fsync: self.fsync }
    }

    /// As a memory node takes it, its region in the same folder unless another one is given.
    pub fn durable(&self, region: Option<PathBuf>) -> Option<DurableConfig> {
        let data = self.store_dir.clone()?;
        let region = region.unwrap_or_else(|| data.clone());
        Some(DurableConfig { folders: Folders { region, data }, sync: self.fsync })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_memory_node_has_a_folder_of_its_own_or_none() {
        let some = StoreArgs { store_dir: Some("/a".into()), fsync: SyncPolicy::Always };
        let (first, second) = (some.of_node(0).durable(None), some.of_node(1).durable(None));
        assert!(first.is_some() && first != second);
        assert_eq!(some.reported().as_deref(), Some("always"));
        let none = StoreArgs::default();
        assert_eq!((none.of_node(0).durable(None), none.reported()), (None, None));
    }
}
