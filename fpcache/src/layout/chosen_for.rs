//! The reasons for a table's parameters, where they were chosen for it.

use super::{GroupForm, put, u32_at, u64_at};

/// In the place of a budget where none was given.
const NO_BUDGET: u64 = u64::MAX;

/// The conditions that parameters were [chosen](crate::tuning::tune) for, and the costs expected
/// then.
///
/// ```text
/// 0 round trip, ns u32 · 4 byte, ps u32 · 8 budget u64 (all ones: none) · 16 inserts a key, millionths u32
/// 20 round trips of a lookup, millionths u32 · 24 bytes of a lookup u32 · 28 time of the next best form, thousandths u32 (0: none)
/// ```
///
/// The form that the last number is of has a byte beside: 0 no groups, 1 plain, 2 seeded, 3 pilots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenFor {
    /// The assumed time of a round trip, in nanoseconds.
    pub round_trip_ns: u32,
    /// The assumed time of a byte, in picoseconds.
    pub byte_ps: u32,
    /// Bytes of a compute node, if these were bounded.
    pub budget: Option<u64>,
    /// Inserts to come for each key that is loaded, in millionths.
    pub growth: u32,
    /// Round trips of a lookup, in millionths.
    pub round_trips: u32,
    /// Bytes that it READs.
    pub bytes: u32,
    /// The best of the other forms, and how many times the time of a lookup it was to take, in
    /// thousandths.
    pub other: Option<(Option<GroupForm>, u32)>,
}

impl ChosenFor {
    /// Bytes that [`encode`](Self::encode) writes.
    pub(super) const BYTES: usize = 32;

    /// Its bytes, and the byte of the other form.
    pub(super) fn encode(&self, b: &mut [u8]) -> u8 {
        let Self { round_trip_ns, byte_ps, budget, growth, round_trips, bytes, other } = *self;
        put(b, 0, round_trip_ns.to_le_bytes());
        put(b, 4, byte_ps.to_le_bytes());
        put(b, 8, budget.unwrap_or(NO_BUDGET).to_le_bytes());
        put(b, 16, growth.to_le_bytes());
        put(b, 20, round_trips.to_le_bytes());
        put(b, 24, bytes.to_le_bytes());
        put(b, 28, other.map_or(0, |(_, time)| time.max(1)).to_le_bytes());
        other.and_then(|(form, _)| form).map_or(0, |form| form as u8)
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` if there is no such form.
    pub(super) fn decode(b: &[u8], form: u8) -> Option<Self> {
        let form = match form {
            0 => None,
            number => Some(GroupForm::ALL.into_iter().find(|form| *form as u8 == number)?),
        };
        Some(Self {
            round_trip_ns: u32_at(b, 0),
            byte_ps: u32_at(b, 4),
            budget: Some(u64_at(b, 8)).filter(|budget| *budget != NO_BUDGET),
            growth: u32_at(b, 16),
            round_trips: u32_at(b, 20),
            bytes: u32_at(b, 24),
            other: Some((form, u32_at(b, 28))).filter(|(_, time)| *time > 0),
        })
    }
}
