//! Region layout, fingerprints and read plans of FPCache.
//!
//! A *memory node* holds sorted records in segments: a header, an array of fingerprints, and an
//! array of fixed-size slots, fingerprint `i` belonging to slot `i`. A *compute node* holds one
//! small model per segment. To look a key up it predicts a window of slots, fetches the window's
//! fingerprints with one one-sided READ, matches them locally, and fetches only the slots whose
//! fingerprint agrees with a second READ. The memory node's processor takes no part in it.
//!
//! | module | holds |
//! |---|---|
//! | [`key_space`] | what a table needs to know about its keys: order, coordinate, hash, encoding |
//! | [`fingerprint`] | widths, reserved values, and how a key's hash becomes a fingerprint |
//! | [`map`] | which memory node has which keys of a table over several |
//! | [`matching`] | finding a fingerprint in a window, vectorised |
//! | [`layout`] | every byte of a region: superblock, table record, directory pages, segments, slots |
//! | [`cache`] | the hot cache: where hot keys lie, in a few bytes each |
//! | [`models`] | the models of a table: all of them, or those that fit a number of bytes |
//! | [`group_tables`] | tables that tell which few slots of a segment a key lies in |
//! | [`table_view`] | the compute node's view of a table: parameters and models |
//! | [`table`] | a table as a compute node reads it: models, plans and hot cache within one budget |
//! | [`plan`] | the ways to read a key, and which one is the cheapest |
//! | [`read`] | the resumable operations that carry plans out |
//! | [`message`] | the requests a client sends to a memory node's processor |
//!
//! The byte layout and the protocol are drawn in `docs/design.md` of the repository.

#![deny(unsafe_code)]

pub mod cache;
mod changes;
mod cursor;
pub mod fingerprint;
pub mod group_tables;
pub mod key_space;
pub mod layout;
pub mod map;
pub mod matching;
pub mod message;
pub mod models;
pub mod plan;
pub mod read;
#[doc(hidden)]
pub mod sabotage;
pub mod table;
mod table_name;
pub mod table_view;
pub mod tuning;

pub use changes::{Refresh, put_into};
pub use table_name::{TableName, TableNameError};
