//! The search in a page of byte strings.

use super::super::separators::{BLOCK, count_not_above, step};
use super::head::{HEAD_BYTES, HasHead, Headed, common_prefix, is_long, shared_bytes};
use super::text::{Block, Text};
use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// A search's knowledge of a key on the way down.
#[derive(Clone, Copy)]
pub struct Trail {
    /// How many bytes the key shares with the separator found last, which it is not below.
    pub(super) shared: usize,
    /// See [`Headed`].
    short: u64,
}

impl Trail {
    /// `Err` if the key lies below `first`.
    #[inline(always)]
    pub(super) fn new(key: &[u8], first: &[u8]) -> Result<Self, usize> {
        // As a rule the first separator of a table is empty.
        let shared = if first.is_empty() { 0 } else { common_prefix(key, first) };
        if key.get(shared) < first.get(shared) {
            return Err(shared);
        }
        Ok(Self { shared, short: Headed::new(key).short() })
    }
}

/// A page and the key that is looked for there, which is not below the page's first string.
pub(super) struct PageSearch<'a, S> {
    pub(super) pivots: &'a [u64; BLOCK],
    pub(super) slots: &'a [S],
    pub(super) text: &'a Text,
    pub(super) key: &'a [u8],
}

impl<S> Clone for PageSearch<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for PageSearch<'_, S> {}

