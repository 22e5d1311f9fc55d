//! Telling a torn tail from damage, by what follows the first bad frame of the last file.

use std::ops::RangeInclusive;

use super::frame::{self, FRAME_HEADER_BYTES, Fault, MAX_PAYLOAD_BYTES};
use super::lsn::Lsn;

const SECTOR: u64 = 512;

/// What was found after a bad frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AfterBadFrame {
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
    /// More bytes look like records, one after another, than can be examined.
    Unclear,
}

/// Checksums are computed over at most this many times the bytes to examine, plus a fixed amount.
const MOST_OVER: usize = 16;
const LEAST_WORK: usize = 4 << 20;

/// Examines `rest`, the bytes of a file from the bad frame at `at` to its end, where record
/// `expected` should be.
///
/// Bytes of values may claim to be frames by chance, as small numbers in a row do, or because a
/// client made them so, each of them as long as a frame can be. So the work is bounded: frames come
/// first that are followed by what may follow them. Where even of these there are too many, it
/// cannot be told.
pub(super) fn behind(rest: &[u8], at: u64, expected: Lsn, lineage: u64) -> AfterBadFrame {
    let mut search = FrameSearch::new(rest, expected, lineage);
    if let Some((start, lsn)) = search.mark() {
        return AfterBadFrame::Mark { offset: at + start as u64, lsn };
    }
    let Ok(mut record) = search.first_record(rest.len(), true) else { return AfterBadFrame::Unclear };
    // One before it that nothing follows, as others are damaged, or not written: by chance alone
    // there may be many, and this is as far as they are looked at.
    let before = record.map_or(rest.len(), |(start, _)| start);
    if let Ok(Some(earlier)) = search.first_record(before, false) {
        record = Some(earlier);
    }
    match record {
        None => AfterBadFrame::Nothing,
        Some((start, _)) if has_unwritten_sector(&rest[..start], at) => AfterBadFrame::Unwritten,
        Some((start, lsn)) => AfterBadFrame::Record { offset: at + start as u64, lsn },
    }
}

/// A record after `last` that `rest`, the bytes of a file from a bad frame on, shows to have been
/// written, whatever else is damaged.
pub(super) fn record_after(rest: &[u8], last: Lsn, lineage: u64) -> Result<Option<Lsn>, TooMuch> {
    let mut search = FrameSearch::new(rest, last.saturating_add(1), lineage);
    if let Some((_, lsn)) = search.mark() {
        return Ok(Some(lsn));
    }
    for is_followed in [true, false] {
        if let Some((_, lsn)) = search.first_record(rest.len(), is_followed)? {
            return Ok(Some(lsn));
        }
    }
    Ok(None)
}

/// The record that `rest`, the bytes of a file to its end, ends with, if it is one of `lsns` and
/// whole. Records are in order: all that the file ever had, damaged ones too, are up to it.
pub(super) fn last_record(rest: &[u8], lsns: RangeInclusive<Lsn>, lineage: u64) -> Option<Lsn> {
    let mut search = FrameSearch { lsns, ..FrameSearch::new(rest, 0, lineage) };
    let longest = FRAME_HEADER_BYTES + MAX_PAYLOAD_BYTES;
    for start in (rest.len().saturating_sub(longest).next_multiple_of(8)..rest.len()).step_by(8).rev() {
        let Some((false, bytes, lsn)) = search.claimed(start) else { continue };
        if bytes != rest.len() - start {
            continue;
        }
        search.left = search.left.checked_sub(bytes)?;
        if frame::decode(&rest[start..], lineage).is_ok() {
            return Some(lsn);
        }
    }
    None
}

/// There is more to do than may be done.
pub(super) struct TooMuch;

/// The search for frames after a bad one.
struct FrameSearch<'a> {
    rest: &'a [u8],
    /// LSNs that frames there may have.
    lsns: RangeInclusive<Lsn>,
    lineage: u64,
    /// Bytes that checksums of records may still be computed over.
    left: usize,
}

impl<'a> FrameSearch<'a> {
    fn new(rest: &'a [u8], expected: Lsn, lineage: u64) -> Self {
        let most = expected.saturating_add((rest.len() / FRAME_HEADER_BYTES) as u64);
        let left = rest.len().saturating_mul(MOST_OVER).saturating_add(LEAST_WORK);
        Self { rest, lsns: expected..=most, lineage, left }
    }

    /// Whether a mark begins at `start`; the length in bytes and the LSN that are claimed there, if
    /// a frame may have them. Most bytes claim an impossible LSN: checksums are computed for few.
    fn claimed(&self, start: usize) -> Option<(bool, usize, Lsn)> {
        let header = self.rest.get(start..)?;
        let (bytes, lsn) = frame::claimed(header).ok()?;
        self.lsns.contains(&lsn).then(|| (frame::is_mark(header), bytes, lsn))
    }

