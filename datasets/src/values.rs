//! Values of the keys of a data set: their positions.

use crate::options::Duplicates;

/// Values by the index of distinct keys.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// No duplicates: the value is the index.
    Index,
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Values {
    /// Room for the values of `distinct` runs of equal keys among `positions` keys, or `None` if
    /// there is no memory for them. 4 bytes each, or 8 where these do not do.
    pub(crate) fn of_runs(policy: Duplicates, positions: usize, distinct: usize) -> Option<Self> {
        if policy == Duplicates::Sum || u32::try_from(positions).is_err() {
            let mut values = Vec::new();
            values.try_reserve_exact(distinct).ok()?;
            return Some(Self::Wide(values));
        }
        let mut values = Vec::new();
        values.try_reserve_exact(distinct).ok()?;
        Some(Self::Narrow(values))
    }

    /// Adds the value of a key that occurs at the positions from `first` to before `end`.
    pub(crate) fn push_run(&mut self, policy: Duplicates, first: u64, end: u64) {
        let value = match policy {
            Duplicates::First | Duplicates::Refuse => first,
            Duplicates::Last => end - 1,
            Duplicates::Sum => (first..end).fold(0, u64::wrapping_add),
        };
        match self {
            Self::Index => {}
            // Positions fit: `of_runs` chose this for at most `u32::MAX` of them.
            Self::Narrow(values) => values.push(value as u32),
            Self::Wide(values) => values.push(value),
        }
    }

    /// The value of the key at index `i`, which must be below their number.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> u64 {
        match self {
            Self::Index => i as u64,
            Self::Narrow(values) => u64::from(values[i]),
            Self::Wide(values) => values[i],
        }
    }

    /// The indices, ascending, of the keys that occur more than `limit` times: of `len` distinct
    /// keys, `positions` with duplicates counted.
    pub(crate) fn crowded(&self, limit: u64, policy: Duplicates, len: usize, positions: u64) -> Vec<u64> {
        if matches!(self, Self::Index) && limit > 0 {
            return Vec::new();
        }
        let mut first = 0;
        let mut crowded = Vec::new();
        for i in 0..len {
            let next = match policy {
                Duplicates::Last => self.get(i) + 1,
                Duplicates::Sum => end_of_sum(first, self.get(i)),
                Duplicates::First | Duplicates::Refuse if i + 1 < len => self.get(i + 1),
                Duplicates::First | Duplicates::Refuse => positions,
            };
            if next - first > limit {
                crowded.push(i as u64);
            }
            first = next;
        }
        crowded
    }
}

/// The position after the last of those from `first` on whose sum is `sum`.
fn end_of_sum(first: u64, sum: u64) -> u64 {
    let (mut end, mut left) = (first + 1, sum.wrapping_sub(first));
    while left > 0 {
        left = left.wrapping_sub(end);
        end += 1;
    }
    end
}