impl<S: HasHead> PageSearch<'_, S> {
    /// Index of the greatest string at or below the key. `trail.shared` says how much the key
    /// shares with the first string, and then with the one found.
    ///
    /// As for numbers there are two steps of seven comparisons. Prefixes are never compared: the
    /// key is not below the first string of the page or block, so if it shares less with it than
    /// the prefix, it lies above all strings that have the prefix. What is known of the bytes at
    /// the front is carried along (offset-value coding; W. M. Conner, "Offset-value coding", IBM
    /// Technical Disclosure Bulletin 20(7), 1977), and from one page to the next, because the first
    /// string of a page is the separator that led to it. Text is read only where seven bytes after
    /// the prefix do not tell strings apart.
    #[inline(always)]
    pub(super) fn run(&self, trail: &mut Trail) -> usize {
        if self.text.even { self.even(trail) } else { self.by_blocks(trail) }
    }

    /// Where the key's block begins, as far as pivots tell.
    #[inline(always)]
    pub(super) fn block(&self, trail: Trail) -> usize {
        let prefix = usize::from(self.text.prefix);
        let has_prefix = trail.shared >= prefix;
        let wanted = Headed::with_word(self.key, trail.short).head_after(prefix, has_prefix);
        BLOCK * step(self.pivots, wanted)
    }

    /// In a page all of whose heads stand after one prefix and differ.
    #[inline(always)]
    fn even(&self, trail: &mut Trail) -> usize {
        let prefix = usize::from(self.text.prefix);
        let has_prefix = trail.shared >= prefix;
        let wanted = Headed::with_word(self.key, trail.short).head_after(prefix, has_prefix);
        let block = step(self.pivots, wanted);
        let start = BLOCK * block;
        let count = self.count(start, wanted);
        let at = start + count;
        let pivot = self.pivots[block];
        let found = self.slots.get(at).map_or(0, HasHead::head);
        let found = select_unpredictable(count == 0, pivot, found);
        if found == wanted && is_long(wanted) {
            let (at, shared) = self.even_by_text(block, count, wanted, trail.shared);
            trail.shared = shared;
            return at;
        }
        // With the first string the key was compared before.
        let compared = has_prefix & (at > 0);
        trail.shared = select_unpredictable(compared, prefix + shared_bytes(found, wanted), trail.shared);
        at
    }

    /// As [`PageSearch::even`], where the head found is the key's and does not say it all. The
    /// place, and what is shared there.
    #[inline(never)]
    fn even_by_text(self, block: usize, count: usize, wanted: u64, shared: usize) -> (usize, usize) {
        let (prefix, start) = (usize::from(self.text.prefix), BLOCK * block);
        if count > 0 {
            let pivot = (block > 0).then(|| self.pivots[block]);
            let shared = pivot.map_or(shared, |pivot| prefix + shared_bytes(pivot, wanted));
            let (count, shared) = self.slot_by_text(start, count, wanted, shared);
            return (start + count, shared);
        }
        match self.block_by_text(block, wanted, shared) {
            (found, shared) if found == block => (start, shared),
            _ => {
                let before = start.saturating_sub(1);
                (before, prefix + shared_bytes(self.slots[before].head(), wanted))
            }
        }
    }

    /// In a page whose blocks have prefixes of their own.
    #[inline(always)]
    fn by_blocks(&self, trail: &mut Trail) -> usize {
        let key = Headed::with_word(self.key, trail.short);
        let prefix = usize::from(self.text.prefix);
        let has_prefix = trail.shared >= prefix;
        let wanted = key.head_after(prefix, has_prefix);
        let mut block = step(self.pivots, wanted);
        let found = self.pivots[block];
        if found == wanted && is_long(wanted) {
            (block, trail.shared) = self.block_by_text(block, wanted, trail.shared);
        } else {
            let compared = has_prefix & (block > 0);
            trail.shared = select_unpredictable(compared, prefix + shared_bytes(found, wanted), trail.shared);
        }

        let start = BLOCK * block;
        let prefix = self.slots.get(start).map_or(0, |slot| Block::of(slot).prefix);
        let has_prefix = trail.shared >= prefix;
        let wanted = key.head_after(prefix, has_prefix);
        let count = self.count(start, wanted);
        let found = self.slots.get(start + count).map_or(0, HasHead::head);
        if found == wanted && is_long(wanted) && count > 0 {
            let (count, shared) = self.slot_by_text(start, count, wanted, trail.shared);
            trail.shared = shared;
            return start + count;
        }
        let compared = has_prefix & (count > 0);
        trail.shared = select_unpredictable(compared, prefix + shared_bytes(found, wanted), trail.shared);
        start + count
    }

    /// How many strings of the block at `start`, but for its first, have their head at or below
    /// this one.
    #[inline(always)]
    fn count(&self, start: usize, wanted: u64) -> usize {
        let rest = self.slots.get(start + 1..).unwrap_or_default();
        match rest.first_chunk() {
            Some(rest) => count_not_above(rest, HasHead::head, wanted),
            None => rest.iter().map(|slot| usize::from(slot.head() <= wanted)).sum(),
        }
    }

    /// The block of the key, where the pivots before `block` with head `wanted` do not tell; and
    /// how much the key shares with its first string, which is `shared` with that of the page.
    #[inline(never)]
    fn block_by_text(self, mut block: usize, wanted: u64, shared: usize) -> (usize, usize) {
        let prefix = usize::from(self.text.prefix);
        let tail = self.key.get(prefix + HEAD_BYTES..).unwrap_or_default();
        while block > 0 && self.pivots[block] == wanted {
            let first = self.slots.get(BLOCK * block).map(|slot| self.text.reader(Block::of(slot)).string());
            let first = first.and_then(|first| first.get(HEAD_BYTES..)).unwrap_or_default();
            let common = common_prefix(tail, first);
            if first.get(common) <= tail.get(common) {
                return (block, prefix + HEAD_BYTES + common);
            }
            block -= 1;
        }
        let before = (block > 0).then(|| self.pivots[block]);
        (block, before.map_or(shared, |before| prefix + shared_bytes(before, wanted)))
    }

    /// The place in the block at `start` of the greatest string at or below the key, where `count`
    /// have a head at or below the key's and those before `count` with the same head are told apart
    /// by their text; and how much the key shares with it, which is `shared` with the block's
    /// first.
    #[inline(never)]
    fn slot_by_text(self, start: usize, count: usize, wanted: u64, shared: usize) -> (usize, usize) {
        let block = Block::of(&self.slots[start]);
        let tail = self.key.get(block.prefix + HEAD_BYTES..).unwrap_or_default();
        let mut reader = self.text.reader(block);
        reader.string();
        let (mut found, mut shared) = (0, shared);
        for head in self.slots[start + 1..].iter().map(HasHead::head).take_while(|head| *head < wanted) {
            if is_long(head) {
                reader.number();
                reader.string();
            }
            (found, shared) = (found + 1, block.prefix + shared_bytes(head, wanted));
        }
        // How much of the tail the last string of this head shares that is at or below the key.
        let mut common = 0;
        while found < count {
            let (same, string) = (reader.number(), reader.string());
            match same.cmp(&common) {
                // It differs from the one before where the key already lies above that.
                Ordering::Greater => {}
                // It lies above the one before at a byte that the key shares.
                Ordering::Less => break,
                Ordering::Equal => {
                    let more = common_prefix(&tail[common..], string);
                    if string.get(more) > tail.get(common + more) {
                        break;
                    }
                    common += more;
                    shared = block.prefix + HEAD_BYTES + common;
                }
            }
            found += 1;
        }
        (found, shared)
    }
}
