//! A writer of SOSD files, which have their final name only when complete.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::content::Output;
use crate::error::DatasetError;
use crate::width::{HEADER_BYTES, Width};

/// Keys encoded per write.
const STEP: usize = 1 << 15;

/// Writes a SOSD file, which takes its name in [`finish`](Self::finish). An error, a panic or a dropped writer leaves nothing behind.
pub struct SosdWriter {
    output: Output,
    width: Width,
    count: u64,
    previous: u64,
    encoded: Vec<u8>,
}

impl SosdWriter {
    /// Begins a file, of the width that its name gives. `replace` allows an existing file to be
    /// replaced.
    ///
    /// # Errors
    /// [`DatasetError::Exists`], [`DatasetError::UnknownWidth`], [`DatasetError::CompressedOutput`]
    /// for a name ending in `.zst`, or `Io`.
    pub fn create(path: &Path, replace: bool) -> Result<Self, DatasetError> {
        let mut output = Output::create(path, replace)?;
        let width = Width::of_file(path)?;
        output.write(&[0; HEADER_BYTES as usize])?;
        Ok(Self { output, width, count: 0, previous: 0, encoded: Vec::new() })
    }

    /// Appends keys.
    ///
    /// # Errors
    /// [`DatasetError::TooWide`] for a key beyond 32 bits in a `_uint32` file,
    /// [`DatasetError::Unsorted`], or `Io`.
    pub fn push(&mut self, keys: &[u64]) -> Result<(), DatasetError> {
        for chunk in keys.chunks(STEP) {
            self.encoded.clear();
            for &key in chunk {
                let offset = HEADER_BYTES + self.count * self.width.bytes() as u64;
                if key < self.previous {
                    let (path, previous) = (self.output.path().to_owned(), self.previous);
                    return Err(DatasetError::Unsorted { path, offset, previous, next: key });
                }
                match self.width {
                    Width::U64 => self.encoded.extend_from_slice(&key.to_le_bytes()),
                    Width::U32 => match u32::try_from(key) {
                        Ok(narrow) => self.encoded.extend_from_slice(&narrow.to_le_bytes()),
                        Err(_) => {
                            let path = self.output.path().to_owned();
                            return Err(DatasetError::TooWide { path, key, offset });
                        }
                    },
                }
                self.previous = key;
                self.count += 1;
            }
            self.output.write(&self.encoded)?;
        }
        Ok(())
    }

    /// Writes the count, syncs, and gives the file its name. Returns the number of keys.
    ///
    /// # Errors
    /// [`DatasetError::Empty`] without keys, [`DatasetError::Exists`] if the name was taken
    /// meanwhile, or `Io`.
    pub fn finish(self) -> Result<u64, DatasetError> {
        if self.count == 0 {
            return Err(DatasetError::Empty { path: self.output.path().to_owned() });
        }
        let header = self.count.to_le_bytes();
        self.output.finish(|file| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)
        })?;
        Ok(self.count)
    }
}
