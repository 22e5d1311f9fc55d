//! Region layout, fingerprints and read plans of FPCache.
//!
//! A *memory node* holds sorted records in segments: a header, an array of fingerprints, and an
//! array of fixed-size slots, fingerprint `i` belonging to slot `i`. A *compute node* holds one
//! small model per segment. To look a key up it predicts a window of slots, fetches the window's
//! fingerprints with one one-sided READ, matches them locally, and fetches only the slots whose
//! fingerprint agrees with a second READ. Over mapped memory and by network cards,
//! the memory node's processor takes no part in it.
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
