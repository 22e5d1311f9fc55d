//! Quickstart and experiments of FPCache.

fn main() {}
