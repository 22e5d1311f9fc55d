//! The bytes of the log: a file's header, and the frame around a record.
//!
//! A file is a header of 64 bytes and frames in a row, each padded with zeros to a multiple of 8:
//!
//! | file header | |
//! |---|---|
//! | 0 | magic, `FPCLOG\0\0` |
//! | 8 | layout version u32 = 2 |
//! | 12 | zero |
//! | 16 | lineage u64 |
//! | 24 | LSN of the first record u64 |
//! | 32 | zero |
//! | 56 | XXH3-64 of bytes 0–55 |
//!
//! | frame | |
//! |---|---|
//! | 0 | length of the payload u32, or 0xffff_ffff for a *mark* |
//! | 4 | low half of XXH3-64 of the bytes from 8 to the frame's end, seeded with lineage, LSN and length |
//! | 8 | LSN u64 |
//! | 16 | payload, zeros to a multiple of 8 |
//!
//! A mark has no payload and stands in files only. It says that all records up to its LSN were on
//! the disk before it was written, so a damaged record that a later mark covers was not torn by a
//! crash.
//!
//! The lineage is a random number that clients never learn, so no client can craft a value that
//! looks like a record.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::lsn::Lsn;

pub(super) const FILE_HEADER_BYTES: usize = 64;
pub(super) const FRAME_HEADER_BYTES: usize = 16;
/// The longest payload of a record in bytes: its frame is 1 MiB.
pub const MAX_PAYLOAD_BYTES: usize = (1 << 20) - FRAME_HEADER_BYTES;

const MAGIC: [u8; 8] = *b"FPCLOG\0\0";
const LAYOUT: u32 = 2;
const MARK: u32 = u32::MAX;
/// Odd constants of XXH64, here to spread LSN and length over the seed.
const SPREAD_LSN: u64 = 0x9e37_79b1_85eb_ca87;
const SPREAD_LEN: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// What a log file's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileHeader {
    pub lineage: u64,
    pub first: Lsn,
}

impl FileHeader {
    pub(super) fn encode(self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&LAYOUT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.lineage.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        let checksum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header, or says what is wrong with it.
    pub(super) fn decode(bytes: &[u8; FILE_HEADER_BYTES]) -> Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err("it does not begin as a log file does".into());
        }
        if u64_at(bytes, 56) != xxh3_64(&bytes[..56]) {
            return Err("its header does not match its checksum".into());
        }
        let layout = u32_at(bytes, 8);
        if layout != LAYOUT {
            return Err(format!("its layout version is {layout}, but this program reads version {LAYOUT}"));
        }
        Ok(Self { lineage: u64_at(bytes, 16), first: u64_at(bytes, 24) })
    }
}

/// A checked frame at the beginning of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A record; the payload is `FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + len`.
    Record { lsn: Lsn, len: usize },
    /// All records up to `lsn` were on the disk before.
    Mark { lsn: Lsn },
}

impl Frame {
    /// Length in bytes, padding included.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Record { len, .. } => frame_bytes(len),
            Self::Mark { .. } => FRAME_HEADER_BYTES,
        }
    }
}

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// There are fewer bytes than its header says, or than a header has.
    Short,
    /// No frame is so long.
    Length,
    /// Its bytes do not match its checksum.
    Checksum,
}

impl Fault {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Short => "the file ends within the record",
            Self::Length => "the record's length is impossible",
            Self::Checksum => "the record does not match its checksum",
        }
    }
}

/// Bytes of a frame around `len` bytes of payload.
#[inline]
pub(super) fn frame_bytes(len: usize) -> usize {
    FRAME_HEADER_BYTES + len.next_multiple_of(8)
}

