//! The suite that every fabric passes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod local;
#[cfg(feature = "rdma")]
mod rdma;
mod shm;
mod suite;
mod tcp;
mod tcp_cost;
mod tcp_peers;
mod tcp_questions;
mod tcp_tls;
mod tcp_tokens;
