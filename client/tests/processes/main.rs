//! Clients of a memory node in another process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "tokio")]
mod asynchronous;
mod readers;
mod restart;

/// Not a test of its own: what the second process does when a test has started it.
#[test]
fn played_by_another_process() {
    common::be_a_memory_node();
}
