//! The reader of the log's files, for recovery.

use std::ops::RangeInclusive;

use super::cursor::Cursor;
pub use super::cursor::LogFile;
use super::damage::{AfterBadFrame, behind, last_record, record_after};
use super::disk::{Disk, DiskError, DiskErrorKind};
pub use super::error::RecoveryError;
use super::frame::{FILE_HEADER_BYTES, FileHeader};
use super::lsn::{Lsn, MAX_LSN};
use super::names::list_logs;
use super::rewrite_last_file::{cut, write_anew};
use tracing::warn;

/// A tail that was cut off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truncated {
    /// The file's name.
    pub file: String,
    /// Where it ends now, in bytes.
    pub offset: u64,
    /// Bytes cut off.
    pub bytes: u64,
    /// What was found there.
    pub why: String,
}

/// The log's files, and what opening them found.
#[derive(Clone, Debug, Default)]
pub struct LogReader {
    /// The store's random number; `None` if there are no files.
    pub lineage: Option<u64>,
    /// The files in order of LSN.
    pub files: Vec<LogFile>,
    /// The first record's LSN; 0 if there are no files.
    pub first: Lsn,
    /// The last record's LSN; one less than `first` if there are files and no records.
    pub last: Lsn,
    /// What was cut off the last file, or is to be.
    pub truncated: Option<Truncated>,
    /// Where the last file is damaged, or torn, if it was to be read as far as it is whole.
    pub damaged_at: Option<u64>,
    /// The disk had no room to write the last file anew: a machine crash may take what was read of
    /// it, if its sync had failed before.
    pub is_unsure: bool,
    /// A last file without a whole header, as a crash leaves one that is being made. It is left for
    /// who goes on with the log to replace, since damage may have shortened it as well.
    pub half_made: Option<LogFile>,
    /// Why nothing before the files can be used, if the last file before them cannot.
    pub unusable: Option<RecoveryError>,
}

/// About how many bytes the log's files have from record `from` on, where `next` is the record that
/// comes next.
pub(crate) fn bytes_from(disk: &impl Disk, from: Lsn, next: Lsn) -> Result<u64, DiskError> {
    let logs = list_logs(disk)?;
    let ends = logs.iter().skip(1).map(|(first, _)| *first).chain([next]);
    let mut bytes = 0;
    for ((first, name), end) in logs.iter().zip(ends) {
        let records = end.saturating_sub(*first);
        let wanted = end.saturating_sub(from.max(*first));
        if wanted > 0 {
            // Records of a file are taken to be of one length.
            bytes += (u128::from(disk.len(name)?) * u128::from(wanted) / u128::from(records)) as u64;
        }
    }
    Ok(bytes)
}

/// The first record of the log's files, by their names alone.
pub(crate) fn begins(disk: &impl Disk) -> Result<Option<Lsn>, DiskError> {
    Ok(list_logs(disk)?.first().map(|(first, _)| *first))
}

/// Cuts the last file's torn tail off, and writes the rest of it anew, so that what was read of it
/// is on the disk.
pub(crate) fn settle(disk: &mut impl Disk, reader: &mut LogReader) -> Result<(), DiskError> {
    if let Some(last) = reader.files.last() {
        match write_anew(disk, &last.name, last.bytes) {
            Err(error) if error.kind == DiskErrorKind::Full => {
                cut(disk, &last.name, last.bytes)?;
                reader.is_unsure = true;
            }
            written => written?,
        }
    }
    disk.sync_dir()
}

/// How far the last file is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadLimit {
    /// As far as this record, which the caller has with all after it, and begins a new file with.
    Below(Lsn),
    /// To its end, or its torn tail. All records up to `synced` are known to have been on the disk:
    /// a tail before that is damage.
    End { synced: Lsn },
    /// As far as it is whole, whatever comes then.
    Whole,
}

