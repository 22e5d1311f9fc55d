//! Verification of files of lines.

use std::path::Path;

use super::lines::{LineReader, STEP};
use crate::error::DatasetError;
use crate::progress::{Progress, during};

/// What [`verify`] found of a file whose lines can all be keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedLines {
    /// Number of lines.
    pub keys: u64,
    /// Bytes of the shortest and the longest.
    pub lengths: (usize, usize),
    /// Lines below the one before them.
    pub unsorted: u64,
    /// Lines equal to the one before them: all that repeat another, where the file is sorted.
    pub duplicates: u64,
    /// MD5 of the decompressed content.
    pub md5: String,
}

/// Reads a file of lines once, in a small buffer, checking that each can be a key and computing the
/// MD5 of its decompressed content.
///
/// # Errors
/// [`DatasetError`] of kind `Io` or `BadFile`; not for lines out of order or equal, which are
/// counted.
pub fn verify(path: &Path, progress: Option<&dyn Progress>) -> Result<VerifiedLines, DatasetError> {
    let reader = LineReader::open(path, true)?;
    during(progress, "verifying", 0, || verify_lines(reader, path, progress))
}

fn verify_lines(
    mut reader: LineReader,
    path: &Path,
    progress: Option<&dyn Progress>,
) -> Result<VerifiedLines, DatasetError> {
    let (mut shortest, mut longest) = (usize::MAX, 0);
    let (mut unsorted, mut duplicates) = (0, 0);
    let mut previous = Vec::new();
    while let Some(key) = reader.next_line()? {
        shortest = shortest.min(key.len());
        longest = longest.max(key.len());
        unsorted += u64::from(key < &previous[..]);
        duplicates += u64::from(key == &previous[..]);
        previous.clear();
        previous.extend_from_slice(key);
        if let Some(progress) = progress.filter(|_| reader.line().is_multiple_of(STEP)) {
            progress.advance(reader.line());
        }
    }
    let keys = reader.line();
    if keys == 0 {
        return Err(DatasetError::NoLines { path: path.to_owned() });
    }
    let md5 = reader.md5().unwrap_or_default();
    Ok(VerifiedLines { keys, lengths: (shortest, longest), unsorted, duplicates, md5 })
}
