//! The data set that `load` and `verify` take, and options to open it.

use std::path::PathBuf;

use clap::Args;
use fpcache_client::KeyKind;
use fpcache_datasets::{Bar, Duplicates, KeySet, OpenOptions, Spec, SpecKind, Unsorted};

use crate::keys::Keys;
use crate::parameters::Length;

#[derive(Debug, Args)]
pub(crate) struct Data {
    /// Data set: of u64 keys fb:16M, wiki, osm, books, ipv4, uniform:1M, normal:1M, lognormal:1M,
    /// sequential:1M or sosd:PATH; of byte strings words, domains:1M, paths:1M, ycsb:1M, binary:1M,
    /// prefixes:1M or lines:PATH
    #[arg(value_name = "DATASET")]
    spec: Spec,

    /// Bytes of every key, for the generated sets ycsb (at least 23) and binary; or vary, for a
    /// table that takes keys of any length [default: the length of the data set's keys, or vary if
    /// they differ]
    #[arg(long, value_name = "BYTES")]
    key_bytes: Option<Length>,

    /// Value of a key that occurs twice: refuse, first, last or sum [default: refuse; first for
    /// wiki]
    #[arg(long, value_name = "POLICY")]
    duplicates: Option<Duplicates>,

    /// What to do with a file of unsorted lines: sort or refuse
    #[arg(long, value_name = "POLICY", default_value_t)]
    unsorted: Unsorted,

    /// Seed of generators and samples
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// Folder with published data sets
    #[arg(long = "datasets-dir", value_name = "FOLDER", env = "FPCACHE_DATASETS")]
    data_dir: Option<PathBuf>,
}

/// What a data set's keys are.
pub(crate) fn kind_of_set(spec: &Spec) -> KeyKind {
    match spec.key_kind() {
        fpcache_datasets::KeyKind::U64 => KeyKind::U64,
        fpcache_datasets::KeyKind::Bytes => KeyKind::Bytes,
    }
}

impl Data {
    /// The kind of the data set's keys.
    pub(crate) fn key_kind(&self) -> KeyKind {
        kind_of_set(&self.spec)
    }

    /// How many keys there will be, if that is known.
    pub(crate) fn count(&self) -> Option<u64> {
        let is_generated = matches!(
            self.spec.kind(),
            SpecKind::Uniform | SpecKind::Normal | SpecKind::Lognormal | SpecKind::Sequential
        );
        self.spec.count().filter(|_| is_generated)
    }

    /// Whether the table takes keys of any length, regardless of the data set's.
    pub(crate) fn wants_any_length(&self) -> bool {
        self.key_bytes == Some(Length::Vary)
    }

    /// Reads or generates the data set, and prints its notes.
    pub(crate) fn open<K: Keys>(&self, bar: &Bar) -> anyhow::Result<K::Set> {
        let key_bytes = match self.key_bytes {
            Some(Length::Bytes(bytes)) => Some(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Some(Length::Vary) | None => None,
        };
        let dataset = K::open(
            &self.spec,
            &OpenOptions {
                seed: self.seed,
                duplicates: self.duplicates,
                unsorted: self.unsorted,
                key_bytes,
                data_dir: self.data_dir.clone(),
                progress: Some(bar),
            },
        )?;
        dataset.notes().iter().for_each(|note| eprintln!("note: {note}"));
        Ok(dataset)
    }
}
