//! Key spaces: all that a table needs to know about its keys.

mod build;
mod byte_keys;
mod kind;
mod separators;
mod u64_keys;

use std::borrow::Borrow;
use std::fmt::Debug;
use std::hash::Hash;

use fpcache_index::DirectoryKey;

pub use build::{
    Boundary, BoundaryRequest, BuildKeys, CutSegment, Division, IntegerCutter, OrderError, StringCutter,
};
pub use byte_keys::{ByteKeys, ByteTail, KeyEncoders};
pub use kind::{KeyKind, UnknownKeyKind};
pub use separators::{FrontCoded, PageSeparators};
pub use u64_keys::U64Keys;

/// The kind of keys a table holds: their order, the number a model sees, the bytes that are hashed,
/// and their encoding in slots, directory and requests.
///
/// Everything else in this crate is written against this trait, so that tables over other kinds of
/// keys share one implementation of layout, plans and protocol.
///
/// A key's *encoded form* is the bytes that stand for it in slots and requests; they are also what
/// is hashed.
pub trait KeySpace: Copy + Debug + Default + PartialEq + Eq + Send + Sync + 'static {
    /// A key as callers pass it, by reference.
    type Key: ?Sized
        + DirectoryKey
        + ToOwned<Owned = Self::Owned>
        + Ord
        + Debug
        + Hash
        + Send
        + Sync
        + 'static;
    /// A key that is held on its own.
    type Owned: Borrow<Self::Key> + Clone + Default + Ord + Debug + Hash + Send + Sync + 'static;
    /// A key in its encoded form, looked at where it lies.
    type View<'a>: Borrow<Self::Key> + Copy + Ord + Debug + Hash + Send + Sync;
    /// A key among others, whose bytes lie in an arena if it has any.
    type Kept: Copy + Debug + Send + Sync + 'static;
    /// The data in a segment's descriptor that coordinates depend on, beside the model.
    type Tail: Copy + Debug + Default + PartialEq + Eq + Send + Sync + 'static;
    /// The separators of a page of the directory.
    type Separators: PageSeparators<Self::Key>;
    /// The encoders that a table's segments share to compute coordinates.
    type Encoders: Clone + Debug + Default + Send + Sync + 'static;

    /// Identifies the key space in a table record, so that a client never reads a table with
    /// another's rules.
    const ID: u32;
    /// Name for people, as `stats` prints it.
    const NAME: &'static str;
    /// Bytes of every key's encoded form, where they are the same in all tables.
    const FIXED_BYTES: Option<usize>;
    /// Bytes of a directory page; the longest separator there can be must fit.
    const PAGE_BYTES: usize;

    /// The key every other key is greater than or equal to.
    fn lowest() -> &'static Self::Key;

    /// A key that no key of a table and no end of a segment's range exceeds: the greatest key of
    /// all is searched for from there.
    fn highest() -> &'static Self::Key;

    /// The least key greater than `key`, if there is one; scans resume there.
    fn successor(key: &Self::Key) -> Option<Self::Owned>;

    /// The number a model sees, for a key in the range of a segment whose first key shares its
    /// first `shared` bytes. Must not decrease as keys of one segment grow.
    fn coordinate(key: &Self::Key, shared: usize, tail: Self::Tail, encoders: &Self::Encoders) -> u64;

    /// How many leading bytes two keys share, where coordinates depend on that.
    fn shared(a: &Self::Key, b: &Self::Key) -> usize;

    /// CityHash64 of the encoded form, from which fingerprints are cut.
    fn hash(key: &Self::Key) -> u64;

    /// The tag that the hot cache's variants with full keys hold: the key itself if it is a word,
    /// else another hash.
    fn tag(key: &Self::Key) -> u64;

    /// The encoded form as one little-endian word, if that is what it takes of all keys; words have
    /// the order of keys then, and coordinates do not depend on what keys share.
    fn word(key: &Self::Key) -> Option<u64>;

    /// Bytes of the encoded form.
    fn encoded_len(key: &Self::Key) -> usize;

    /// Writes the encoded form into `out`, which has its length.
    fn encode(key: &Self::Key, out: &mut [u8]);

    /// The key with this encoded form; `None` if no key has it.
    fn view(bytes: &[u8]) -> Option<Self::View<'_>>;

    /// The key as its encoded form would show it.
    fn as_view(key: &Self::Key) -> Self::View<'_>;

    /// Keeps a key among others.
    fn keep(key: &Self::Key, arena: &mut Vec<u8>) -> Self::Kept;

    /// A key that was kept.
    fn kept<'a>(kept: &'a Self::Kept, arena: &'a [u8]) -> &'a Self::Key;

    /// A number that tells the ends of ranges apart, in segments' headers: the key itself if it is
    /// a word, else a hash.
    fn boundary_id(key: &Self::Key) -> u64;

    /// The key for people.
    fn show(key: &Self::Key) -> String;

    /// Heap bytes of a key that is held on its own.
    fn heap_bytes(key: &Self::Owned) -> usize;

    /// Appends the low end of a segment's range, and the tail, to a descriptor that comes after one
    /// whose range begins at `before`.
    fn put_separator(start: &Self::Key, tail: Self::Tail, before: Option<&Self::Key>, out: &mut Vec<u8>);

    /// Reads what [`put_separator`](Self::put_separator) wrote, and returns what lies after; `None`
    /// if it cannot be.
    fn take_separator<'b>(
        before: Option<&Self::Key>,
        bytes: &'b [u8],
    ) -> Option<(Self::Owned, Self::Tail, &'b [u8])>;

    /// The bytes of what segments share; empty if that is nothing.
    fn encode_encoders(encoders: &Self::Encoders) -> Vec<u8>;

    /// Reads what [`encode_encoders`](Self::encode_encoders) wrote.
    ///
    /// # Errors
    /// In words, what about the bytes cannot be.
    fn decode_encoders(bytes: &[u8]) -> Result<Self::Encoders, String>;

    /// Bytes of what segments share, on the heap.
    fn encoders_bytes(encoders: &Self::Encoders) -> usize;

    /// Whether `encoders` have what the tail refers to.
    fn knows(encoders: &Self::Encoders, tail: Self::Tail) -> bool;
}
