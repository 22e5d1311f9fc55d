//! A counting allocator for the whole process. For tests that are alone in theirs, each of which
//! includes this file.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that page caches may say above what they take: their hash tables' control bytes come in
/// smaller groups on other processors.
pub const SPARE: usize = if cfg!(all(target_arch = "x86_64", target_feature = "sse2")) { 0 } else { 16 * 8 };

/// Bytes allocated and not freed.
pub fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}
