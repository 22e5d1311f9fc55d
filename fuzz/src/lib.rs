//! The decoders that libFuzzer runs; a property test of `fpcache` runs the same for a moment, on
//! stable.

#[path = "../../fpcache/tests/common/decoders.rs"]
mod decoders;

pub use decoders::{key_encoders, layout, messages};
