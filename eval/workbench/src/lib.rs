//! FPCache beside other indexes over disaggregated memory, in a model of network cards.
//!
//! Real index code over real keys; every answer checked; exact counts of round trips, requests and
//! bytes; time from the model.
//!
//! | module | holds |
//! |---|---|
//! | [`nic`] | cards, network, cores and threads in virtual time |
//! | [`mod@bench`] | clients of a system, what they count |
//! | [`delegation`], [`combining`] | one client's lookup, or write, for all of its compute node that want the key |
//! | [`local_locks`] | turns of a compute node's clients that want one remote lock |
//! | [`oracle`] | which answers may be |
//! | [`words`] | simulated memory of the systems that are compared |
//! | [`mod@fpcache`] | FPCache's own regions, tables and lookups |
//! | [`inner_nodes`], [`kept`] | what some of them share: levels above leaves, and what is kept within a budget |
//! | [`segments`] | what plain and filtered range reads share: FPCache's segments without fingerprints |
//! | [`range`], [`bloom`], [`cuckoo`] | range reads of whole windows, and behind filters on compute nodes, a folder each |
//! | [`smart`], [`chime`], [`sherman`], [`rolex`], [`dmtree`] | the systems it is compared with, a folder each, none of which knows another; not XStore, and no store asked by RPC |
//! | [`experiment`] | any of them in one experiment, with published parameters or the best of those tried |
//! | [`paper`] | the FPCache paper, statement by statement |
#![forbid(unsafe_code)]

pub mod bench;
pub mod bloom;
pub mod chime;
pub mod combining;
pub mod cuckoo;
pub mod delegation;
pub mod dmtree;
pub mod experiment;
pub mod fpcache;
pub mod inner_nodes;
pub mod kept;
pub mod local_locks;
pub mod nic;
pub mod oracle;
pub mod paper;
pub mod range;
pub mod rolex;
pub mod segments;
pub mod sherman;
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{0}")]
pub struct BuildError(pub String);

/// A number whose bits each depend on all of another's (the finaliser of MurmurHash3): what the
/// systems hash keys with.
pub fn scatter(number: u64) -> u64 {
    let mixed = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}
