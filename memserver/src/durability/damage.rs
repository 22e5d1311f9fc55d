//! Telling a torn tail from damage, by what follows the first bad frame of the last file.

use super::frame::{self, FRAME_HEADER_BYTES, Frame};
use super::lsn::Lsn;

const SECTOR: u64 = 512;

/// What was found after a bad frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// Nothing valid: the tail is torn.
    Nothing,
    /// Valid records, but sectors before them were never written, and nothing says that they had
    /// been on the disk: a machine crash amid unsynced writes, which disks and file systems carry
    /// out in any order.
    Unwritten,
    /// A valid record at this offset: what is before it was damaged later.
    Record { offset: u64, lsn: Lsn },
    /// A mark at this offset: the record had been on the disk.
    Mark { offset: u64, lsn: Lsn },
}

/// Examines `rest`, the bytes of a file from the bad frame at `at` to its end, where record
/// `expected` should be.
pub(super) fn behind(rest: &[u8], at: u64, expected: Lsn, lineage: u64) -> Behind {
    let most = expected.saturating_add((rest.len() / FRAME_HEADER_BYTES) as u64);
    let mut record = None;
    for start in (8..rest.len()).step_by(8) {
        let Ok((_, lsn)) = frame::claimed(&rest[start..]) else { continue };
        // Most bytes claim an impossible LSN: checksums are computed for few.
        if !(expected..=most).contains(&lsn) {
            continue;
        }
        match frame::decode(&rest[start..], lineage) {
            Ok(Frame::Mark { lsn }) => return Behind::Mark { offset: at + start as u64, lsn },
            Ok(Frame::Record { lsn, .. }) if record.is_none() => record = Some((start, lsn)),
            _ => {}
        }
    }
    match record {
        None => Behind::Nothing,
        Some((start, _)) if has_unwritten_sector(&rest[..start], at) => Behind::Unwritten,
        Some((start, lsn)) => Behind::Record { offset: at + start as u64, lsn },
    }
}

/// Whether a whole sector within `bytes`, or the sector they begin in from there on, is zero. New
/// blocks of a file read as zeros until they are written.
fn has_unwritten_sector(bytes: &[u8], at: u64) -> bool {
    let mut start = 0;
    while start < bytes.len() {
        let end = start + (SECTOR - (at + start as u64) % SECTOR) as usize;
        if bytes.get(start..end).is_some_and(|sector| sector.iter().all(|byte| *byte == 0)) {
            return true;
        }
        start = end;
    }
    false
}
