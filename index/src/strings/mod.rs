//! Lines over byte strings.
//!
//! A segment of a byte-string table owns the keys from its *separator* to the next one's. The keys it was built from
//! share the first `skip` bytes of the separator; the bytes after these a [`KeyEncoder`] turns into the `u64` coordinate that
//! [`crate::SegmentModel`] takes. A key of the segment's range without the shared bytes lies above all that have them, so
//! its coordinate is `u64::MAX`, and coordinates never decrease over the whole range ([`KeyEncoder::coordinate`]).
//!
//! Coordinates of different keys may be equal. A window of 2ε + 1 slots holds that many such keys, so lines still serve
//! them; where more come together a longer skip tells them apart.
//!
//! * [`KeyEncoder`] maps strings to numbers in their order. It belongs to a table and is trained on a sample of keys.
//! * [`Cutter`] cuts a stream of keys into the fewest segments and places their keys.
//! * [`partition`] divides the keys of a rebuild where one skip does not tell them apart.

mod cutter;
mod format;
mod key_encoder;
mod longest;
mod partition;
mod train;

pub use cutter::{Cutter, StringSegment, StringsError};
pub use format::EncoderError;
pub use key_encoder::KeyEncoder;
pub use partition::{Part, partition};
pub use train::Training;

/// Most bytes of a key.
pub const MAX_KEY_BYTES: usize = 4096;

/// How many bytes two strings share at their beginning. Eight bytes a step.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    if let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differing = u32::from_le_bytes(*x) ^ u32::from_le_bytes(*y);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += 4;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

/// The shortest beginning of `next` that is above `previous`, or its first `at_least` bytes where that is more: what
/// parts a segment whose last key is `previous` from one whose first key is `next`, and skips at most `at_least` bytes.
///
/// All of `next` if it is shorter than that, or not above `previous`.
pub fn separator<'a>(previous: &[u8], next: &'a [u8], at_least: usize) -> &'a [u8] {
    let len = (common_prefix(previous, next) + 1).max(at_least);
    &next[..len.min(next.len())]
}
