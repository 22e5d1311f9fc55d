//! Key sets for FPCache: SOSD files, calibrated stand-ins for the published ones, real IPv4 range
//! starts and English words shipped with the crate, synthetic distributions, byte strings of many
//! shapes, files of lines, and the request streams that are run against them.
//!
//! One notation names them all ([`Spec`]): `fb:16M`, `wiki`, `osm`, `books`, `ipv4`, `uniform:1M`,
//! `sosd:PATH`, and of byte strings `words`, `domains:1M`, `paths:1M`, `ycsb:60M`, `binary:1M`,
//! `prefixes:1M`, `lines:PATH`, with decimal K, M and G. [`Spec::open`] gives a [`Dataset`] of
//! `u64` keys in memory; [`Spec::stream`] gives the same keys in chunks, for work that must not
//! hold 200 million of them; [`Spec::open_bytes`] gives a [`ByteDataset`]. Everything generated is
//! a function of the seed alone and the same on every platform: transcendental functions come from
//! `libm`, random numbers from xoshiro256++.
//!
//! ```
//! use fpcache_datasets::{OpenOptions, Spec};
//!
//! let spec: Spec = "fb:10K".parse()?;
//! let keys = spec.open(&OpenOptions::default())?;
//! assert_eq!(keys.len(), 10_000);
//! assert!(keys.keys().is_sorted());
//! println!("{} ({}): first {}", keys.name(), keys.source(), keys.keys()[0]);
//!
//! let words = "words:10K".parse::<Spec>()?.open_bytes(&OpenOptions::default())?;
//! let mut buffer = Vec::new();
//! assert!(words.keys().get(0, &mut buffer) < words.keys().get(1, &mut Vec::new()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "arguments")]
pub mod arguments;
#[cfg(feature = "bar")]
mod bar;
pub mod bytes;
pub mod causes;
mod content;
pub mod count;
mod dataset;
mod error;
pub mod generate;
pub mod inspect;
mod key_set;
mod options;
mod progress;
pub mod published;
mod random;
pub mod requests;
mod shipped;
pub mod sosd;
mod spec;
mod stream;
pub mod time;
mod value;
mod values;
pub mod verify;
mod width;

#[cfg(feature = "bar")]
pub use bar::{Bar, Phase};
pub use bytes::{ByteDataset, ByteKeys, KeyArena, MAX_KEY_BYTES, Unsorted};
pub use content::{Content, OutputFile};
pub use dataset::Dataset;
pub use error::{DatasetError, ErrorKind};
pub use key_set::KeySet;
pub use options::{Duplicates, OpenOptions, ParseDuplicatesError};
pub use progress::Progress;
pub use spec::{KNOWN_NAMES, KeyKind, ParseSpecError, Spec, SpecKind};
pub use stream::{KeyStream, Source};
pub use value::{key_number, write_value};
