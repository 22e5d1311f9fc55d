//! The durable log.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
mod crashes;
mod files;
mod process_ends;
mod threads;
