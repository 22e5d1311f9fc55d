//! Error-bounded piecewise linear models, slot windows and the segment directory of FPCache.
//!
//! Everything here maps a `u64` *coordinate* (for `u64` keys the key itself) to a place in a
//! segment, and a key to its segment. The crate is pure: no I/O, no clock, no threads, and no
//! `unsafe` but to ask for memory that is about to be read.
//!
//! * [`Segmenter`] cuts an ascending stream of coordinates into the minimum number of [`Piece`]s
//!   that one line each predicts within ε ranks.
//! * [`Piece::place`] turns a piece into a [`SegmentModel`] (24 bytes) and a slot for every key,
//!   each within the model's [`Window`] for that key.
//! * [`Line`] is the quantised line of a model, evaluated in integers, to the same bit on every
//!   CPU.
//! * [`groups`] orders a segment's slots so that a small table names the few that a key lies in.
//! * [`strings`] does the same for byte strings: coordinates in their order, and segments of them.
//! * [`Directory`] finds the segment of a key among millions and replaces segments in microseconds.
//!
//! ```
//! use fpcache_index::{SegmentOptions, Segmenter};
//!
//! let keys: Vec<u64> = (0..1_000).map(|i| i * i).collect();
//! let options = SegmentOptions { epsilon: 8, ..SegmentOptions::default() };
//! let mut segmenter = Segmenter::new(options)?;
//! let (mut pieces, mut next) = (Vec::new(), 0);
//! for &key in &keys {
//!     pieces.extend(segmenter.push(key)?);
//! }
//! pieces.extend(segmenter.finish());
//! for piece in pieces {
//!     for segment in piece.place(&keys[next..next + piece.keys], &options) {
//!         for (key, slot) in keys[next..].iter().zip(&segment.slots) {
//!             assert!(segment.model.window(*key).contains(u32::from(*slot)));
//!         }
//!         next += segment.keys;
//!     }
//! }
//! assert_eq!(next, keys.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod assign;
mod directory;
pub mod groups;
mod line;
mod model;
mod placement;
mod plr;
#[allow(unsafe_code)]
mod prefetch;
mod segmenter;
pub mod strings;
mod window;

pub use directory::{
    Builder as DirectoryBuilder, Directory, DirectoryError, DirectoryKey, Located, PageRef, RangeIter,
    ScalarSteps, Steps,
};
pub use line::Line;
pub use model::SegmentModel;
pub use placement::PlacedSegment;
pub use prefetch::prefetch;
pub use segmenter::{NotAscending, OptionsError, Piece, SegmentOptions, Segmenter, count_segments};
pub use window::Window;
