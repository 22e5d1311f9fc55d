//! The atomics buckets are made of: the standard library's, or the model checker's in its own
//! tests.

#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::AtomicU64;
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::atomic::AtomicU64;
