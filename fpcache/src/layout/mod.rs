//! The layout of a region: every byte of it.
//!
//! ```text
//! 0            4096                                                        region length
//! ┌────────────┬──────────┬──────────┬─ ─ ─┬───────────┬───────────┬─ ─ ─┬────────┐
//! │ superblock │ segment  │ segment  │     │ directory │ directory │     │ free   │
//! │ + table    │          │          │     │ pages     │ root      │     │        │
//! └────────────┴──────────┴──────────┴─ ─ ─┴───────────┴───────────┴─ ─ ─┴────────┘
//! ```
//!
//! All integers are little-endian; every structure starts on a multiple of eight bytes.
//! [`LAYOUT_VERSION`] names this arrangement; readers refuse any other.

mod address;
mod change;
mod chosen_for;
mod directory;
mod group_choice;
mod group_form;
mod groups;
mod record;
mod segment;
mod slot;
mod superblock;
mod table;
mod table_record;

pub use address::SegmentAddress;
pub use change::{CHANGE_RECORD_BYTES, ChangeRecord, SegmentReplacement};
pub use chosen_for::ChosenFor;
pub use directory::{Descriptor, DirectoryPage, RootEntry, decode_root, encode_root};
pub use group_choice::{GroupChoice, UnknownGroupForm};
pub use group_form::GroupForm;
pub use groups::{
    Grouping, bits_of_groups, decode_groups, encode_groups, is_whole_table, name_at, separator_at,
};
pub use record::{MAX_VALUE_BYTES, RecordParts, RecordShape, Stored, ValueExtent, ValuePlace};
pub use segment::{FingerprintSpan, SEGMENT_HEADER_BYTES, SegmentGeometry, SegmentHeader};
pub use slot::{RecordToken, SLOT_WORD_BYTES, SlotState, SlotWord, checksum};
pub use superblock::{
    DROPPED, INCARNATION_OFFSET, LOG_HEAD_OFFSET, REUSE_OFFSET, SEQUENCE_OFFSET, SUPERBLOCK_BYTES,
    Superblock, SuperblockError,
};
pub use table::{ParameterError, TableParameters};
pub use table_record::{TABLE_RECORD_BYTES, TableRecord};

/// Version of the region's layout and of what its fields mean. Any change of either raises it.
pub const LAYOUT_VERSION: u32 = 9;

/// Region bytes that do not decode: they were overwritten, torn, or written by something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} at region offset {offset} is damaged: {why}; restart the memory node and load its data again"
)]
pub struct Corrupt {
    /// The structure that was read.
    pub what: &'static str,
    /// Where it lies, in bytes from the start of the region.
    pub offset: u64,
    /// What is impossible about it.
    pub why: String,
}

impl Corrupt {
    /// Damage found in `what` at `offset`.
    pub fn new(what: &'static str, offset: u64, why: impl Into<String>) -> Self {
        Self { what, offset, why: why.into() }
    }
}

/// The little-endian integer of `N` bytes at `at`; zero where `bytes` is too short, which
/// fixed-size structures rule out before they decode.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}
