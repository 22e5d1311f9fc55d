//! Byte strings as keys: in memory, in files of lines, and as data sets.

pub(crate) mod arena;
mod dataset;
pub mod inspect;
pub(crate) mod key;
mod keys;
mod lines;
pub(crate) mod sort;
pub(crate) mod unsorted;
mod verify;
mod writer;

pub use arena::KeyArena;
pub use dataset::ByteDataset;
pub use key::MAX_KEY_BYTES;
pub use keys::{ByteKeys, Cursor};
pub use unsorted::{ParseUnsortedError, Unsorted};
pub use verify::{VerifiedLines, verify};
pub use writer::LinesWriter;
