//! The decoders that libFuzzer runs; property tests of `fpcache` and `fpcache-memserver` run the
//! same for a moment, on stable.

#[path = "../../fpcache/tests/common/decoders.rs"]
mod decoders;
#[path = "../../memserver/tests/support/decoders.rs"]
mod files;
#[path = "../../memserver/tests/support/memory_disk.rs"]
mod memory_disk;

pub use decoders::{key_encoders, layout, messages};
pub use files::{log_file, snapshot};
