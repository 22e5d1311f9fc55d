//! Nodes and leaves, as words of simulated memory and as bytes of the published layout.

use crate::Sizes;
use crate::words::{Address, Landed, Memory, Turn};

/// Slots that a node can have.
const TYPES: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];

/// Words before a node's slots: its depth and type, the slot that leads to it, the bytes that lead
/// to it, and where the slots are that it has grown by. (The published layout leaves room for all
/// 256 after every node.)
pub const HEAD: usize = 4;

/// Words of a leaf: the slot that leads to it, key, value, lock.
pub const LEAF: usize = 4;
/// The word of a leaf that is its lock.
pub const LOCK_AT: u64 = 3;

/// The lock in a leaf's first word.
pub const LOCK: u64 = 1;

/// Bytes of a node before its slots: header and reverse pointer.
pub const HEADER_BYTES: usize = 16;

/// Bytes of a node of the published layout: header and reverse pointer, and a slot of 8 bytes each.
pub const fn node_bytes(slots: usize) -> usize {
    HEADER_BYTES + 8 * slots
}

/// Bytes of a leaf: reverse pointer, checksum, lock and validity besides the record.
pub const fn leaf_bytes(sizes: Sizes) -> usize {
    18 + sizes.key + sizes.value
}

/// Bytes of a node in a compute node's cache: its slots, 9 of the node, 17 of the cache's own
/// record of it.
pub const fn cached_bytes(slots: usize) -> u64 {
    8 * slots as u64 + 9 + 17
}

/// A slot: what it leads to, and for which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u64);

impl Slot {
    const IS_LEAF: u64 = 1 << 63;
    const USED: u64 = 1 << 62;
    /// The node has grown since it was made. (Not in the published layout, whose nodes have room
    /// for all slots in one place.)
    const GROWN: u64 = 1 << 60;
    /// The bits that say whether it is used, and for which byte.
    const KIND: u64 = Self::USED | 0xff << 48;

    /// To a leaf.
    pub fn leaf(byte: u8, at: Address) -> Self {
        Self(Self::USED | Self::IS_LEAF | u64::from(byte) << 48 | at)
    }

    /// To a node with `slots` slots.
    pub fn node(byte: u8, at: Address, slots: usize) -> Self {
        Self(Self::USED | (slots.trailing_zeros() as u64) << 56 | u64::from(byte) << 48 | at)
    }

    /// To the same node, which has grown to `slots` slots.
    pub fn grown(self, slots: usize) -> Self {
        Self(Self::node(self.byte(), self.at(), slots).0 | Self::GROWN)
    }

    /// Whether the node that it leads to had fewer slots when it was made.
    fn has_grown(self) -> bool {
        self.0 & Self::GROWN != 0
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

    /// The same for another byte.
    pub fn with_byte(self, byte: u8) -> Self {
        Self(self.0 & !(0xff << 48) | u64::from(byte) << 48)
    }

    /// The byte that it is for.
    pub fn byte(self) -> u8 {
        (self.0 >> 48) as u8
    }
}

/// A node's words.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a>(pub &'a [u64]);

impl Node<'_> {
    /// How many bytes lead to it.
    pub fn depth(self) -> u32 {
        (self.0[0] & 0xff) as u32
    }

    /// Slots that it has, which may be more than were READ.
    pub fn slots(self) -> usize {
        (self.0[0] >> 32) as usize
    }

    /// The slot that leads to it.
    pub fn from(self) -> Address {
        self.0[1]
    }

    /// Whether each byte has a slot of its own.
    fn is_direct(self) -> bool {
        self.0[0] & DIRECT != 0
    }

    /// The number of the slot that a key is to get which has none: that after the last one means
    /// that the node is to grow.
    pub fn vacancy(self, key: u64) -> usize {
        match self.is_direct() {
            true => byte_at(key, self.depth()).into(),
            false => self.0[HEAD..].iter().position(|slot| !Slot(*slot).is_used()).unwrap_or(self.slots()),
        }
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
        if self.is_direct() {
            let slot = Slot(slots[usize::from(byte)]);
            return slot.is_used().then_some((byte.into(), slot));
        }
        // Used, and for this byte, in one comparison; of several slots before there is a jump,
        // nodes having multiples of four.
        let wanted = Slot::USED | u64::from(byte) << 48;
        for (first, some) in (0..).step_by(4).zip(slots.chunks(4)) {
            let are_wanted = some.iter().map(|slot| slot & Slot::KIND == wanted);
            let found = are_wanted.enumerate().fold(0, |found, (i, is)| found | u32::from(is) << i);
            if found != 0 {
                let found = first + found.trailing_zeros() as usize;
                return Some((found, Slot(slots[found])));
            }
        }
        None
    }

    /// The slot of the least byte from this one on.
    pub fn first_from(self, byte: u16) -> Option<Slot> {
        let slots = &self.0[HEAD..];
        if self.is_direct() {
            let mut slots = slots.get(byte.into()..).unwrap_or_default().iter().map(|slot| Slot(*slot));
            return slots.find(|slot| slot.is_used());
        }
        let slots = slots.iter().map(|slot| Slot(*slot));
        slots.filter(|slot| slot.is_used() && u16::from(slot.byte()) >= byte).min_by_key(|slot| slot.byte())
    }
}

/// Each byte has a slot of its own: a node that was loaded with more than 128.
const DIRECT: u64 = 1 << 8;