/// Puts a record's frame in place of what `out` held.
#[inline]
pub(super) fn encode_record(out: &mut Vec<u8>, lineage: u64, lsn: Lsn, payload: &[u8]) {
    let len = payload.len() as u32;
    out.clear();
    out.extend_from_slice(&u64::from(len).to_le_bytes());
    out.extend_from_slice(&lsn.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(frame_bytes(payload.len()), 0);
    let sum = checksum(lineage, lsn, len, &out[8..]);
    out[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// The frame of a mark.
pub(super) fn encode_mark(lineage: u64, lsn: Lsn) -> [u8; FRAME_HEADER_BYTES] {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    bytes[..4].copy_from_slice(&MARK.to_le_bytes());
    bytes[8..].copy_from_slice(&lsn.to_le_bytes());
    let sum = checksum(lineage, lsn, MARK, &bytes[8..]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The length in bytes and the LSN that a frame's header claims, unchecked but for the length.
#[inline]
pub(super) fn claimed(header: &[u8]) -> Result<(usize, Lsn), Fault> {
    if header.len() < FRAME_HEADER_BYTES {
        return Err(Fault::Short);
    }
    let bytes = match u32_at(header, 0) {
        MARK => FRAME_HEADER_BYTES,
        len if len as usize <= MAX_PAYLOAD_BYTES => frame_bytes(len as usize),
        _ => return Err(Fault::Length),
    };
    Ok((bytes, u64_at(header, 8)))
}

/// Whether a header claims to be a mark's.
#[inline]
pub(super) fn is_mark(header: &[u8]) -> bool {
    header.len() >= FRAME_HEADER_BYTES && u32_at(header, 0) == MARK
}

/// Checks the frame at the beginning of `bytes`.
#[inline]
pub(super) fn decode(bytes: &[u8], lineage: u64) -> Result<Frame, Fault> {
    let (whole, lsn) = claimed(bytes)?;
    let frame = bytes.get(..whole).ok_or(Fault::Short)?;
    let len = u32_at(frame, 0);
    if u32_at(frame, 4) != checksum(lineage, lsn, len, &frame[8..]) {
        return Err(Fault::Checksum);
    }
    Ok(if len == MARK { Frame::Mark { lsn } } else { Frame::Record { lsn, len: len as usize } })
}

#[inline]
fn checksum(lineage: u64, lsn: Lsn, len: u32, body: &[u8]) -> u32 {
    let seed = lineage ^ lsn.wrapping_mul(SPREAD_LSN) ^ u64::from(len).wrapping_mul(SPREAD_LEN);
    xxh3_64_with_seed(body, seed) as u32
}

/// The word at `at`; the caller has made sure of its 4 bytes.
#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The word at `at`; the caller has made sure of its 8 bytes.
#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAGE: u64 = 0x0123_4567_89ab_cdef;

    fn record(lsn: Lsn, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_record(&mut out, LINEAGE, lsn, payload);
        out
    }

    #[test]
    fn what_is_encoded_is_decoded_and_any_changed_byte_is_noticed() {
        for len in [0, 1, 7, 8, 9, 64, 300] {
            let payload: Vec<u8> = (0..len as u32).map(|i| (i * 7) as u8).collect();
            let bytes = record(9, &payload);
            let frame = decode(&bytes, LINEAGE).unwrap();
            assert_eq!(frame, Frame::Record { lsn: 9, len });
            assert_eq!(frame.bytes(), bytes.len());
            assert_eq!(&bytes[16..16 + len], payload);
            assert!(decode(&bytes, LINEAGE + 1).is_err());
            assert_eq!(decode(&bytes[..bytes.len() - 1], LINEAGE), Err(Fault::Short));
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut bad = bytes.clone();
                    bad[at] ^= 1 << bit;
                    assert!(decode(&bad, LINEAGE).is_err(), "{len} {at} {bit}");
                }
            }
        }
    }

    #[test]
    fn zeros_and_ones_are_no_frame() {
        assert_eq!(decode(&[0; 64], LINEAGE), Err(Fault::Checksum));
        assert_eq!(decode(&[0xff; 64], LINEAGE), Err(Fault::Checksum));
        assert_eq!(decode(&[0x7f; 64], LINEAGE), Err(Fault::Length));
        assert_eq!(decode(&[], LINEAGE), Err(Fault::Short));
        let mark = encode_mark(LINEAGE, 5);
        assert_eq!(decode(&mark, LINEAGE), Ok(Frame::Mark { lsn: 5 }));
    }

    #[test]
    fn a_damaged_header_is_refused() {
        let header = FileHeader { lineage: LINEAGE, first: 77 };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 0x10;
            assert!(FileHeader::decode(&bad).is_err(), "{at}");
        }
    }
}
