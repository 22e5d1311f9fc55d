//! Limits on how long calls go on with maps that change, and what they remember of looks that found
//! none.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::error::ClientError;

/// How often a call continues with a newer map before it gives up.
const MAPS: u32 = 8;

/// Within this time, or four times that of the slowest answer, memory nodes tell the map of a table
/// that another one has told. A first packet that is lost is sent again after a second: one that is
/// away may have the map of a table that was dropped since, which those who answer late know.
pub(super) const ENOUGH_FOR_A_MAP: Duration = Duration::from_millis(1500);

/// A call's patience with maps that change.
pub(super) struct Tries {
    within: Duration,
    started: Option<Instant>,
    maps: u32,
}

impl Tries {
    pub(super) fn new(within: Duration) -> Self {
        Self { within, started: None, maps: 0 }
    }

    /// Of a call that asks several memory nodes: its time begins now.
    pub(super) fn begun(within: Duration) -> Self {
        let mut tries = Self::new(within);
        tries.begin();
        tries
    }

    /// Has the call's time begin now, if it has not.
    pub(super) fn begin(&mut self) {
        self.started.get_or_insert_with(Instant::now);
    }

    /// Counts a failure, after which the call goes on with a newer map; `false` if it has done so
    /// often enough, or its time is over.
    pub(super) fn go_on(&mut self, failed: Instant) -> bool {
        self.started.get_or_insert(failed);
        self.maps += 1;
        self.maps <= MAPS && !self.left().is_zero()
    }

    /// What is left of the call's time, which begins with its first failure, if not before.
    pub(super) fn left(&self) -> Duration {
        self.started.map_or(self.within, |started| self.within.saturating_sub(started.elapsed()))
    }
}

/// What was found when there was no newer map.
#[derive(Clone, Debug)]
pub(super) struct FailedMapSearch {
    /// The number of the map that was in use, and when its memory nodes began to be asked.
    pub(super) number: u64,
    pub(super) begun: Instant,
    /// How much time there was for that.
    pub(super) time_limit: Duration,
    pub(super) found: NoNewerMap,
    /// What became of ranges that their memory nodes do not have, by their places in the map.
    pub(super) lost: HashMap<usize, ClientError>,
}

impl FailedMapSearch {
    /// Whether a call that has so much time left need not look once more: who was silent may answer
    /// one that waits much longer.
    pub(super) fn is_enough_for(&self, left: Duration) -> bool {
        self.found.silent.is_none() || !is_much_longer(left, self.time_limit)
    }
}

/// Whether a call with so much time may be answered by a memory node that was silent for one that
/// had less.
pub(crate) fn is_much_longer(time: Duration, limit: Duration) -> bool {
    time > limit.saturating_mul(2)
}

/// What memory nodes said of a table of which there was no newer map.
#[derive(Clone, Debug)]
pub(super) struct NoNewerMap {
    /// The memory nodes that have ranges of the same table still, and have it for whole.
    pub(super) with_it: Vec<String>,
    /// One that could not be asked.
    pub(super) silent: Option<String>,
}
