//! What the experiments of FPCache share with its tests.
//!
//! | module | holds |
//! |---|---|
//! | [`history`] | histories of concurrent operations: recording, generating and checking them |
//!
//! [`KeyRef`] passes a key of any key space to a client.
#![forbid(unsafe_code)]

pub mod history;
mod key_ref;

pub use key_ref::KeyRef;
