//! Options of how data sets are opened.

use std::path::PathBuf;

use clap::Args;
use fpcache_datasets::{Bar, OpenOptions, Unsorted};

/// What every command that reads data sets takes.
#[derive(Args)]
pub(super) struct SourceArgs {
    /// Seed of generators and samples.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Folder with published files.
    #[arg(long = "datasets-dir", env = "FPCACHE_DATASETS", value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Length of every key, for ycsb (at least 23) and binary.
    #[arg(long, value_name = "BYTES")]
    key_bytes: Option<usize>,
    /// What to do with a file of unsorted lines: sort or refuse.
    #[arg(long, value_name = "POLICY", default_value_t)]
    unsorted: Unsorted,
}

impl SourceArgs {
    pub(super) fn options<'a>(&self, bar: &'a Bar) -> OpenOptions<'a> {
        OpenOptions {
            seed: self.seed,
            duplicates: None,
            unsorted: self.unsorted,
            key_bytes: self.key_bytes,
            data_dir: self.data_dir.clone(),
            progress: Some(bar),
        }
    }
}
