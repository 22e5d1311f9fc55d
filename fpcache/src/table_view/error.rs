//! Errors of opening a table.

use bytesize::ByteSize;
use fpcache_fabric::FabricError;

use crate::cache::NoCache;
use crate::layout::{Corrupt, SuperblockError};

/// Why a table could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The memory node holds no table yet.
    #[error("the memory node holds no data yet: load a data set first, for example `fpcache-cli load ipv4`")]
    Empty,
    /// The superblock could not be taken.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The directory's bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The models have too few bytes even for the directory's top level.
    #[error(
        "a cache of {} cannot hold the top level of this table's directory: at least {}; raise the cache budget",
        ByteSize(*.budget).display().iec(),
        rounded_up(*.least).display().iec()
    )]
    Budget {
        /// Bytes they may take.
        budget: u64,
        /// The fewest that would do.
        least: u64,
    },
    /// The directory was replaced each time before it was fetched.
    #[error(
        "the table's directory changed faster than it could be fetched, {attempts} times in a row: try again"
    )]
    Moving {
        /// How often it was tried.
        attempts: u32,
    },
    /// The hot cache's memory cannot be had.
    #[error(transparent)]
    Memory(NoCache),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// A size rounded up to the tenth of a unit that is shown, so that a caller that asks for what is
/// shown gets enough.
fn rounded_up(bytes: u64) -> ByteSize {
    let unit = 1u128 << (bytes.max(1).ilog2() / 10 * 10);
    let tenths = (u128::from(bytes) * 10).div_ceil(unit);
    ByteSize(u64::try_from(tenths * unit / 10).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_too_small_is_refused_with_one_that_would_do() {
        let error = OpenError::Budget { budget: 4096, least: 17_613 };
        let text = "a cache of 4.0 KiB cannot hold the top level of this table's directory: at least 17.3 KiB; \
                    raise the cache budget";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn sizes_are_rounded_up_to_what_is_shown() {
        let sizes = (0..64)
            .flat_map(|bits| [1u64 << bits, (1 << bits) + 1, (1u64 << bits).wrapping_mul(1001) / 1000]);
        for bytes in sizes.chain([0, 1, 1023, 17_613, u64::MAX - (1 << 60)]) {
            let shown = rounded_up(bytes);
            assert!(shown.as_u64() >= bytes, "{bytes}");
            let read: ByteSize = shown.display().iec().to_string().parse().unwrap();
            assert!(read.as_u64() >= bytes, "{bytes}: {shown}");
            assert!(read.as_u64() as f64 <= bytes as f64 * 1.101 + 1.0, "{bytes}: {shown}");
        }
    }
}
