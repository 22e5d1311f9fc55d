//! The part of the experiments that tests share.
//!
//! | module | holds |
//! |---|---|
//! | [`history`] | histories of concurrent operations: recording, generating and checking them |
#![forbid(unsafe_code)]

pub mod history;
