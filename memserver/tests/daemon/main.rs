//! The daemon as a process.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod files;
mod hostile_clients;
mod keys;
mod log;
mod patience;
mod tls;
mod tokens;
