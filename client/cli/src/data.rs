//! Which data set, and how it is opened: what `load` and `verify` share.

use std::path::PathBuf;

use clap::Args;
use fpcache_datasets::{Dataset, DatasetError, Duplicates, OpenOptions, Spec};

use crate::progress::Bar;

#[derive(Debug, Args)]
pub(crate) struct Data {
    /// Data set: fb:16M, wiki, ipv4, uniform:1M, lognormal:1M, sequential:1M or sosd:PATH
    #[arg(value_name = "DATASET")]
    spec: Spec,

    /// What a key that occurs twice is worth: refuse, first, last or sum [default: refuse; first for wiki]
    #[arg(long, value_name = "POLICY")]
    duplicates: Option<Duplicates>,

    /// Seeds generators and samples
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// The folder with published files
    #[arg(long, value_name = "FOLDER", env = "FPCACHE_DATA")]
    data_dir: Option<PathBuf>,
}

impl Data {
    /// Reads or generates the data set, and announces what is to be known about it.
    pub(crate) fn open(&self, bar: &Bar) -> Result<Dataset, DatasetError> {
        let dataset = self.spec.open(&OpenOptions {
            seed: self.seed,
            duplicates: self.duplicates,
            data_dir: self.data_dir.clone(),
            progress: Some(bar),
        })?;
        dataset.notes().iter().for_each(|note| eprintln!("note: {note}"));
        Ok(dataset)
    }
}
