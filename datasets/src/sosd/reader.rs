//! A reader of SOSD files in chunks, with every check the format allows.

use std::path::{Path, PathBuf};

use zerocopy::IntoBytes;

use crate::content::Content;
use crate::error::DatasetError;
use crate::width::{HEADER_BYTES, Width};

/// Keys read per step: small enough to stay in cache between reading and checking.
const STEP: usize = 1 << 15;

/// Reads a SOSD file from start to end, a chunk at a time, into the caller's vector.
///
/// Order is checked as keys pass by, size and count before the first and after the last. 64-bit
/// keys are read straight to where they stay; memory beyond that is one small buffer.
pub struct SosdReader {
    path: PathBuf,
    bytes: Content,
    width: Width,
    count: u64,
    next: u64,
    previous: Option<u64>,
    refuse_duplicates: bool,
    narrow: Vec<u32>,
}

impl SosdReader {
    /// Opens a file and checks its header, and its size where the file system knows it.
    ///
    /// # Errors
    /// [`DatasetError`] of kind `Io` or `BadFile`.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        Self::new(path, false)
    }

    /// As [`open`](Self::open), computing the content's MD5 on the way; see [`md5`](Self::md5).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_hashing(path: &Path) -> Result<Self, DatasetError> {
        Self::new(path, true)
    }

    fn new(path: &Path, hash: bool) -> Result<Self, DatasetError> {
        // A name that is mistyped may lack the suffix too, and to rename the file would be no remedy.
        if let Ok(false) = path.try_exists() {
            return Err(DatasetError::Missing { path: path.to_owned() });
        }
        let width = Width::of_file(path)?;
        let mut bytes = Content::open(path, hash)?;
        let mut header = [0; HEADER_BYTES as usize];
        if bytes.read_full(&mut header)? < header.len() {
            let expected = "the 8 bytes of a count".to_owned();
            return Err(DatasetError::Truncated { path: path.to_owned(), offset: bytes.offset(), expected });
        }
        let count = u64::from_le_bytes(header);
        if count == 0 {
            return Err(DatasetError::Empty { path: path.to_owned() });
        }
        let reader = Self {
            path: path.to_owned(),
            width,
            count,
            next: 0,
            previous: None,
            refuse_duplicates: false,
            narrow: Vec::new(),
            bytes,
        };
        match reader.bytes.length() {
            Some(length) => reader.check_size(length).map(|()| reader),
            None => Ok(reader),
        }
    }

    /// Makes equal keys an error.
    pub fn refuse_duplicates(&mut self) {
        self.refuse_duplicates = true;
    }

    /// Keys in the file, by its header.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Width of the keys on disk.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Appends up to `limit` further keys to `keys` and returns how many; zero means that all were
    /// read and the file ends where it should.
    ///
    /// # Errors
    /// [`DatasetError`] of kind `Io`, `BadFile` or `Duplicates`; `keys` then holds what came
    /// before.
    pub fn fill(&mut self, keys: &mut Vec<u64>, limit: usize) -> Result<usize, DatasetError> {
        let mut done = 0;
        while done < limit && self.next < self.count {
            let step = STEP.min(limit - done).min(usize::try_from(self.count - self.next).unwrap_or(STEP));
            let start = keys.len();
            let read = self.read_step(keys, step);
            if let Err(error) =
                read.and_then(|()| self.check_order(&keys[start..]).map_err(|e| self.explain_disorder(e)))
            {
                keys.truncate(start);
                return Err(error);
            }
            done += step;
        }
        if done == 0 && limit > 0 {
            self.check_end()?;
        }
        Ok(done)
    }

    /// The MD5 of the decompressed content, in hexadecimal, once [`fill`](Self::fill) has returned
    /// zero; `None` unless the reader was opened with [`open_hashing`](Self::open_hashing).
    pub fn md5(self) -> Option<String> {
        self.bytes.md5()
    }

    fn read_step(&mut self, keys: &mut Vec<u64>, step: usize) -> Result<(), DatasetError> {
        let wanted = step * self.width.bytes();
        let read = match self.width {
            Width::U64 => {
                let start = keys.len();
                keys.resize(start + step, 0);
                let read = self.bytes.read_full(keys[start..].as_mut_bytes())?;
                keys[start..].iter_mut().for_each(|key| *key = u64::from_le(*key));
                read
            }
            Width::U32 => {
                self.narrow.resize(step, 0);
                let read = self.bytes.read_full(self.narrow.as_mut_bytes())?;
                keys.extend(self.narrow.iter().map(|&key| u64::from(u32::from_le(key))));
                read
            }
        };
        if read == wanted {
            return Ok(());
        }
        self.check_size(self.bytes.offset())?;
        // Unreachable unless the file changes while it is read, and then truncated is what it is.
        Err(self.truncated(self.bytes.offset()))
    }

    fn check_order(&mut self, keys: &[u64]) -> Result<(), DatasetError> {
        let Some((&first, &last)) = keys.first().zip(keys.last()) else { return Ok(()) };
        let follows =
            |previous: u64, next: u64| previous < next || (previous == next && !self.refuse_duplicates);
        let good = self.previous.is_none_or(|previous| follows(previous, first))
            && match self.refuse_duplicates {
                true => keys.windows(2).all(|pair| pair[0] < pair[1]),
                false => keys.windows(2).all(|pair| pair[0] <= pair[1]),
            };
        if good {
            self.previous = Some(last);
            self.next += keys.len() as u64;
            return Ok(());
        }
        let mut previous = self.previous;
        for (i, &next) in keys.iter().enumerate() {
            if let Some(previous) = previous.filter(|&previous| !follows(previous, next)) {
                return Err(self.misplaced(self.next + i as u64, previous, next));
            }
            previous = Some(next);
        }
        Ok(())
    }

    fn misplaced(&self, index: u64, previous: u64, next: u64) -> DatasetError {
        let offset = HEADER_BYTES + index * self.width.bytes() as u64;
        if previous == next {
            return DatasetError::Duplicates { name: self.path.display().to_string(), key: next, offset };
        }
        DatasetError::Unsorted { path: self.path.clone(), offset, previous, next }
    }

    /// Compares the content's whole length with what the header promises.
    fn check_size(&self, length: u64) -> Result<(), DatasetError> {
        let promised =
            |width: Width| u128::from(self.count) * width.bytes() as u128 + u128::from(HEADER_BYTES);
        let (length_wide, expected) = (u128::from(length), promised(self.width));
        if length_wide == expected {
            return Ok(());
        }
        let path = self.path.clone();
        let actual = self.width.other();
        if length_wide == promised(actual) {
            let offset = length.min(u64::try_from(expected).unwrap_or(u64::MAX));
            return Err(DatasetError::WrongWidth {
                path,
                named: self.width,
                actual,
                count: self.count,
                offset,
            });
        }
        if length_wide < expected {
            return Err(self.truncated(length));
        }
        // Smaller than `length`, which is a u64.
        let offset = expected as u64;
        Err(DatasetError::Miscounted { path, count: self.count, offset, excess: length - offset })
    }

    /// Where keys out of order are only what damage or the wrong width look like, says so. For
    /// plain files the size was compared when they were opened; a compressed one must be read to
    /// its end for its checksum and size.
    fn explain_disorder(&mut self, error: DatasetError) -> DatasetError {
        if self.bytes.length().is_some() {
            return error;
        }
        match self.check_end() {
            Err(cause @ (DatasetError::WrongWidth { .. } | DatasetError::Compression { .. })) => cause,
            _ => error,
        }
    }

    fn truncated(&self, offset: u64) -> DatasetError {
        let expected = format!("{} keys of {} bytes", self.count, self.width.bytes());
        DatasetError::Truncated { path: self.path.clone(), offset, expected }
    }

    /// Reads what follows the last key, which should be nothing.
    fn check_end(&mut self) -> Result<(), DatasetError> {
        let mut rest = [0; 4096];
        while self.bytes.read_full(&mut rest)? > 0 {}
        self.check_size(self.bytes.offset())
    }
}
