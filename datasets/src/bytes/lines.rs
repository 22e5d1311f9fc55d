//! Files with one key per line.

use std::io::BufRead;
use std::ops::Range;
use std::path::Path;

use super::arena::KeyArena;
use super::key::MAX_KEY_BYTES;
use super::sort;
use super::unsorted::Unsorted;
use crate::content::Content;
use crate::error::DatasetError;
use crate::options::{Duplicates, OpenOptions};
use crate::progress::during;

/// Content read at a time; more than a key.
const BUFFER: usize = 1 << 18;
/// Keys read between two reports of progress.
pub(super) const STEP: u64 = 1 << 18;

/// The lines of a file, one after the other. A line ends at a newline, which does not belong to it,
/// or at the end of the file; all other bytes do, carriage returns included.
pub(super) struct LineReader {
    content: Content,
    path: std::path::PathBuf,
    buffer: Vec<u8>,
    /// What of the buffer is still to be given out.
    ahead: Range<usize>,
    ended: bool,
    line: u64,
}

impl LineReader {
    pub(super) fn open(path: &Path, hash: bool) -> Result<Self, DatasetError> {
        let content = Content::open_any(path, hash)?;
        Ok(Self {
            content,
            path: path.to_owned(),
            buffer: vec![0; BUFFER],
            ahead: 0..0,
            ended: false,
            line: 0,
        })
    }

    /// The next line, of 1 to [`MAX_KEY_BYTES`] bytes, or `None` at the end.
    ///
    /// # Errors
    /// [`DatasetError::EmptyLine`], [`DatasetError::LongLine`], [`DatasetError::Compression`] or
    /// `Io`.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>, DatasetError> {
        let Some(range) = self.next_range()? else { return Ok(None) };
        self.line += 1;
        let (path, line) = (&self.path, self.line);
        let bad = match range.len() {
            0 => DatasetError::EmptyLine { path: path.clone(), line },
            length if length > MAX_KEY_BYTES => DatasetError::LongLine { path: path.clone(), line },
            _ => return Ok(Some(&self.buffer[range])),
        };
        // Such a line may be what damaged compression gives before its checksum is reached.
        Err(self.content.damage().unwrap_or(bad))
    }

    /// Where the next line lies in the buffer.
    fn next_range(&mut self) -> Result<Option<Range<usize>>, DatasetError> {
        loop {
            let start = self.ahead.start;
            let mut rest = &self.buffer[self.ahead.clone()];
            // Reading from a slice cannot fail; this is the standard library's search for a byte.
            let taken = rest.skip_until(b'\n').unwrap_or(0);
            let ends = taken > 0 && self.buffer[start + taken - 1] == b'\n';
            if ends {
                self.ahead.start += taken;
                return Ok(Some(start..start + taken - 1));
            }
            // A line too long is given out as far as it was read, for its length tells.
            if self.ended || self.ahead.len() > MAX_KEY_BYTES {
                let line = std::mem::replace(&mut self.ahead, 0..0);
                return Ok((!line.is_empty()).then_some(line));
            }
            self.buffer.copy_within(self.ahead.clone(), 0);
            self.ahead = 0..self.ahead.len();
            let read = self.content.read_full(&mut self.buffer[self.ahead.end..])?;
            self.ended = self.ahead.end + read < self.buffer.len();
            self.ahead.end += read;
        }
    }

    /// Number of the line given out last, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The MD5 of the content, once it is read.
    pub(super) fn md5(self) -> Option<String> {
        self.content.md5()
    }
}

/// The keys of a file, ascending, duplicates one after the other, and what is to be announced.
pub(super) fn read(
    path: &Path,
    policy: Duplicates,
    options: &OpenOptions<'_>,
) -> Result<(KeyArena, Vec<String>), DatasetError> {
    let read = during(options.progress, "reading", 0, || read_lines(path, options))?;
    let Read { mut keys, mut unordered, returns } = read;
    let shown = path.display();
    let mut notes = Vec::new();
    if returns > 0 {
        notes.push(format!(
            "{shown}: {returns} of {} lines end in a carriage return, which belongs to the key; `dos2unix` removes them",
            keys.len()
        ));
    }
    let mut order = None;
    if let Some(first) = unordered.first {
        if options.unsorted == Unsorted::Refuse {
            return Err(DatasetError::UnsortedLines { path: path.to_owned(), line: first });
        }
        notes.push(match unordered.lines {
            1 => format!("{shown}: 1 line was below the line before it; sorted"),
            lines => format!("{shown}: {lines} lines were below the line before them; sorted"),
        });
        order = Some(sort::order(&keys).ok_or_else(|| no_memory(path, &keys))?);
    }
    if policy == Duplicates::Refuse {
        // In order, equal lines follow each other; else they do once they are sorted.
        unordered.first_duplicate = match &order {
            None => unordered.first_duplicate,
            Some(order) => first_duplicate(&keys, order),
        };
        if let Some((first, line)) = unordered.first_duplicate {
            return Err(DatasetError::DuplicateLines { path: path.to_owned(), line, first });
        }
    }
    if let Some(order) = order {
        let sorted = keys.gather(order.iter().map(|&i| i as usize));
        keys = sorted.ok_or_else(|| no_memory(path, &keys))?;
    }
    Ok((keys, notes))
}

/// What reading found.
struct Read {
    keys: KeyArena,
    unordered: Unordered,
    /// Lines that end in a carriage return.
    returns: u64,
}

/// Lines that do not follow the one before them, counted from 1.
#[derive(Default)]
struct Unordered {
    first: Option<u64>,
    lines: u64,
    /// A line and the next, which is the same.
    first_duplicate: Option<(u64, u64)>,
}

fn read_lines(path: &Path, options: &OpenOptions<'_>) -> Result<Read, DatasetError> {
    let mut reader = LineReader::open(path, false)?;
    let mut read = Read { keys: KeyArena::new(), unordered: Unordered::default(), returns: 0 };
    let mut line = 0u64;
    while let Some(key) = reader.next_line()? {
        line += 1;
        read.unordered.compare(read.keys.last(), key, line);
        read.returns += u64::from(key.last() == Some(&b'\r'));
        read.keys.try_push(key).map_err(|_| no_memory(path, &read.keys))?;
        if let Some(progress) = options.progress.filter(|_| line.is_multiple_of(STEP)) {
            progress.advance(line);
        }
    }
    if read.keys.is_empty() {
        return Err(DatasetError::NoLines { path: path.to_owned() });
    }
    read.keys.shrink();
    Ok(read)
}

impl Unordered {
    fn compare(&mut self, previous: Option<&[u8]>, key: &[u8], line: u64) {
        let Some(previous) = previous else { return };
        if key < previous {
            self.first = self.first.or(Some(line));
            self.lines += 1;
        } else if key == previous {
            self.first_duplicate = self.first_duplicate.or(Some((line - 1, line)));
        }
    }
}

/// The first two equal keys in an order, as lines from 1.
fn first_duplicate(keys: &KeyArena, order: &[u32]) -> Option<(u64, u64)> {
    let same = |pair: &&[u32]| keys.get(pair[0] as usize) == keys.get(pair[1] as usize);
    let pair = order.windows(2).find(same)?;
    Some((u64::from(pair[0]) + 1, u64::from(pair[1]) + 1))
}

fn no_memory(path: &Path, keys: &KeyArena) -> DatasetError {
    let bytes = keys.memory_bytes().saturating_mul(2);
    DatasetError::OutOfMemory { name: format!("lines:{}", path.display()), keys: keys.len() as u64, bytes }
}
