//! The settings that the rows of an experiment have in common.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::{Calibration, Machine};
use crate::pages::MemoryPages;

/// What all systems of an experiment share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The distribution of lookups.
    pub distribution: String,
    /// Lookups after which the popular keys move.
    pub shift_every: Option<u64>,
    /// Share of lookups for absent keys that was asked for.
    pub negative: f64,
    /// Seed of data and lookups.
    pub seed: u64,
    /// Where the memory node was.
    pub transport: String,
    /// How many memory nodes had the table together; `None` where others had started them.
    pub memory_nodes: Option<u32>,
    /// How long clients look at sockets before they sleep; `None`: they use none.
    pub spin: Option<Duration>,
    /// Bytes of the longest values that are stored in slots, where lengths vary.
    pub inline_bytes: Option<u32>,
    /// The pages of all systems' memory.
    pub pages: MemoryPages,
    /// When writes reached the memory node's disk; `None`: nothing was kept.
    pub fsync: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// Its memory during the run.
    pub calibration: Calibration,
    /// Where in a sweep this is, if it is one.
    pub sweep: Option<PointTag>,
}

/// Where in a sweep a row belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointTag {
    /// The setting that is swept.
    pub over: String,
    /// Its value; sizes in bytes.
    pub value: f64,
    /// All other settings that matter, in words: rows belong together exactly if these are equal.
    pub experiment: String,
}