/// The header of a file that is `len` bytes long.
fn read_header(disk: &impl Disk, name: &str, len: u64) -> Result<Result<FileHeader, String>, DiskError> {
    let mut bytes = [0; FILE_HEADER_BYTES];
    if len < bytes.len() as u64 {
        return Ok(Err("it is shorter than its header".into()));
    }
    disk.read_all(name, 0, &mut bytes)?;
    Ok(FileHeader::decode(&bytes))
}

fn check_header(
    disk: &impl Disk,
    LogFile { name, first, bytes }: &LogFile,
    is_last: bool,
    lineage: &mut Option<u64>,
) -> Result<(), RecoveryError> {
    let bad = |why| RecoveryError::BadFile { file: name.clone(), lsn: *first, why };
    let header = match read_header(disk, name, *bytes) {
        Err(error) if !is_last => Err(error.to_string()),
        read => read?,
    };
    let header = header.map_err(bad)?;
    let expected = *lineage.get_or_insert(header.lineage);
    if header.lineage != expected {
        return Err(RecoveryError::Lineage { file: name.clone(), found: header.lineage, expected });
    }
    if header.first != *first || !(1..=MAX_LSN).contains(first) {
        return Err(bad(format!(
            "its header says that it begins with record {}, its name {first}",
            header.first
        )));
    }
    Ok(())
}

/// Reads the last file through, as far as is wanted, and sets the reader's last record and torn
/// tail.
fn scan_last<D: Disk>(
    disk: &D,
    file: &LogFile,
    reach: ReadLimit,
    reader: &mut LogReader,
) -> Result<(), RecoveryError> {
    let lineage = reader.lineage.unwrap_or(0);
    let mut cursor = Cursor::new(file);
    let mut expected = file.first;
    let fault = loop {
        reader.last = expected - 1;
        if reach == ReadLimit::Below(expected) {
            return Ok(());
        }
        match cursor.next(disk, lineage, expected)? {
            Ok(Some(_)) => expected += 1,
            Ok(None) => return Ok(()),
            Err(why) => break why,
        }
    };
    let damaged = |why| cursor.damaged(expected, why);
    let synced = match reach {
        ReadLimit::Below(_) => return Err(damaged(fault)),
        ReadLimit::End { synced } => synced,
        ReadLimit::Whole => {
            reader.damaged_at = Some(cursor.offset);
            return Ok(());
        }
    };
    if expected <= synced {
        return Err(damaged(format!("{fault}, but all records up to {synced} had been on the disk")));
    }
    let rest = bytes_after(disk, file, cursor.offset)?;
    let why = match behind(&rest, cursor.offset, expected, lineage) {
        AfterBadFrame::Nothing => fault,
        AfterBadFrame::Unwritten => {
            format!("{fault}; some of its sectors were not written when the machine crashed")
        }
        AfterBadFrame::Record { offset, lsn } => {
            return Err(damaged(format!("{fault}, but record {lsn} after it, at offset {offset}, is valid")));
        }
        AfterBadFrame::Mark { offset, lsn } => {
            let synced = format!(
                "{fault}, but a mark at offset {offset} says that all records up to {lsn} were on the disk"
            );
            return Err(damaged(synced));
        }
        AfterBadFrame::Unclear => {
            let why = "so much after it looks like records that it cannot be told whether any is valid";
            return Err(damaged(format!("{fault}, and {why}")));
        }
    };
    let cut = Truncated { file: file.name.clone(), offset: cursor.offset, bytes: cursor.left(), why };
    if let Some(last) = reader.files.last_mut() {
        last.bytes = cut.offset;
    }
    reader.truncated = Some(cut);
    Ok(())
}

/// The bytes of a file from `offset` on.
fn bytes_after(disk: &impl Disk, file: &LogFile, offset: u64) -> Result<Vec<u8>, DiskError> {
    let mut rest = vec![0; usize::try_from(file.bytes.saturating_sub(offset)).unwrap_or(0)];
    disk.read_all(&file.name, offset, &mut rest)?;
    Ok(rest)
}

