//! The search for the record nearest to a key.
//!
//! It rests on what a scan rests on: coordinates do not decrease as keys grow, and a key lies in
//! its window. So a key at or below *x* lies no higher than *x*'s window, and every key above one
//! that was found lies no lower than that one's window.

mod in_place;
mod nearest;
mod scratch;
mod seek;
mod short;

pub use nearest::{Nearest, find_nearest, find_nearest_again, find_nearest_to};
pub use scratch::{NearestScratch, Neighbour};

/// On which side of a key the nearest record is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The record with the greatest key not above it.
    Floor,
    /// The record with the least key not below it.
    Ceiling,
}
