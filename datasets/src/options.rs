//! Options for opening a data set.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::bytes::unsorted::Unsorted;
use crate::progress::Progress;

/// How to open a data set.
#[derive(Clone)]
pub struct OpenOptions<'a> {
    /// Seed of generators and samples. 42 by default.
    pub seed: u64,
    /// What to do with equal keys; `None` refuses them, except for `wiki`, where the first counts.
    pub duplicates: Option<Duplicates>,
    /// What to do with lines out of order, in `lines:PATH`.
    pub unsorted: Unsorted,
    /// The length of every key in bytes, for `ycsb`, whose numbers are then padded with leading
    /// zeros as in YCSB, and `binary`. `None` for the default. For other sets, only `None` or the
    /// length they have is valid.
    pub key_bytes: Option<usize>,
    /// The folder with published files, plain or `.zst`: usually `$FPCACHE_DATASETS`, but the
    /// library does not read the environment.
    pub data_dir: Option<PathBuf>,
    /// Receives the progress of reading and generating.
    pub progress: Option<&'a dyn Progress>,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self {
            seed: 42,
            duplicates: None,
            unsorted: Unsorted::default(),
            key_bytes: None,
            data_dir: None,
            progress: None,
        }
    }
}

impl fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("seed", &self.seed)
            .field("duplicates", &self.duplicates)
            .field("unsorted", &self.unsorted)
            .field("key_bytes", &self.key_bytes)
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

/// What to do with equal keys. A key's value is its position in the data set, counted with
/// duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duplicates {
    /// They are an error.
    Refuse,
    /// The first position counts.
    First,
    /// The last position counts.
    Last,
    /// The sum of all positions counts (wrapping), as in SOSD.
    Sum,
}

/// An unknown policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a policy for duplicates; write refuse, first, last or sum")]
pub struct ParseDuplicatesError(String);

impl FromStr for Duplicates {
    type Err = ParseDuplicatesError;

    fn from_str(text: &str) -> Result<Self, ParseDuplicatesError> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "first" => Ok(Self::First),
            "last" => Ok(Self::Last),
            "sum" => Ok(Self::Sum),
            _ => Err(ParseDuplicatesError(text.to_owned())),
        }
    }
}

impl fmt::Display for Duplicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refuse => "refuse",
            Self::First => "first",
            Self::Last => "last",
            Self::Sum => "sum",
        })
    }
}
