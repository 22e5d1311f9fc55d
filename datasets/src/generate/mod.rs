//! Generators: the stand-ins for published files and the synthetic distributions. Each is a function of count and
//! seed alone, the same on every platform.

mod binomial;
pub mod books;
mod cascade;
pub mod fb;
pub mod osm;
pub mod synthetic;
pub mod wiki;
