//! What can go wrong with a data set, each with its cause and a remedy.

use std::io;
use std::path::PathBuf;

use crate::sosd::Width;

/// Coarse classes of [`DatasetError`], for callers that decide by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused: missing file, permission, full disk.
    Io,
    /// The file's content contradicts the format.
    BadFile,
    /// The file has duplicates and no policy was given.
    Duplicates,
    /// The request does not fit the data set: too many keys asked for, width too small, target exists.
    BadRequest,
    /// The keys do not fit into memory.
    OutOfMemory,
}

/// Why a data set could not be opened, written or checked. Every text names the file, the byte offset where there
/// is one, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// Reading, creating or renaming a file failed.
    #[error("{}: {action} failed: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A `sosd:` path or data set file does not exist.
    #[error("{}: no such file; check the path, or see `fpcache-datasets list` for what can be downloaded", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file name says neither `_uint32` nor `_uint64`.
    #[error(
        "{}: cannot tell the key width; SOSD files are named by it, so rename the file to end in _uint32 or _uint64 \
         (before .zst, if compressed)",
        path.display()
    )]
    UnknownWidth {
        /// The file.
        path: PathBuf,
    },
    /// The size of the file fits the other width.
    #[error(
        "{}: named {named} but at byte offset {offset} its size fits {count} keys of {actual}; rename the file to end in \
         _{actual}",
        path.display()
    )]
    WrongWidth {
        /// The file.
        path: PathBuf,
        /// Width by name.
        named: Width,
        /// Width by size.
        actual: Width,
        /// The count in the header.
        count: u64,
        /// Where the content departs from what the name promises.
        offset: u64,
    },
    /// The file ends before the count's last key.
    #[error(
        "{}: truncated at byte offset {offset}: the header at offset 0 promises {expected}; fetch or generate the \
         file again, and check it with `fpcache-datasets verify`",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the file ends.
        offset: u64,
        /// What the header promises.
        expected: String,
    },
    /// The file goes on after the count's last key.
    #[error(
        "{}: miscounted: the header at offset 0 promises {count} keys, which end at byte offset {offset}, but \
         {excess} more bytes follow; correct the count or fetch the file again",
        path.display()
    )]
    Miscounted {
        /// The file.
        path: PathBuf,
        /// The count in the header.
        count: u64,
        /// Where the last promised key ends.
        offset: u64,
        /// How much follows.
        excess: u64,
    },
    /// A file with a count of zero.
    #[error("{}: empty: the count at byte offset 0 is zero; there is nothing to look up, so use a file with keys", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A key smaller than the one before it.
    #[error(
        "{}: not sorted: key {next} at byte offset {offset} follows {previous}; sort the keys ascending (if the width \
         is wrong, rename the file)",
        path.display()
    )]
    Unsorted {
        /// The file.
        path: PathBuf,
        /// Byte offset (decompressed) of the offending key.
        offset: u64,
        /// The key before it.
        previous: u64,
        /// The offending key.
        next: u64,
    },
    /// Equal keys where no policy was given.
    #[error(
        "{name}: duplicates: key {key} occurs again at byte offset {offset}; say what a duplicate means with \
         --duplicates first, last or sum"
    )]
    Duplicates {
        /// File or data set.
        name: String,
        /// The first key that occurs twice.
        key: u64,
        /// Byte offset (decompressed) of its second occurrence.
        offset: u64,
    },
    /// The compressed content is damaged.
    #[error("{}: bad zstd data before byte offset {offset} of the content: {cause}; fetch the file again", path.display())]
    Compression {
        /// The file.
        path: PathBuf,
        /// How much was decompressed.
        offset: u64,
        /// The decoder's words.
        cause: String,
    },
    /// More keys asked for than the data set has.
    #[error("{name} has {available} keys, {asked} were asked for; leave the count out to get all")]
    TooMany {
        /// The data set.
        name: String,
        /// How many there are.
        available: u64,
        /// How many were asked for.
        asked: u64,
    },
    /// A key beyond 32 bits for a `_uint32` file.
    #[error(
        "{}: key {key}, which would lie at byte offset {offset}, does not fit 32 bits; name the file _uint64 instead",
        path.display()
    )]
    TooWide {
        /// The file.
        path: PathBuf,
        /// The key.
        key: u64,
        /// Where it would lie.
        offset: u64,
    },
    /// The file to be written exists.
    #[error("{}: exists already; choose another name or give --force to replace it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Compressed output was asked for.
    #[error("{}: compressed files are read but not written; write without .zst, then run `zstd FILE`", path.display())]
    CompressedOutput {
        /// The file.
        path: PathBuf,
    },
    /// The keys do not fit into memory.
    #[error("{name}: no memory for {keys} keys ({bytes} bytes); ask for fewer, as in {name}:1M")]
    OutOfMemory {
        /// The data set.
        name: String,
        /// How many keys.
        keys: u64,
        /// Bytes they need.
        bytes: u64,
    },
}

impl DatasetError {
    /// The coarse class.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Missing { .. } => ErrorKind::Io,
            Self::UnknownWidth { .. }
            | Self::WrongWidth { .. }
            | Self::Truncated { .. }
            | Self::Miscounted { .. }
            | Self::Empty { .. }
            | Self::Unsorted { .. }
            | Self::Compression { .. } => ErrorKind::BadFile,
            Self::Duplicates { .. } => ErrorKind::Duplicates,
            Self::TooMany { .. }
            | Self::TooWide { .. }
            | Self::Exists { .. }
            | Self::CompressedOutput { .. } => ErrorKind::BadRequest,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        }
    }
}
