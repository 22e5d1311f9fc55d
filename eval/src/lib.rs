//! What the experiments of FPCache share with its tests.
//!
//! | module | holds |
//! |---|---|
//! | [`history`] | histories of concurrent operations: recording, generating and checking them |
#![forbid(unsafe_code)]

pub mod history;
