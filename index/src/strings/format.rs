//! The byte format of encoders.

use thiserror::Error;

use super::KeyEncoder;
use super::key_encoder::{Cell, Classes, MAX_CELLS, RUN};

/// Bytes that are no encoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum EncoderError {
    /// Another format.
    #[error(
        "the encoder has format {found}, this build reads {VERSION}: use a build of the version that wrote it"
    )]
    Version {
        /// The format found.
        found: u16,
    },
    /// Cut short, or followed by something else.
    #[error("the encoder has {found} bytes where {expected} belong: fetch or write it anew")]
    Size {
        /// Bytes that its head asks for.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// Shares or rows that no encoder has.
    #[error("the encoder's table is damaged at byte {at}: fetch or write it anew")]
    Table {
        /// Where.
        at: usize,
    },
}

/// The format of [`KeyEncoder::encode`].
const VERSION: u16 = 1;
const HEAD: usize = 40;

impl KeyEncoder {
    /// The encoder in bytes: format version (2), cells of a row (2), cells (4), the bytes that are
    /// classes of their own (32, a bit each from the lowest of the first), then for each cell share
    /// (2) and next row (2); little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + 4 * self.cells.len());
        bytes.extend(VERSION.to_le_bytes());
        // Both fit: a row has at most 257 cells and the table 2^16.
        bytes.extend((self.classes.width() as u16).to_le_bytes());
        bytes.extend((self.cells.len() as u32).to_le_bytes());
        for eight in self.classes.classes.chunks(8) {
            bytes.push((0..8).fold(0, |bits, i| bits | u8::from(eight[i] & RUN == 0) << i));
        }
        for cell in &self.cells {
            bytes.extend(cell.below.to_le_bytes());
            bytes.extend(cell.next.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Self::encode`] wrote. Whatever is accepted codes every string, in order.
    ///
    /// # Errors
    /// Bytes of another format, too few or too many, or a table that no encoder has.
    pub fn decode(bytes: &[u8]) -> Result<Self, EncoderError> {
        let field = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let short = EncoderError::Size { expected: HEAD, found: bytes.len() };
        let found = field(0).ok_or(short)?;
        if found != VERSION {
            return Err(EncoderError::Version { found });
        }
        let bits = bytes.get(8..HEAD).ok_or(short)?;
        let seen: [bool; 256] = std::array::from_fn(|byte| bits[byte / 8] >> (byte % 8) & 1 == 1);
        let classes = Classes::new(&seen);
        let width = classes.width();
        if field(2) != Some(width as u16) {
            return Err(EncoderError::Table { at: 2 });
        }
        let count = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        if count == 0 || count > MAX_CELLS || !count.is_multiple_of(width) {
            return Err(EncoderError::Table { at: 4 });
        }
        let expected = HEAD + 4 * count;
        if bytes.len() != expected {
            return Err(EncoderError::Size { expected, found: bytes.len() });
        }
        let cells: Vec<Cell> = bytes[HEAD..]
            .chunks_exact(4)
            .map(|b| Cell { below: u16::from_le_bytes([b[0], b[1]]), next: u16::from_le_bytes([b[2], b[3]]) })
            .collect();
        for (i, row) in cells.chunks(width).enumerate() {
            if let Some(column) = first_fault(row, width, count) {
                return Err(EncoderError::Table { at: HEAD + 4 * (i * width + column) });
            }
        }
        let encoder = Self::from_table(classes, cells);
        // A class of one unseen byte is one of a seen byte: there is one form of each encoder.
        if encoder.encode() != bytes {
            return Err(EncoderError::Table { at: 8 });
        }
        Ok(encoder)
    }
}

/// The first column of a row whose share is not above the one before, or that leads nowhere.
fn first_fault(row: &[Cell], width: usize, count: usize) -> Option<usize> {
    let mut last = 0;
    row.iter().enumerate().position(|(column, cell)| {
        let next = usize::from(cell.next);
        let rises = cell.below > last;
        last = cell.below;
        !rises || next >= count || !next.is_multiple_of(width) || (column + 1 == width && next != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::super::train::tests::trained;
    use super::*;

    #[test]
    fn encoded_bytes_lie_where_the_format_says() {
        let bytes = KeyEncoder::plain().encode();
        assert_eq!(bytes[..8], [1, 0, 1, 1, 1, 1, 0, 0]);
        assert_eq!(bytes[8..40], [255; 32]);
        assert_eq!(bytes[40..48], [255, 0, 0, 0, 254, 1, 0, 0]);
        let trained = trained(2).encode();
        // Six cells a row, 24 in all; `a`, `b` and `c` are classes of their own.
        assert_eq!(trained[..8], [1, 0, 6, 0, 24, 0, 0, 0]);
        assert_eq!(trained[8..40].iter().position(|bits| *bits != 0), Some(12));
        assert_eq!(trained[20], 0b1110);
        // The row after `a`: the end, other bytes, `a`, `b`, `c`, other bytes, and the rows that
        // follow.
        let row = [
            [15, 0, 0, 0],
            [17, 0, 6, 0],
            [175, 5, 12, 0],
            [94, 250, 18, 0],
            [253, 255, 0, 0],
            [255, 255, 0, 0],
        ];
        assert_eq!(trained[64..88], *row.as_flattened());
    }

    #[test]
    fn other_bytes_are_refused_with_what_is_wrong() {
        let mut bytes = trained(2).encode();
        let size = EncoderError::Size { expected: bytes.len(), found: bytes.len() - 1 };
        assert_eq!(KeyEncoder::decode(&bytes[..bytes.len() - 1]), Err(size));
        assert_eq!(KeyEncoder::decode(&[]), Err(EncoderError::Size { expected: 40, found: 0 }));
        // A share not above the one before.
        bytes[44..46].copy_from_slice(&[0, 0]);
        assert_eq!(KeyEncoder::decode(&bytes), Err(EncoderError::Table { at: 44 }));
        bytes[0] = 2;
        assert_eq!(KeyEncoder::decode(&bytes), Err(EncoderError::Version { found: 2 }));
    }
}
