//! Histories of real memory nodes, judged.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod linearizability;
mod over_nodes;
mod stress;
mod torn_reads;
mod writes_in_flight;
