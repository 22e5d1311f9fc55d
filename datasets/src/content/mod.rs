//! The content of files: decompressed, counted and, on request, hashed; and output files that
//! appear only when complete.

mod encoding;
mod output;
mod output_file;
mod zst;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use md5::{Digest, Md5};

use encoding::Encoding;
pub(crate) use output::Output;
pub use output_file::OutputFile;
pub(crate) use zst::ZstdReader;

use crate::error::DatasetError;
use crate::width::is_compressed;

/// Bytes of the file buffered ahead of the decoder.
const FILE_BUFFER: usize = 1 << 17;

/// A file's content, read once from its start, and decompressed if it is compressed.
pub struct Content {
    path: PathBuf,
    content: Box<dyn Read + Send>,
    encoding: Encoding,
    /// The content's length, where the file system knows it.
    length: Option<u64>,
    offset: u64,
    digest: Option<Md5>,
}

impl Content {
    /// Opens a file of lines: one that is gzip or zstd where its name ends in `.gz` or `.zst`, and
    /// else what its first bytes say. `-` is standard input.
    ///
    /// # Errors
    /// [`DatasetError::Missing`], [`DatasetError::OtherCompression`] or `Io`.
    pub fn of_lines(path: &Path) -> Result<Self, DatasetError> {
        Self::open_any(path, false)
    }

    /// Opens a file whose name alone says whether it is compressed, by zstd.
    pub(crate) fn open(path: &Path, hash: bool) -> Result<Self, DatasetError> {
        let (file, length) = open(path)?;
        if !is_compressed(path) {
            // Read in large pieces: a buffer between would only be one more copy.
            return Ok(Self::new(path, Box::new(file), Encoding::Plain, length, hash));
        }
        let content = Box::new(ZstdReader::new(BufReader::with_capacity(FILE_BUFFER, file)));
        Ok(Self::new(path, content, Encoding::Zstd, None, hash))
    }

    /// Opens a file that is gzip or zstd where its name ends so, and else what its first bytes say.
    /// `-` is standard input.
    pub(crate) fn open_any(path: &Path, hash: bool) -> Result<Self, DatasetError> {
        let (file, length): (Box<dyn Read + Send>, _) = match path.as_os_str() == "-" {
            true => (Box::new(io::stdin()), None),
            false => open(path).map(|(file, length)| (Box::new(file) as _, length))?,
        };
        let mut file = BufReader::with_capacity(FILE_BUFFER, file);
        let encoding = match Encoding::of_name(path) {
            Encoding::Plain => {
                let start = file.fill_buf().map_err(failed(path, "reading"))?;
                if let Some(program) = unread(path, start) {
                    return Err(DatasetError::OtherCompression { path: path.to_owned(), program });
                }
                Encoding::of_content(start)
            }
            compressed => compressed,
        };
        let length = length.filter(|_| encoding == Encoding::Plain);
        let content: Box<dyn Read + Send> = match encoding {
            Encoding::Plain => Box::new(file),
            Encoding::Gzip => Box::new(MultiGzDecoder::new(file)),
            Encoding::Zstd => Box::new(ZstdReader::new(file)),
        };
        Ok(Self::new(path, content, encoding, length, hash))
    }

    fn new(
        path: &Path,
        content: Box<dyn Read + Send>,
        encoding: Encoding,
        length: Option<u64>,
        hash: bool,
    ) -> Self {
        Self { path: path.to_owned(), content, encoding, length, offset: 0, digest: hash.then(Md5::new) }
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `buffer` as far as the content goes; fewer bytes than asked for mean its end.
    pub(crate) fn read_full(&mut self, buffer: &mut [u8]) -> Result<usize, DatasetError> {
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

    /// What is wrong with compressed content, found by reading it to its end; `None` if it is whole
    /// or not compressed.
    pub fn damage(&mut self) -> Option<DatasetError> {
        if self.encoding == Encoding::Plain {
            return None;
        }
        let mut rest = vec![0; FILE_BUFFER];
        loop {
            match self.read_full(&mut rest) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(error),
            }
        }
    }

    /// The MD5 of everything read so far, in hexadecimal; `None` if hashing was not asked for.
    pub(crate) fn md5(self) -> Option<String> {
        let digest = self.digest?.finalize();
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn failed(&self, error: io::Error, filled: usize) -> DatasetError {
        let path = self.path.clone();
        if self.encoding != Encoding::Plain && error.raw_os_error().is_none() {
            return DatasetError::Compression {
                path,
                format: self.encoding.name(),
                offset: self.offset + filled as u64,
                cause: error.to_string(),
            };
        }
        DatasetError::Io { path, action: "reading", source: error }
    }
}

impl Read for Content {
    /// As [`Read`] has it; errors have a [`DatasetError`] in them, which names the file.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_full(buffer).map_err(io::Error::other)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, encoding, offset, .. } = self;
        f.debug_struct("Content")
            .field("path", path)
            .field("encoding", encoding)
            .field("offset", offset)
            .finish_non_exhaustive()
    }
}

/// The file, and its length where it has one. What decompresses a file that is compressed in a way
/// that is not read here: by its name, or by the bytes that no text begins with.
fn unread(path: &Path, start: &[u8]) -> Option<&'static str> {
    let is_named = |suffix| path.extension().is_some_and(|extension| extension == suffix);
    if is_named("xz") || start.starts_with(b"\xfd7zXZ\0") {
        return Some("xz");
    }
    is_named("bz2").then_some("bzip2")
}

fn open(path: &Path) -> Result<(File, Option<u64>), DatasetError> {
    let file = File::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => DatasetError::Missing { path: path.to_owned() },
        _ => failed(path, "open")(source),
    })?;
    let metadata = file.metadata().map_err(failed(path, "reading its size"))?;
    let length = metadata.is_file().then_some(metadata.len());
    Ok((file, length))
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> DatasetError {
    let path = path.to_owned();
    move |source| DatasetError::Io { path, action, source }
}
