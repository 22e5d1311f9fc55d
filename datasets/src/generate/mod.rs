//! Generators: the stand-ins for published files, the synthetic distributions, and byte strings.
//! Each is a function of count and seed alone, the same on every platform.

pub mod binary;
mod binomial;
pub mod books;
mod cascade;
mod distinct;
pub mod domains;
pub mod fb;
pub mod osm;
pub mod paths;
pub mod prefixes;
pub mod synthetic;
mod vocabulary;
pub mod wiki;
pub mod ycsb;

pub use cascade::Spread;
