//! The durable log.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod any_bytes;
mod common;
mod crashes;
#[path = "../support/decoders.rs"]
mod decoders;
mod files;
#[path = "../support/memory_disk.rs"]
mod memory_disk;
mod process_ends;
mod threads;
