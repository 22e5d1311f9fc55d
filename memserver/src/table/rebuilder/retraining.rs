//! The schedule of retraining, and the segments that are outdated since the last time.

use fpcache::key_space::BuildKeys;

use crate::recovery_area::MOST_REPLACED;

/// Records from which a table first retrains.
const FIRST: u64 = 4096;
/// The factor by which it has grown when it retrains again.
const GROWTH: u64 = 16;

/// When a table retrains next, and how far the last result has been applied.
#[derive(Debug)]
pub(crate) struct Retraining<K: BuildKeys> {
    /// Records with which it retrains next.
    at: u64,
    /// Where the segments begin that may be outdated; `None` if there is none.
    pub(crate) outdated_from: Option<K::Owned>,
    /// The same while there is no room to replace them.
    pub(crate) waits_from: Option<K::Owned>,
    /// How many of them are replaced at once, at most.
    pub(crate) at_once: usize,
}

impl<K: BuildKeys> Retraining<K> {
    /// For a table of this many records.
    pub(crate) fn new(encoders: &K::Encoders, keys: u64) -> Self {
        let at = if K::is_trained(encoders) { keys.saturating_mul(GROWTH).max(FIRST) } else { FIRST };
        Self {
            at,
            // A process before may have left some.
            outdated_from: K::has_outdated(encoders).then(|| K::lowest().to_owned()),
            waits_from: None,
            at_once: MOST_REPLACED,
        }
    }

    /// Has outdated segments replaced from this key on.
    pub(crate) fn convert_from(&mut self, from: K::Owned) {
        self.outdated_from = Some(from);
        self.at_once = if self.waits_from.take().is_some() { 1 } else { MOST_REPLACED };
    }

    /// Notes that some were replaced: twice as many may be at once.
    pub(crate) fn replaced(&mut self) {
        self.at_once = (2 * self.at_once).min(MOST_REPLACED);
    }

    pub(crate) fn retrain_at(&mut self, keys: u64) {
        self.at = keys;
    }

    /// Has a table of this many records, which could not keep what it learned, retrain when it has
    /// grown by a quarter.
    pub(crate) fn try_again(&mut self, keys: u64) {
        self.at = keys.saturating_add(keys / 4);
    }

    /// Whether a table of this many records retrains now; the next time comes later then.
    pub(crate) fn is_due(&mut self, keys: u64) -> bool {
        if K::FIXED_BYTES.is_some() || keys < self.at {
            return false;
        }
        self.at = keys.saturating_mul(GROWTH);
        true
    }
}
