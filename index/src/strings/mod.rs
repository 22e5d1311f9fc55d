//! Segments of byte strings.
//!
//! A segment of a byte-string table owns the keys from its *separator* to the next one's. The keys
//! it was built from share the first `skip` bytes of the separator; the bytes after these a
//! [`KeyEncoder`] turns into the `u64` coordinate that [`crate::SegmentModel`] takes. A key of the
//! segment's range without the shared bytes lies above all that have them, so its coordinate is
//! `u64::MAX`, and coordinates never decrease over the whole range.
//!
//! Coordinates of different keys may be equal. A window of 2ε + 1 slots holds that many such keys,
//! so lines still serve them; where more come together a longer skip tells them apart.
//!
//! * [`KeyEncoder`] maps strings to numbers in their order. It belongs to a table and is trained on
//!   a sample of keys.
//! * [`Cutter`] cuts a stream of keys into the fewest segments and places their keys.
//! * [`partition`] divides the keys of a rebuild where one skip does not tell them apart.

mod cutter;
mod format;
mod key_encoder;
mod partition;
mod prefix;
mod skip_runs;
mod train;

pub use cutter::{Cutter, StringSegment, StringsError};
pub use format::EncoderError;
pub use key_encoder::KeyEncoder;
pub use partition::{SkipPart, partition};
pub use prefix::{MAX_KEY_BYTES, common_prefix, separator};
pub use train::Training;
