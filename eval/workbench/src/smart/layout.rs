//! Nodes and leaves, as words of simulated memory and as bytes of the published layout.

use crate::Sizes;
use crate::words::{Address, Memory};

/// Slots that a node can have.
const TYPES: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];

/// Words before a node's slots: its depth and type, the slot that leads to it, the bytes that lead to it.
pub const HEAD: usize = 3;

/// Words of a leaf: lock and the slot that leads to it, key, value.
pub const LEAF: usize = 3;

/// The lock in a leaf's first word.
pub const LOCK: u64 = 1 << 63;

/// Bytes of a node of the published layout: header and reverse pointer, and a slot of 8 bytes each.
pub const fn node_bytes(slots: usize) -> usize {
    16 + 8 * slots
}

/// Bytes of a leaf: reverse pointer, checksum, lock and validity besides the record.
pub const fn leaf_bytes(sizes: Sizes) -> usize {
    18 + sizes.key + sizes.value
}

/// Bytes of a node in a compute node's cache: its slots, 9 of the node, 17 of the cache's own record of it.
pub const fn cached_bytes(slots: usize) -> u64 {
    8 * slots as u64 + 9 + 17
}

/// A slot: what it leads to, and for which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u64);

impl Slot {
    const IS_LEAF: u64 = 1 << 63;
    const USED: u64 = 1 << 62;

    /// To a leaf.
    pub fn leaf(byte: u8, at: Address) -> Self {
        Self(Self::USED | Self::IS_LEAF | u64::from(byte) << 48 | at)
    }

    /// To a node with so many slots.
    pub fn node(byte: u8, at: Address, slots: usize) -> Self {
        Self(Self::USED | (slots.trailing_zeros() as u64) << 56 | u64::from(byte) << 48 | at)
    }

    /// Whether it leads anywhere.
    pub fn is_used(self) -> bool {
        self.0 & Self::USED != 0
    }

    /// Whether that is a leaf.
    pub fn is_leaf(self) -> bool {
        self.0 & Self::IS_LEAF != 0
    }

    /// Where it leads.
    pub fn at(self) -> Address {
        self.0 & ((1 << 48) - 1)
    }

    /// Slots of the node it leads to.
    pub fn slots(self) -> usize {
        1 << (self.0 >> 56 & 15)
    }

    fn byte(self) -> u8 {
        (self.0 >> 48) as u8
    }
}

/// A node's words.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a>(pub &'a [u64]);

impl Node<'_> {
    /// How many bytes lead to it.
    pub fn depth(self) -> u32 {
        self.0[0] as u32
    }

    /// Whether `key` begins with the bytes that lead to it.
    pub fn is_of(self, key: u64) -> bool {
        prefix(key, self.depth()) == self.0[2]
    }

    /// The bytes that lead to it.
    pub fn prefix(self) -> u64 {
        self.0[2]
    }

    /// The slot of a key's next byte, and its number.
    pub fn find(self, key: u64) -> Option<(usize, Slot)> {
        let (byte, slots) = (byte_at(key, self.depth()), &self.0[HEAD..]);
        if slots.len() == 256 {
            let slot = Slot(slots[usize::from(byte)]);
            return slot.is_used().then_some((byte.into(), slot));
        }
        let mut all = slots.iter().map(|slot| Slot(*slot)).enumerate();
        all.find(|(_, slot)| slot.is_used() && slot.byte() == byte)
    }
}

/// The first `depth` bytes of a key, the others 0.
pub fn prefix(key: u64, depth: u32) -> u64 {
    if depth == 0 { 0 } else { key & u64::MAX << (64 - 8 * depth) }
}

/// The byte of a key after its first `depth`.
pub fn byte_at(key: u64, depth: u32) -> u8 {
    (key >> (56 - 8 * depth)) as u8
}

/// Builds the tree over ascending keys: the slot that leads to its root, which lies at `from`.
pub fn build(
    memory: &mut Memory,
    keys: &[u64],
    from: Address,
    byte: u8,
    sizes: Sizes,
    value: fn(u64) -> u64,
) -> Slot {
    let (Some(&first), Some(&last)) = (keys.first(), keys.last()) else { return Slot(0) };
    if keys.len() == 1 {
        let at = memory.allocate(LEAF, leaf_bytes(sizes) as u64);
        memory.words_mut(at, LEAF).copy_from_slice(&[from, first, value(first)]);
        return Slot::leaf(byte, at);
    }
    let depth = (first ^ last).leading_zeros() / 8;
    let groups: Vec<&[u64]> = keys.chunk_by(|a, b| byte_at(*a, depth) == byte_at(*b, depth)).collect();
    let slots = TYPES.into_iter().find(|slots| *slots >= groups.len()).unwrap_or(256);
    let at = memory.allocate(HEAD + slots, node_bytes(slots) as u64);
    let head = [u64::from(depth), from, prefix(first, depth)];
    memory.words_mut(at, HEAD).copy_from_slice(&head);
    for (i, group) in groups.into_iter().enumerate() {
        let byte = byte_at(group[0], depth);
        let slot = at + (HEAD + if slots == 256 { usize::from(byte) } else { i }) as u64;
        let leads = build(memory, group, slot, byte, sizes, value);
        memory.words_mut(slot, 1)[0] = leads.0;
    }
    Slot::node(byte, at, slots)
}
