//! FPCache beside other indexes over disaggregated memory, in a model of network cards.
//!
//! Real index code over real keys; exact counts of round trips, requests and bytes; time from the model.
//!
//! | module | holds |
//! |---|---|
//! | [`nic`] | cards, network, cores and threads in virtual time |
#![forbid(unsafe_code)]

pub mod nic;
