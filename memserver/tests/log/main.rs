//! The durable log.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
mod crashes;
mod files;
#[path = "../support/memory_disk.rs"]
mod memory_disk;
mod process_ends;
mod threads;
