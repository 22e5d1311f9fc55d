//! The bytes of a file, decompressed where its name says so, counted, and hashed on request.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use super::is_compressed;
use super::zst::ZstdReader;
use crate::error::DatasetError;

/// Compressed bytes buffered ahead of the decoder.
const COMPRESSED_BUFFER: usize = 1 << 17;

/// A file's content, read once from its start.
pub(super) struct Bytes {
    path: PathBuf,
    content: Box<dyn Read + Send>,
    compressed: bool,
    /// The content's length, where the file system knows it.
    length: Option<u64>,
    offset: u64,
    digest: Option<Md5>,
}

impl Bytes {
    pub(super) fn open(path: &Path, hash: bool) -> Result<Self, DatasetError> {
        let fail = |action| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::NotFound => DatasetError::Missing { path: path.to_owned() },
                _ => DatasetError::Io { path: path.to_owned(), action, source },
            }
        };
        let file = File::open(path).map_err(fail("open"))?;
        let metadata = file.metadata().map_err(fail("reading its size"))?;
        let compressed = is_compressed(path);
        let length = (metadata.is_file() && !compressed).then_some(metadata.len());
        let content: Box<dyn Read + Send> = if compressed {
            Box::new(ZstdReader::new(BufReader::with_capacity(COMPRESSED_BUFFER, file)))
        } else {
            Box::new(file)
        };
        Ok(Self {
            path: path.to_owned(),
            content,
            compressed,
            length,
            offset: 0,
            digest: hash.then(Md5::new),
        })
    }

    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `buffer` as far as the content goes; fewer bytes than asked for mean its end.
    pub(super) fn read_full(&mut self, buffer: &mut [u8]) -> Result<usize, DatasetError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.content.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error, filled)),
            }
        }
        if let Some(digest) = &mut self.digest {
            digest.update(&buffer[..filled]);
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// The MD5 of everything read so far, in hexadecimal; `None` if hashing was not asked for.
    pub(super) fn md5(self) -> Option<String> {
        let digest = self.digest?.finalize();
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn failed(&self, error: io::Error, filled: usize) -> DatasetError {
        let path = self.path.clone();
        if self.compressed && error.raw_os_error().is_none() {
            return DatasetError::Compression {
                path,
                offset: self.offset + filled as u64,
                cause: error.to_string(),
            };
        }
        DatasetError::Io { path, action: "reading", source: error }
    }
}
