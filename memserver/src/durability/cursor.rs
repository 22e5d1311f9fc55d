//! A file of the log, and a cursor over its frames. For the reader of the log.

use super::disk::{Disk, DiskError};
use super::error::RecoveryError;
use super::frame::{self, FILE_HEADER_BYTES, FRAME_HEADER_BYTES, Fault, Frame};
use super::lsn::Lsn;

const WINDOW_BYTES: usize = 1 << 20;

/// One file of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFile {
    /// Its name.
    pub name: String,
    /// Its first record's LSN.
    pub first: Lsn,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A place in a file, and the bytes around it.
#[derive(Debug)]
pub(super) struct Cursor {
    name: String,
    file_bytes: u64,
    /// Offset in the file of the next frame.
    pub(super) offset: u64,
    /// Where it lies in the buffer.
    at: usize,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are the file's.
    filled: usize,
    /// Where the last record's payload lies in the buffer.
    payload_at: usize,
}

impl Cursor {
    pub(super) fn new(file: &LogFile) -> Self {
        Self {
            name: file.name.clone(),
            file_bytes: file.bytes,
            offset: FILE_HEADER_BYTES as u64,
            at: 0,
            buffer: Vec::new(),
            filled: 0,
            payload_at: 0,
        }
    }

    /// Bytes from here to the end of the file.
    pub(super) fn left(&self) -> u64 {
        self.file_bytes.saturating_sub(self.offset)
    }

    /// Makes sure of `need` bytes, or of as many as the file has.
    fn fill(&mut self, disk: &impl Disk, need: usize) -> Result<(), DiskError> {
        let have = self.filled - self.at;
        if have >= need || have as u64 >= self.left() {
            return Ok(());
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.at = 0;
        let want = (have + WINDOW_BYTES.max(need)) as u64;
        let want = want.min(self.left()) as usize;
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        disk.read_all(&self.name, self.offset + have as u64, &mut self.buffer[have..want])?;
        self.filled = want;
        Ok(())
    }

    /// Goes on to record `expected`, over marks, and returns the length of its payload; `None` at
    /// the end of the file. The inner error says what is wrong at `offset`.
    #[inline]
    pub(super) fn next(
        &mut self,
        disk: &impl Disk,
        lineage: u64,
        expected: Lsn,
    ) -> Result<Result<Option<usize>, String>, DiskError> {
        loop {
            if self.left() == 0 {
                return Ok(Ok(None));
            }
            let mut frame = frame::decode(&self.buffer[self.at..self.filled], lineage);
            if frame == Err(Fault::Short) {
                self.fill(disk, frame::MAX_PAYLOAD_BYTES + FRAME_HEADER_BYTES)?;
                frame = frame::decode(&self.buffer[self.at..self.filled], lineage);
            }
            match frame {
                Ok(frame @ Frame::Record { lsn, len }) if lsn == expected => {
                    self.payload_at = self.at + FRAME_HEADER_BYTES;
                    self.advance(frame);
                    return Ok(Ok(Some(len)));
                }
                Ok(frame @ Frame::Mark { lsn }) if lsn < expected => self.advance(frame),
                Ok(Frame::Record { lsn, .. } | Frame::Mark { lsn }) => {
                    return Ok(Err(format!("LSN {lsn} is out of order")));
                }
                Err(fault) => return Ok(Err(fault.text().to_owned())),
            }
        }
    }

    fn advance(&mut self, frame: Frame) {
        self.at += frame.bytes();
        self.offset += frame.bytes() as u64;
    }

    pub(super) fn payload(&self, len: usize) -> &[u8] {
        &self.buffer[self.payload_at..self.payload_at + len]
    }

    pub(super) fn damaged(&self, lsn: Lsn, why: String) -> RecoveryError {
        RecoveryError::Damaged { file: self.name.clone(), offset: self.offset, lsn, why }
    }
}
