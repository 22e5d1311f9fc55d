//! Command line client of FPCache.

fn main() {}
