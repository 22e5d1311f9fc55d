//! A leaf and its entry in the leaf table, as they lie in memory.

/// Bytes of a leaf's entry in the leaf table.
pub(super) const TABLE_ENTRY: usize = 8;
/// Leaves whose table entries are fetched and kept together.
pub(super) const CHUNK: usize = 64;
/// Words before a leaf's entries: how many are used, its synonym leaf, and which model it was of,
/// once others have taken that one's place (its number and one).
pub(super) const HEAD: usize = 3;
/// The lock in a leaf's entry of the table.
pub(super) const LOCK: u64 = 1 << 63;

/// The model that a leaf was of, if others have taken its place.
pub(super) fn replaced(leaf: &[u64]) -> Option<usize> {
    (leaf[2] as usize).checked_sub(1)
}

/// Words of a leaf.
pub(super) const fn leaf_words(slots: usize) -> usize {
    HEAD + 2 * slots
}

/// A leaf's used entries: keys, each with its value or where that lies.
pub(super) fn records(leaf: &[u64]) -> &[[u64; 2]] {
    &leaf[HEAD..].as_chunks::<2>().0[..leaf[0] as usize]
}
