//! Key sets for FPCache: SOSD files, calibrated stand-ins for the published ones, real IPv4 range starts shipped
//! with the crate, synthetic distributions, and the request streams that are run against them.
//!
//! One notation names them all ([`Spec`]): `fb:16M`, `wiki`, `osm`, `books`, `ipv4`, `uniform:1M`, `sosd:PATH`, with
//! decimal K, M and G. [`Spec::open`] gives a [`Dataset`] in memory; [`Spec::stream`] gives the same keys in chunks, for
//! work that must not hold 200 million of them. Everything generated is a function of the seed alone and the same on
//! every platform: transcendental functions come from `libm`, random numbers from xoshiro256++.
//!
//! ```
//! use fpcache_datasets::{OpenOptions, Spec};
//!
//! let spec: Spec = "fb:10K".parse()?;
//! let keys = spec.open(&OpenOptions::default())?;
//! assert_eq!(keys.len(), 10_000);
//! assert!(keys.keys().is_sorted());
//! println!("{} ({}): first {}", keys.name(), keys.source(), keys.keys()[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod count;
mod dataset;
mod error;
pub mod generate;
pub mod inspect;
mod progress;
pub mod published;
mod random;
pub mod requests;
mod shipped;
pub mod sosd;
mod spec;
mod stream;
mod value;
pub mod verify;

pub use dataset::{Dataset, Duplicates, OpenOptions, ParseDuplicatesError};
pub use error::{DatasetError, ErrorKind};
pub use progress::Progress;
pub use spec::{KNOWN_NAMES, ParseSpecError, Spec, SpecKind};
pub use stream::{KeyStream, Source};
pub use value::write_value;
