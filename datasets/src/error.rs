//! Errors of data sets, each with its cause and a remedy.

use std::io;
use std::path::PathBuf;

use crate::bytes::key::MAX_KEY_BYTES;
use crate::spec::KeyKind;
use crate::width::Width;

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
    /// The request does not fit the data set: too many keys asked for, width too small, target
    /// exists.
    BadRequest,
    /// The keys do not fit into memory.
    OutOfMemory,
}

/// Why a data set could not be opened, written or checked. Every text names the file, the byte
/// offset where there is one, and what to do.
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
         (before .zst, if compressed); a file with a byte string per line is written lines:PATH",
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
    #[error("{}: bad {format} data before byte offset {offset} of the content: {cause}; fetch the file again", path.display())]
    Compression {
        /// The file.
        path: PathBuf,
        /// `zstd` or `gzip`.
        format: &'static str,
        /// How much was decompressed.
        offset: u64,
        /// The decoder's words.
        cause: String,
    },
    /// More keys asked for than the data set has.
    #[error("{name} has {available} keys, but {asked} were requested; omit the count to get all")]
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
    /// What is to be replaced is a device, a pipe or a folder.
    #[error("{}: no regular file, and data sets are written to such files alone; choose another name", path.display())]
    NotRegular {
        /// Its name.
        path: PathBuf,
    },
    /// Compressed output was asked for.
    #[error(
        "{}: compressed files are read but not written; omit the suffix, then run `{program} FILE`",
        path.display()
    )]
    CompressedOutput {
        /// The file.
        path: PathBuf,
        /// What compresses files of this suffix.
        program: &'static str,
    },
    /// A file is compressed in a way that is not read.
    #[error(
        "{}: {program} files are not read: decompress it first, for example `{program} -dc FILE | fpcache-cli load lines:- --table NAME`, or \
         compress it with gzip or zstd",
        path.display()
    )]
    OtherCompression {
        /// The file.
        path: PathBuf,
        /// What decompresses it.
        program: &'static str,
    },
    /// Keys of the other kind than were asked for.
    #[error("{name} has {is} keys, but {asked} keys were requested; {}", kind_remedy(*asked))]
    WrongKind {
        /// The data set.
        name: String,
        /// The kind of its keys.
        is: KeyKind,
        /// The kind asked for.
        asked: KeyKind,
    },
    /// A key length that the data set cannot have.
    #[error("{name}: no keys of {asked} bytes: {cause}")]
    KeyBytes {
        /// The data set.
        name: String,
        /// The length asked for.
        asked: usize,
        /// Why not, and what to ask for instead.
        cause: String,
    },
    /// A line without a key.
    #[error(
        "{}: line {line} is empty, but a key has 1 to {MAX_KEY_BYTES} bytes; remove empty lines, for example with \
         `grep -a .`",
        path.display()
    )]
    EmptyLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
    /// A line longer than a key may be.
    #[error(
        "{}: line {line} is longer than {MAX_KEY_BYTES} bytes, the maximum length of a key; shorten or remove it, and \
         make sure that the file has one key per line",
        path.display()
    )]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
    /// A file without a line.
    #[error("{}: empty: there are no lines, and so nothing to look up; use a file with keys", path.display())]
    NoLines {
        /// The file.
        path: PathBuf,
    },
    /// A line below the one before it, where this was to be refused.
    #[error(
        "{}: not sorted: line {line} is below the line before it; sort the file with `LC_ALL=C sort`, or let it be \
         sorted while it is read: --unsorted sort",
        path.display()
    )]
    UnsortedLines {
        /// The file.
        path: PathBuf,
        /// The first such line, from 1.
        line: u64,
    },
    /// Equal lines where no policy was given.
    #[error(
        "{}: duplicates: line {line} is the same as line {first}; remove one with `LC_ALL=C sort -u`, or say what a \
         duplicate means with --duplicates first, last or sum",
        path.display()
    )]
    DuplicateLines {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The earlier line that it repeats.
        first: u64,
    },
    /// A key that would be two lines.
    #[error(
        "{}: key {index} contains a newline, so that it cannot be written as a line; only data sets of text can",
        path.display()
    )]
    NewlineInKey {
        /// The file.
        path: PathBuf,
        /// The position of the key among those written, from 0.
        index: u64,
    },
    /// The keys do not fit into memory.
    #[error(
        "{name}: no memory for {keys} keys ({bytes} bytes); ask for fewer by a count after the name, as in uniform:1M"
    )]
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
            | Self::Compression { .. }
            | Self::EmptyLine { .. }
            | Self::LongLine { .. }
            | Self::NoLines { .. }
            | Self::UnsortedLines { .. } => ErrorKind::BadFile,
            Self::Duplicates { .. } | Self::DuplicateLines { .. } => ErrorKind::Duplicates,
            Self::TooMany { .. }
            | Self::TooWide { .. }
            | Self::Exists { .. }
            | Self::NotRegular { .. }
            | Self::CompressedOutput { .. }
            | Self::OtherCompression { .. }
            | Self::WrongKind { .. }
            | Self::KeyBytes { .. }
            | Self::NewlineInKey { .. } => ErrorKind::BadRequest,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        }
    }
}

fn kind_remedy(asked: KeyKind) -> &'static str {
    match asked {
        KeyKind::U64 => "take a data set of u64 keys, such as fb:16M, or use a table of byte strings",
        KeyKind::Bytes => {
            "take a data set of byte strings, such as words or lines:PATH, or use a table of u64 keys"
        }
    }
}