/// The last file from its damage on, where a look at as much as is whole found any.
fn damaged_rest(disk: &impl Disk, reader: &LogReader) -> Result<Vec<u8>, DiskError> {
    match (reader.files.last(), reader.damaged_at) {
        (Some(last), Some(offset)) => bytes_after(disk, last, offset),
        _ => Ok(Vec::new()),
    }
}

/// A record after `last` that the log's last file has after its damage.
pub(crate) fn damaged_has_after(
    disk: &impl Disk,
    reader: &LogReader,
    last: Lsn,
) -> Result<Option<Lsn>, DiskError> {
    let rest = damaged_rest(disk, reader)?;
    // What cannot be told is not known.
    Ok(record_after(&rest, last, reader.lineage.unwrap_or(0)).unwrap_or(None))
}

/// Whether the log's last file, which is damaged, had one of `records` as its last for certain.
pub(super) fn damaged_ends_with(
    disk: &impl Disk,
    reader: &LogReader,
    records: RangeInclusive<Lsn>,
) -> Result<bool, DiskError> {
    let (rest, lineage) = (damaged_rest(disk, reader)?, reader.lineage.unwrap_or(0));
    let is_last_known =
        matches!(record_after(&rest, *records.end(), lineage), Ok(None)) && rest.len().is_multiple_of(8);
    let last = last_record(&rest, records, lineage).filter(|_| is_last_known);
    // One that goes on after what a ring had given back may be named for a record of this file.
    Ok(last.is_some_and(|last| reader.half_made.as_ref().is_none_or(|next| next.first <= last + 1)))
}

impl LogReader {
    /// Opens the log on `disk` for a start that has nothing else: the last file's torn tail is cut
    /// off, and the rest of it written anew, so that what is read of it is on the disk. Costs about
    /// two reads and a write of that file. The others are read, and checked, by
    /// [`records`](Self::records).
    ///
    /// The tail is torn if nothing valid lies after it, or if sectors in it were never written and
    /// no mark says that they had been on the disk. Anything else is damage.
    ///
    /// # Errors
    /// If the files are not one log of this `lineage` (`None`: of any), the last is damaged
    /// before its tail, or the disk fails.
    pub fn open<D: Disk>(disk: &mut D, lineage: Option<u64>) -> Result<Self, RecoveryError> {
        let mut reader = Self::look(disk, lineage, ReadLimit::End { synced: 0 })?;
        settle(disk, &mut reader)?;
        Ok(reader)
    }

