//! The client library of FPCache.
