//! Histories of real memory nodes, judged.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod killed_nodes;
mod linearizability;
mod over_nodes;
mod remade_tables;
mod stress;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
mod torn_reads;
mod writes_in_flight;
