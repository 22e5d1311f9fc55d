//! The search for the record nearest to one key.
//!
//! # What is read
//!
//! Slots from the near end of the key's window outwards: the window, and a few beyond it. The
//! record that is found counts once everything is read from there to the far end of *its* window,
//! because what lies between it and the key can lie there; if that is not yet so, or nothing was
//! found, more is read, over as many segments as it takes.
//!
//! # Why it is the answer
//!
//! A READ of many slots is of many moments: a key may come into a slot that was passed already
//! while another goes from a slot that is yet to be read, and the record found in the end was the
//! nearest at no time. So slots are *collected*, words and records, and the collection must be of
//! one instant:
//!
//! - Words of version 0 and 1 are what a segment was written with. Such a slot was never changed,
//!   so that it held the same when the operation began. If all that matter are so, that is the
//!   instant; one collection will do.
//! - Else they are collected again. A word that is the same twice did not change between (every
//!   store to a word is of a version of its own); if all that matter are the same, they held it at
//!   the instant between the two.
//! - Else the second collection is the first of another pair.
//!
//! Words that matter are those from the key to the far end of the window of the record found.

mod ask;
mod take;

use fpcache_fabric::{Batch, Landing};

use super::Side;
use crate::key_space::KeySpace;
use crate::layout::ValueExtent;
use crate::read::Cost;
use crate::read::segment_search::{LocatedSegment, PendingPages, RecentPages};
use crate::table_view::TableView;

/// Slots of one segment: `first..end`.
#[derive(Debug)]
struct SlotRange<K: KeySpace> {
    place: LocatedSegment<K>,
    first: u32,
    end: u32,
    /// Where its words begin among all words of a collection.
    words: usize,
    landing: Option<Landing>,
}

impl<K: KeySpace> SlotRange<K> {
    fn is_of(&self, place: &LocatedSegment<K>) -> bool {
        self.place.segment.address() == place.segment.address()
    }
}

/// The next step of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SearchStep {
    /// It asks for the segment that holds the key.
    #[default]
    Begin,
    /// It asks for slots further out.
    Extend,
    /// It asks for stretches from this one on.
    Collect(usize),
    /// It asks for the value of the record that was found, of this version.
    Fetch(u32, ValueExtent),
    Nothing,
}

/// The bytes that have been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AwaitedBytes {
    /// A page of the directory alone.
    Page,
    /// Stretches, and perhaps a page.
    Stretches(usize, usize),
    Value(u32, ValueExtent, Landing),
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchEnd {
    Nothing,
    /// A record of this version.
    Record(u32, FoundValue),
}

/// Where the value of a record that was found lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundValue {
    /// In the slot, which is kept.
    InSlot,
    /// This many bytes of what landed.
    Landed(Landing, usize),
}

/// A search under way, in buffers that are kept.
#[derive(Debug, Default)]
pub(super) struct Seek<K: KeySpace> {
    pages: RecentPages<K>,
    /// From the key outwards.
    stretches: Vec<SlotRange<K>>,
    next: SearchStep,
    awaited: Option<AwaitedBytes>,
    /// Words of this collection and of the last one that was whole.
    words: Vec<u64>,
    before: Vec<u64>,
    /// The nearest record of this collection: its stretch and its slot's bytes.
    nearest: Option<usize>,
    slot: Vec<u64>,
    /// Whether one of the words of this collection is that of a slot that cannot be told.
    has_busy: bool,
    /// Whether the table ends after the last stretch.
    is_at_end: bool,
    attempts: u32,
    pub(super) cost: Cost,
}

/// The part that searches of one call have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchContext<'a, K: KeySpace> {
    pub(super) view: &'a TableView<K>,
    pub(super) side: Side,
    /// Whether a slot that lands is proven to be of one moment.
    pub(super) is_guarded: bool,
    /// How often what was being written is read again.
    pub(super) most_attempts: u32,
}

/// The requests of one call's searches with one doorbell.
#[derive(Debug)]
pub(super) struct Doorbell<'a, K: KeySpace> {
    pub(super) batch: &'a mut Batch,
    pub(super) coming: &'a mut PendingPages<K>,
    /// Bytes that searches under way keep of what they have read.
    pub(super) kept: u64,
}

impl<K: KeySpace> Doorbell<'_, K> {
    fn held(&self) -> u64 {
        self.kept + self.batch.tally().bytes_from
    }
}