/// A node's first words.
fn head(depth: u32, slots: usize, from: Address, prefix: u64, direct: u64) -> [u64; HEAD] {
    [u64::from(depth) | direct | (slots as u64) << 32, from, prefix, 0]
}

/// The words of a node of the smallest type that leads to two.
pub fn node_of_two(from: Address, of: (u64, u32), children: [Slot; 2]) -> Vec<u64> {
    let (key, depth) = of;
    let mut words = vec![0; HEAD + TYPES[0]];
    words[..HEAD].copy_from_slice(&head(depth, TYPES[0], from, prefix(key, depth), 0));
    words[HEAD..HEAD + 2].copy_from_slice(&children.map(|slot| slot.0));
    words
}

/// The slots that a node was allocated with; loaded ones say it by their type alone.
fn first_slots(head: u64) -> usize {
    let allocated = head >> 9 & 0x1ff;
    (if allocated == 0 { head >> 32 } else { allocated }) as usize
}

/// Where the first slots of a node lie, in pieces: those that it had at first, and what it has
/// grown by.
struct Pieces<'m> {
    memory: &'m Memory,
    /// Where the next piece lies, 0 if there is none, and where is said which one is after it.
    first: Address,
    link: Address,
    size: usize,
    left: usize,
    is_grown: bool,
}

impl<'m> Pieces<'m> {
    fn new(memory: &'m Memory, at: Address, slots: usize) -> Self {
        let size = first_slots(memory.words(at, 1)[0]);
        let (first, link) = (at + HEAD as u64, at + HEAD as u64 - 1);
        Self { memory, first, link, size, left: slots, is_grown: false }
    }
}

impl Iterator for Pieces<'_> {
    type Item = (Address, usize);

    #[inline]
    fn next(&mut self) -> Option<(Address, usize)> {
        if self.left == 0 || self.first == 0 {
            return None;
        }
        let piece = (self.first, self.left.min(self.size));
        self.left -= piece.1;
        if self.left > 0 {
            // The first two are of one size, each after them is as large as all before.
            self.size <<= u32::from(self.is_grown);
            self.is_grown = true;
            let next = self.memory.words(self.link, 1)[0];
            (self.link, self.first) = (next, if next == 0 { 0 } else { next + 1 });
        }
        Some(piece)
    }
}

/// READs the node that a slot leads to, as the slot says it is.
pub fn read_node_of(slot: Slot, turn: &mut Turn<'_>) -> Landed {
    let (at, slots) = (slot.at(), slot.slots());
    match slot.has_grown() {
        true => read_words(at, slots, node_bytes(slots), turn),
        // In one place, without a look at what the node says.
        false => turn.trip.read(at, HEAD + slots, node_bytes(slots)),
    }
}

/// READs a node's words with its first `slots` slots, as `bytes` bytes.
pub fn read_words(at: Address, slots: usize, bytes: usize, turn: &mut Turn<'_>) -> Landed {
    let Turn { memory, trip, .. } = turn;
    let mut parts = Pieces::new(memory, at, slots);
    let first = parts.next().map_or(0, |(_, count)| count);
    let mut landed = trip.read(at, HEAD + first, bytes);
    for (at, count) in parts {
        landed = landed.with(trip.and_read(at, count));
    }
    landed
}

/// Where a slot of a node lies that was once like this; the room for it is made if there is none.
pub fn slot_at(memory: &mut Memory, (at, node): (Address, Node<'_>), slot: usize) -> Address {
    // The first ones have been where they are from the beginning.
    if slot < first_slots(node.0[0]) {
        return at + (HEAD + slot) as u64;
    }
    let head = memory.words(at, 1)[0];
    let mut before = 0;
    for (first, count) in Pieces::new(memory, at, slot + 1) {
        if slot < before + count {
            return first + (slot - before) as u64;
        }
        before += count;
    }
    let mut last = at + HEAD as u64 - 1;
    while memory.words(last, 1)[0] != 0 {
        last = memory.words(last, 1)[0];
    }
    if head >> 9 & 0x1ff == 0 {
        memory.words_mut(at, 1)[0] |= (before as u64) << 9;
    }
    let new = memory.allocate(1 + before, 8 * before as u64);
    memory.words_mut(last, 1)[0] = new;
    new + 1
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
        memory.words_mut(at, LEAF).copy_from_slice(&[from, first, value(first), 0]);
        return Slot::leaf(byte, at);
    }
    let depth = (first ^ last).leading_zeros() / 8;
    let groups: Vec<&[u64]> = keys.chunk_by(|a, b| byte_at(*a, depth) == byte_at(*b, depth)).collect();
    let slots = TYPES.into_iter().find(|slots| *slots >= groups.len()).unwrap_or(256);
    let at = memory.allocate(HEAD + slots, node_bytes(slots) as u64);
    let direct = if slots == 256 { DIRECT } else { 0 };
    memory.words_mut(at, HEAD).copy_from_slice(&head(depth, slots, from, prefix(first, depth), direct));
    for (i, group) in groups.into_iter().enumerate() {
        let byte = byte_at(group[0], depth);
        let slot = at + (HEAD + if slots == 256 { usize::from(byte) } else { i }) as u64;
        let leads = build(memory, group, slot, byte, sizes, value);
        memory.words_mut(slot, 1)[0] = leads.0;
    }
    Slot::node(byte, at, slots)
}
