//! A writer of files of lines.

use std::path::Path;

use crate::content::Output;
use crate::error::DatasetError;

/// Bytes collected per write.
const STEP: usize = 1 << 16;

/// Writes one key per line, into a file that takes its name in [`finish`](Self::finish). An error, a panic or a dropped writer leaves nothing behind.
pub struct LinesWriter {
    output: Output,
    count: u64,
    bytes: u64,
    pending: Vec<u8>,
}

impl LinesWriter {
    /// Begins a file. `replace` allows an existing file to be replaced.
    ///
    /// # Errors
    /// [`DatasetError::Exists`], [`DatasetError::CompressedOutput`] for a name ending in `.gz` or
    /// `.zst`, or `Io`.
    pub fn create(path: &Path, replace: bool) -> Result<Self, DatasetError> {
        let output = Output::create(path, replace)?;
        Ok(Self { output, count: 0, bytes: 0, pending: Vec::new() })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// [`DatasetError::NewlineInKey`], or `Io`.
    pub fn push(&mut self, key: &[u8]) -> Result<(), DatasetError> {
        if key.contains(&b'\n') {
            return Err(DatasetError::NewlineInKey {
                path: self.output.path().to_owned(),
                index: self.count,
            });
        }
        self.pending.extend_from_slice(key);
        self.pending.push(b'\n');
        self.count += 1;
        self.bytes += key.len() as u64 + 1;
        if self.pending.len() >= STEP {
            self.flush()?;
        }
        Ok(())
    }

    /// Syncs the file and gives it its name. Returns the number of lines and of bytes.
    ///
    /// # Errors
    /// [`DatasetError::NoLines`] without keys, [`DatasetError::Exists`] if the name was taken
    /// meanwhile, or `Io`.
    pub fn finish(mut self) -> Result<(u64, u64), DatasetError> {
        if self.count == 0 {
            return Err(DatasetError::NoLines { path: self.output.path().to_owned() });
        }
        self.flush()?;
        self.output.finish(|_| Ok(()))?;
        Ok((self.count, self.bytes))
    }

    fn flush(&mut self) -> Result<(), DatasetError> {
        self.output.write(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}
