//! Clients of a memory node in this process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "tokio")]
mod asynchronous;
#[cfg(feature = "tokio")]
mod asynchronous_changes;
#[cfg(feature = "tokio")]
mod asynchronous_failures;
#[cfg(feature = "tokio")]
mod asynchronous_ordered;
#[cfg(feature = "tokio")]
mod asynchronous_over_nodes;
#[cfg(feature = "tokio")]
mod asynchronous_ranges;
#[cfg(feature = "tokio")]
mod asynchronous_runtimes;
#[cfg(feature = "tokio")]
mod asynchronous_words;
mod bad_input;
mod byte_tables;
mod calls_during_drops;
mod calls_over_nodes;
mod changes;
mod cut_ways;
mod damaged;
mod drop_and_create;
mod fetch_update;
mod groups;
mod loads;
mod long_values;
mod lookups_match_a_btreemap;
mod nearest_over_nodes;
mod opening;
mod ordered;
mod over_nodes;
mod pipeline;
mod proxies;
mod reads_of_dropped;
mod refused;
mod remote;
mod round_trips;
mod scans;
mod scans_in_parts;
mod short_deadlines;
#[cfg(feature = "tokio")]
mod slow_once;
mod small_budgets;
mod tables;
mod threads;
mod tokens;
mod values_ahead;
mod writes;