    /// The first mark: where it begins, and its LSN. Marks are as short as frames are.
    fn mark(&self) -> Option<(usize, Lsn)> {
        (8..self.rest.len()).step_by(8).find_map(|start| match self.claimed(start)? {
            (true, _, lsn) => {
                frame::decode(&self.rest[start..], self.lineage).is_ok().then_some((start, lsn))
            }
            _ => None,
        })
    }

    /// The first record that begins before `before`, of those that something seems to follow, or of
    /// the others.
    fn first_record(&mut self, before: usize, is_followed: bool) -> Result<Option<(usize, Lsn)>, TooMuch> {
        for start in (8..before).step_by(8) {
            let Some((false, bytes, lsn)) = self.claimed(start) else { continue };
            // Those that end after the file are torn.
            if bytes > self.rest.len() - start || self.is_followed(start + bytes, lsn) != is_followed {
                continue;
            }
            self.left = self.left.checked_sub(bytes).ok_or(TooMuch)?;
            if frame::decode(&self.rest[start..], self.lineage).is_ok() {
                return Ok(Some((start, lsn)));
            }
        }
        Ok(None)
    }

    /// Whether what lies at `end` may follow record `lsn`: the next, a mark, or the file's end.
    fn is_followed(&self, end: usize, lsn: Lsn) -> bool {
        let next = &self.rest[end..];
        match frame::claimed(next) {
            Ok((_, mark)) if frame::is_mark(next) => mark <= lsn,
            Ok((_, next)) => next == lsn.saturating_add(1),
            Err(fault) => fault == Fault::Short,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAGE: u64 = 0x0123_4567_89ab_cdef;
    const EXPECTED: Lsn = 1000;

    fn record(lsn: Lsn, payload: usize) -> Vec<u8> {
        let mut out = Vec::new();
        frame::encode_record(&mut out, LINEAGE, lsn, &vec![9; payload]);
        out
    }

    /// Headers in a row that claim records of 32 KiB. Each is followed by what it claims: at 32 KiB
    /// from it is one of the next LSN, if they are `followed`.
    fn crafted(bytes: usize, followed: bool) -> Vec<u8> {
        const LEN: usize = 32 << 10;
        let header = |i: usize| {
            let lsn = EXPECTED + if followed { (i * 16 / LEN) as u64 } else { 0 };
            [(LEN - FRAME_HEADER_BYTES) as u64, lsn].map(u64::to_le_bytes).concat()
        };
        (0..bytes / 16).flat_map(header).collect()
    }

    /// Bytes that checksums were computed over.
    fn work(rest: &[u8]) -> usize {
        let mut search = FrameSearch::new(rest, EXPECTED, LINEAGE);
        let all = search.left;
        for is_followed in [true, false] {
            let _ = search.first_record(rest.len(), is_followed);
        }
        all - search.left
    }

    /// A file of values that a client had made so took many minutes.
    #[test]
    fn values_that_look_like_records_do_not_take_long() {
        for bytes in [1 << 20, 2 << 20, 4 << 20] {
            for followed in [true, false] {
                let rest = crafted(bytes, followed);
                let most = MOST_OVER * bytes + LEAST_WORK;
                assert!((most / 2..=most).contains(&work(&rest)), "{bytes} {followed}");
                let expected = if followed { AfterBadFrame::Unclear } else { AfterBadFrame::Nothing };
                assert_eq!(behind(&rest, 64, EXPECTED, LINEAGE), expected, "{bytes}");
            }
        }
    }

    #[test]
    fn a_record_or_mark_behind_them_is_found() {
        let mut rest = crafted(2 << 20, false);
        let offset = 64 + rest.len() as u64;
        rest.extend(record(EXPECTED + 7, 100));
        rest.extend(record(EXPECTED + 8, 0));
        assert_eq!(behind(&rest, 64, EXPECTED, LINEAGE), AfterBadFrame::Record { offset, lsn: EXPECTED + 7 });
        let mut rest = crafted(2 << 20, true);
        rest.extend(frame::encode_mark(LINEAGE, EXPECTED + 3));
        assert_eq!(behind(&rest, 64, EXPECTED, LINEAGE), AfterBadFrame::Mark { offset, lsn: EXPECTED + 3 });
    }

    #[test]
    fn the_first_whole_record_counts_whatever_follows_it() {
        let mut rest = record(EXPECTED, 100);
        rest[40] ^= 1;
        let offset = 64 + rest.len() as u64;
        rest.extend(record(EXPECTED + 1, 50));
        // The next was never written.
        rest.resize(rest.len() + 2048, 0);
        rest.extend(record(EXPECTED + 3, 50));
        assert_eq!(behind(&rest, 64, EXPECTED, LINEAGE), AfterBadFrame::Record { offset, lsn: EXPECTED + 1 });
    }
}
