//! Plain range reads: see the folder's `README.md`.

use crate::segments::{Filter, Segmented};

/// No filter: every record of a key's window is READ.
pub type Range = Segmented<NoFilter>;

/// A filter of which there is no instance.
#[derive(Clone, Copy, Debug)]
pub enum NoFilter {}

impl Filter for NoFilter {
    const PUBLISHED_BITS: f64 = 0.0;

    fn of(_: usize, _: f64) -> Option<Self> {
        None
    }

    fn contains(&self, _: u64) -> bool {
        match *self {}
    }

    fn add(&mut self, _: u64) {
        match *self {}
    }

    fn bytes(&self) -> u64 {
        match *self {}
    }
}
