//! Verification of files: the format, and the checksum of published files.

use std::path::Path;

use crate::error::DatasetError;
use crate::progress::{Progress, during};
use crate::published::{PublishedFile, by_name};
use crate::sosd::SosdReader;
use crate::width::content_name;

/// Keys read between two reports of progress.
const STEP: usize = 1 << 18;

/// What [`verify`] found of a file that is well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Number of keys.
    pub keys: u64,
    /// MD5 of the decompressed content.
    pub md5: String,
    /// The published file of this name, if there is one.
    pub published: Option<&'static PublishedFile>,
}

impl Verified {
    /// Whether the checksum is the published one; `None` for files of other names.
    pub fn matches(&self) -> Option<bool> {
        self.published.map(|file| file.md5 == self.md5)
    }
}

/// Reads a file once, checking its format and computing the MD5 of its decompressed content.
///
/// # Errors
/// [`DatasetError`] of kind `Io` or `BadFile`.
pub fn verify(path: &Path, progress: Option<&dyn Progress>) -> Result<Verified, DatasetError> {
    let mut reader = SosdReader::open_hashing(path)?;
    let total = reader.count();
    let keys = during(progress, "verifying", total, || read_all(&mut reader, progress))?;
    let md5 = reader.md5().unwrap_or_default();
    Ok(Verified { keys, md5, published: by_name(&content_name(path)) })
}

fn read_all(reader: &mut SosdReader, progress: Option<&dyn Progress>) -> Result<u64, DatasetError> {
    let mut keys = 0;
    let mut chunk = Vec::new();
    loop {
        chunk.clear();
        match reader.fill(&mut chunk, STEP)? {
            0 => return Ok(keys),
            read => keys += read as u64,
        }
        if let Some(progress) = progress {
            progress.advance(keys);
        }
    }
}
