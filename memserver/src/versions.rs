//! Versions of records: 1 when loaded, then one more per write, wrapping around at 2²⁹.

use fpcache::layout::SlotWord;

/// The version of loaded records.
pub(crate) const FIRST_VERSION: u32 = 1;

/// How many writes ago a version was given out; the greatest number there is for records that were
/// loaded, and for slots that never had one.
pub(crate) fn age(version: u32, now: u32) -> u32 {
    if version <= FIRST_VERSION { u32::MAX } else { now.wrapping_sub(version) % SlotWord::VERSIONS }
}

/// The version after `version`.
pub(crate) fn next_version(version: u32) -> u32 {
    // What was never written to has version 0 or 1, and nothing else has: readers conclude from
    // them that a slot never changed. 0 would also make a token of zeros possible.
    ((version + 1) % SlotWord::VERSIONS).max(FIRST_VERSION + 1)
}
