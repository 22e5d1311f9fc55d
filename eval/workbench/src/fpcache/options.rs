//! Options that FPCache is set up with.

use fpcache::cache::Variant;
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::GroupChoice;
use fpcache::plan::PlanChoice;

use crate::Sizes;
use crate::nic::Picos;

/// How FPCache is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep.
    pub budget: u64,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Width of fingerprints.
    pub width: FingerprintWidth,
    /// How lookups read that the hot cache does not answer.
    pub plan: PlanChoice,
    /// The form of groups that records are stored in, if they are.
    pub groups: Option<GroupChoice>,
    /// What an entry of the hot cache holds.
    pub variant: Variant,
    /// Share of slots that are filled.
    pub fill: f64,
    /// A core's time for a request: a put, or a lookup by the memory node.
    pub put: Picos,
    /// Whether changes of a compute node's clients travel together, as those of the tasks of one
    /// `AsyncClient` do.
    pub together: bool,
}

impl Options {
    /// A core's time for a small put, with its request and reply: a memory node takes somewhat less
    /// than a million a second from a core, as `fpcache-eval growth` measures.
    pub const PUT: Picos = 1_000_000;

    /// A core's time for each change of a request but the first. 0.34 us were measured for updates
    /// of records of 256 bytes without hints of their slots, 64 to a request, among 4 M
    /// (`fpcache-eval growth --direct --dataset uniform:8M --order random --value-bytes 248`); the
    /// rest is for keys of 128 bytes.
    pub const CHANGE: Picos = 400_000;

    /// A core's time for each record that moves when a segment is replaced: 120 to 200 ns were
    /// measured for segments of short records (`memserver`'s test of what steps take).
    pub const RECORD_MOVED: Picos = 150_000;

    /// The paper's (§4.1, §4.2): two-stage reads and fingerprints of 64 bits, of 8 bits for keys of
    /// 8 bytes.
    pub fn published(budget: u64, sizes: Sizes) -> Self {
        let width = if sizes.key == 8 { FingerprintWidth::Bits8 } else { FingerprintWidth::Bits64 };
        Self {
            budget,
            epsilon: 16,
            width,
            plan: PlanChoice::Fixed(fpcache::plan::Plan::TwoStage),
            groups: None,
            variant: Variant::Fd,
            fill: 0.85,
            put: Self::PUT,
            together: false,
        }
    }
}
