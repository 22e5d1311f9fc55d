//! The commands as a user calls them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod density;
mod documents;
mod fabric;
mod growth;
mod memory_node;
mod narrow;
mod peers;
mod quickstart;
mod report;
mod run;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod waits;
mod ycsb;
