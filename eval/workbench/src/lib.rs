//! FPCache beside other indexes over disaggregated memory, in a model of network cards.
//!
//! Real index code over real keys; every answer checked; exact counts of round trips, requests and bytes; time from the
//! model.
//!
//! | module | holds |
//! |---|---|
//! | [`nic`] | cards, network, cores and threads in virtual time |
//! | [`mod@bench`] | clients of a system, what they count |
//! | [`oracle`] | which answers may be |
//! | [`words`] | simulated memory of the systems that are compared |
//! | [`mod@fpcache`] | FPCache's own regions, tables and lookups |
//! | [`inner_nodes`] | what B+ trees among them share: levels above leaves |
//! | [`smart`], [`chime`] | the systems it is compared with, a folder each, none of which knows another |
#![forbid(unsafe_code)]

pub mod bench;
pub mod chime;
pub mod fpcache;
pub mod inner_nodes;
pub mod nic;
pub mod oracle;
pub mod smart;
pub mod words;

/// Bytes of every key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Sizes {
    /// Of a key: 8 or more.
    pub key: usize,
    /// Of a value: 8 or more.
    pub value: usize,
}

/// Why a system could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub String);