    /// Examines the headers of all files, and the records of the last as far as is wanted. Changes
    /// nothing.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub(crate) fn look<D: Disk>(
        disk: &D,
        lineage: Option<u64>,
        reach: ReadLimit,
    ) -> Result<Self, RecoveryError> {
        let mut reader = LogReader { lineage, ..LogReader::default() };
        let names = list_logs(disk)?;
        for (index, (first, name)) in names.iter().enumerate() {
            let bytes = disk.len(name)?;
            let file = LogFile { name: name.clone(), first: *first, bytes };
            let is_last = index + 1 == names.len();
            if is_last && bytes <= FILE_HEADER_BYTES as u64 && read_header(disk, name, bytes)?.is_err() {
                // Records are written after a synced header only. But its name says that there were
                // others before it.
                reader.half_made = Some(file);
                continue;
            }
            match check_header(disk, &file, is_last, &mut reader.lineage) {
                // Perhaps neither it nor what comes before it is needed any more: later files are
                // whole without.
                Err(error @ RecoveryError::BadFile { .. }) if !is_last => {
                    warn!("{error}");
                    reader.files.clear();
                    reader.unusable = Some(error);
                    continue;
                }
                checked => checked?,
            }
            reader.files.push(file);
        }
        if let (Some(first), Some(last)) = (reader.files.first(), reader.files.last().cloned()) {
            reader.first = first.first;
            scan_last(disk, &last, reach, &mut reader)?;
        }
        Ok(reader)
    }

    /// The records from LSN `from` on. There are none if there are no files at all, or if `from` is
    /// the next.
    ///
    /// # Errors
    /// If the files begin after `from`, or end before it, or are missing before one that is named
    /// for a later record.
    pub fn records<'a, D: Disk>(
        &'a self,
        disk: &'a D,
        from: Lsn,
    ) -> Result<LogRecords<'a, D>, RecoveryError> {
        let first = self.files.first().or(self.half_made.as_ref()).map_or(Lsn::MAX, |file| file.first);
        if let Some(error) = self.unusable.as_ref().filter(|_| from < first) {
            return Err(error.clone());
        }
        // Those after the last whole file, up to one that has none.
        let next = if self.files.is_empty() { from } else { self.last + 1 };
        if let Some(later) = self.half_made.as_ref().filter(|later| next < later.first) {
            return Err(RecoveryError::Gap { from: next, to: later.first - 1, file: later.name.clone() });
        }
        let first = self.files.first().map_or(from, |file| file.first);
        if !self.files.is_empty() && (from < first || from > self.last + 1) {
            return Err(RecoveryError::OutOfReach { wanted: from, first, last: self.last });
        }
        let index = self.files.partition_point(|file| file.first <= from).saturating_sub(1);
        let cursor = self.files.get(index).map(Cursor::new);
        let expected = self.files.get(index).map_or(from, |file| file.first);
        Ok(LogRecords { reader: self, disk, index, cursor, expected, from })
    }
}

/// Records of the log's files, in order.
pub struct LogRecords<'a, D> {
    reader: &'a LogReader,
    disk: &'a D,
    index: usize,
    cursor: Option<Cursor>,
    expected: Lsn,
    from: Lsn,
}

impl<D: Disk> LogRecords<'_, D> {
    /// The next record: its LSN and payload. Costs a checksum, and every mebibyte a read.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, or one is missing.
    pub fn next_record(&mut self) -> Result<Option<(Lsn, &[u8])>, RecoveryError> {
        let len = loop {
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            let next_file = self.reader.files.get(self.index + 1);
            // What lies after the next file's first record was replaced by it.
            let limit = next_file.map_or(self.reader.last + 1, |file| file.first);
            if self.expected >= limit {
                self.cursor = next_file.map(Cursor::new);
                self.index += 1;
                continue;
            }
            let lsn = self.expected;
            match cursor.next(self.disk, self.reader.lineage.unwrap_or(0), lsn)? {
                Ok(Some(len)) => {
                    self.expected += 1;
                    if lsn >= self.from {
                        break len;
                    }
                }
                Ok(None) => {
                    let file = next_file.map_or(String::new(), |file| file.name.clone());
                    return Err(RecoveryError::Gap { from: lsn, to: limit - 1, file });
                }
                Err(why) => return Err(cursor.damaged(lsn, why)),
            }
        };
        let payload = self.cursor.as_ref().map_or(&[][..], |cursor| cursor.payload(len));
        Ok(Some((self.expected - 1, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::log_name;
    use super::*;
    use crate::durability::memory_disk::MemoryDisk;

    #[test]
    fn the_bytes_of_the_log_are_counted_from_a_record_on_over_all_files() {
        let mut disk = MemoryDisk::new(1);
        assert_eq!(bytes_from(&disk, 1, 1).unwrap_or(9), 0);
        for (first, bytes) in [(1, 1000), (101, 500), (151, 0), (151 + 50, 300)] {
            let name = log_name(first);
            disk.create(&name).and_then(|()| disk.append(&name, &vec![0; bytes])).expect("room");
        }
        let from = |from| bytes_from(&disk, from, 231).expect("a folder");
        assert_eq!([0, 1, 51, 101, 126, 201, 231, 999].map(from), [1800, 1800, 1300, 800, 550, 300, 0, 0]);
    }
}
