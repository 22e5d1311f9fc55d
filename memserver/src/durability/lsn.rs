//! Log sequence numbers.

/// A log sequence number: records count 1, 2, 3, …; 0 stands before the first.
pub type Lsn = u64;

/// No log gets so far; a greater number was not written by one.
pub(super) const MAX_LSN: Lsn = 1 << 62;
