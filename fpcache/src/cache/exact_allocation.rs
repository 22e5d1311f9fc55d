//! Allocation of exactly the size that was budgeted, for the buckets of a hot cache and its
//! counters of heat.

use std::collections::TryReserveError;

/// `count` values, in memory for exactly those.
pub(super) fn collected<T>(count: usize, value: impl FnMut() -> T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count)?;
    all.resize_with(count, value);
    Ok(all.into_boxed_slice())
}
