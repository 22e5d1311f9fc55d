//! The text of a page of byte strings: all but their heads.

use super::super::separators::{BLOCK, PAGE};
use super::head::{HEAD_BYTES, HasHead, Headed, UNUSED, bytes_of, common_prefix, is_long};
use std::alloc::Layout;
use std::sync::Arc;

/// The rest of a page's byte strings beside their heads.
///
/// A block of eight has its first string here: the page's first one whole, the others without the
/// prefix of the page. Its further strings have a head each, of what follows the prefix of the
/// block, and are here only if they go on after that: without what they share with the string
/// before (front coding; I. H. Witten, A. Moffat and T. C. Bell, "Managing Gigabytes", 2nd edition,
/// 1999, §4.1). In place of its first string's head a block has its [`Block`].
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Text {
    /// Length of the page's prefix: what all of its strings begin with, or the first part of that.
    pub(super) prefix: u16,
    /// Whether the prefix of every block is the page's, and no two heads after it are equal.
    pub(super) even: bool,
    bytes: Arc<[u8]>,
}

impl Text {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Layout of the memory outside the page.
    pub(super) fn layout(&self) -> Layout {
        Layout::for_value(&*self.bytes)
    }

    /// Reads from the beginning of a block.
    #[inline]
    pub(super) fn reader(&self, block: Block) -> TextReader<'_> {
        TextReader { rest: self.bytes.get(block.text..).unwrap_or_default() }
    }

    /// The page's first string.
    #[inline]
    pub(super) fn first(&self) -> &[u8] {
        self.reader(Block::default()).string()
    }
}

/// A block of eight strings.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    /// Length of its prefix: what all of its strings begin with, or the first part of that.
    pub(super) prefix: usize,
    /// Where its text begins in that of the page.
    text: usize,
}

impl Block {
    #[inline(always)]
    pub(super) fn of(slot: &impl HasHead) -> Self {
        let bits = slot.head();
        Self { prefix: (bits & 0xFFFF) as usize, text: (bits >> 16) as usize }
    }

    fn bits(self) -> u64 {
        (self.text as u64) << 16 | self.prefix as u64
    }
}

/// Reads a text from front to back. Past its end there are empty strings.
pub(super) struct TextReader<'a> {
    rest: &'a [u8],
}

impl<'a> TextReader<'a> {
    /// Seven bits a byte, the lowest first; all but the last have the highest bit set (LEB128).
    #[inline(always)]
    pub(super) fn number(&mut self) -> usize {
        match self.rest.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.rest = rest;
                usize::from(*byte)
            }
            _ => self.long_number(),
        }
    }

    #[cold]
    fn long_number(&mut self) -> usize {
        let (mut number, mut shift) = (0, 0);
        while let Some((byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            number |= usize::from(byte & 0x7F).unbounded_shl(shift);
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }

    #[inline(always)]
    pub(super) fn string(&mut self) -> &'a [u8] {
        let len = self.number();
        let (string, rest) = self.rest.split_at_checked(len).unwrap_or_default();
        self.rest = rest;
        string
    }
}

fn write_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write_string(string: &[u8], out: &mut Vec<u8>) {
    write_number(string.len(), out);
    out.extend_from_slice(string);
}

/// The strings of a page.
pub(super) struct Packed {
    pub(super) heads: [u64; PAGE],
    pub(super) pivots: [u64; BLOCK],
    pub(super) text: Text,
}

/// Length of what all strings between these begin with, as far as the page can say it.
fn prefix_of(strings: &[&[u8]]) -> usize {
    let ends = strings.first().zip(strings.last());
    ends.map_or(0, |(first, last)| common_prefix(first, last)).min(usize::from(u16::MAX))
}

impl Packed {
    /// The text of at most [`PAGE`] strings, which ascend.
    pub(super) fn new(strings: &[&[u8]]) -> Self {
        let prefix = prefix_of(strings);
        let head = |string: &[u8]| Headed::new(string).head(prefix);
        let even = strings.windows(2).all(|pair| head(pair[0]) < head(pair[1]));
        let (mut heads, mut pivots, mut text) = ([UNUSED; PAGE], [UNUSED; BLOCK], Vec::new());
        for (number, (block, heads)) in strings.chunks(BLOCK).zip(heads.chunks_mut(BLOCK)).enumerate() {
            let description =
                Block { prefix: if even { prefix } else { prefix_of(block) }, text: text.len() };
            let (first, others) = block.split_first().expect("a chunk is not empty");
            if number == 0 {
                write_string(first, &mut text);
                pivots[0] = 0;
            } else {
                write_string(&first[prefix..], &mut text);
                pivots[number] = head(first);
            }
            heads[0] = description.bits();
            let tail = description.prefix + HEAD_BYTES;
            for (i, string) in others.iter().enumerate() {
                let head = Headed::new(string).head(description.prefix);
                heads[i + 1] = head;
                if is_long(head) {
                    let shared = match others[..i].last() {
                        Some(before) if heads[i] == head => common_prefix(&before[tail..], &string[tail..]),
                        _ => 0,
                    };
                    write_number(shared, &mut text);
                    write_string(&string[tail + shared..], &mut text);
                }
            }
        }
        Self { heads, pivots, text: Text { prefix: prefix as u16, even, bytes: text.into() } }
    }
}

/// Reads the strings of a page one after the other.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    pub(super) string: Vec<u8>,
    /// How much of the page's text was read.
    read: usize,
}

impl Cursor {
    /// Sets the cursor to string `at`, wherever it was.
    pub(super) fn seek<S: HasHead>(&mut self, slots: &[S], text: &Text, at: usize) {
        let first = text.first();
        self.string.clear();
        self.string.extend_from_slice(&first[..first.len().min(text.prefix.into())]);
        for at in at - at % BLOCK..=at {
            self.step(slots, text, at);
        }
    }

    /// Moves on to string `at`, from the one before it, or from anywhere if `at` is 0.
    pub(super) fn step<S: HasHead>(&mut self, slots: &[S], text: &Text, at: usize) {
        let block = Block::of(&slots[at - at % BLOCK]);
        if at.is_multiple_of(BLOCK) {
            let mut reader = text.reader(block);
            self.string.truncate(if at == 0 { 0 } else { text.prefix.into() });
            self.string.extend_from_slice(reader.string());
            self.read = text.len() - reader.rest.len();
            return;
        }
        let head = slots[at].head();
        let (bytes, len) = bytes_of(head);
        if !is_long(head) {
            self.string.truncate(block.prefix);
            self.string.extend_from_slice(&bytes[..len]);
            return;
        }
        let mut reader = text.reader(Block { text: self.read, ..block });
        let shared = reader.number();
        if shared == 0 {
            self.string.truncate(block.prefix);
            self.string.extend_from_slice(&bytes[..len]);
        } else {
            // Only strings of one head share anything after it.
            self.string.truncate(block.prefix + HEAD_BYTES + shared);
        }
        self.string.extend_from_slice(reader.string());
        self.read = text.len() - reader.rest.len();
    }
}
