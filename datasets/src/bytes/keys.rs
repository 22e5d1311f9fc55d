//! Distinct ascending byte strings.

use std::ops::Range;

use super::arena::KeyArena;
use super::key::{MAX_KEY_BYTES, search};
use crate::generate::ycsb::YcsbKeys;

/// The keys of a data set: distinct, ascending, of 1 to [`MAX_KEY_BYTES`] bytes.
///
/// Most lie in a [`KeyArena`]; those of `ycsb` are written when they are asked for, from 8 bytes
/// each, whatever their length. That is why reading one takes a buffer.
#[derive(Clone, Debug)]
pub struct ByteKeys {
    form: Form,
    shortest: usize,
    longest: usize,
    text_bytes: u64,
}

#[derive(Clone, Debug)]
enum Form {
    Arena(KeyArena),
    Ycsb(YcsbKeys),
}

impl ByteKeys {
    /// Keys that are ascending, distinct, and of good length; `None` if they are not. One pass over
    /// them.
    pub fn new(arena: KeyArena) -> Option<Self> {
        let ascending = arena.iter().zip(arena.iter().skip(1)).all(|(key, next)| key < next);
        let keys = Self::measured(Form::Arena(arena));
        (ascending && (keys.is_empty() || keys.shortest > 0) && keys.longest <= MAX_KEY_BYTES).then_some(keys)
    }

    pub(crate) fn of_ycsb(keys: YcsbKeys) -> Self {
        Self::measured(Form::Ycsb(keys))
    }

    fn measured(form: Form) -> Self {
        let mut keys = Self { form, shortest: usize::MAX, longest: 0, text_bytes: 0 };
        for i in 0..keys.len() {
            let length = match &keys.form {
                Form::Arena(arena) => arena.get(i).len(),
                Form::Ycsb(ycsb) => ycsb.length(i),
            };
            keys.shortest = keys.shortest.min(length);
            keys.longest = keys.longest.max(length);
            keys.text_bytes += length as u64;
        }
        keys.shortest = keys.shortest.min(keys.longest);
        keys
    }

    /// The key at index `i`: from the arena, without a copy, or written into `buffer`, whose
    /// content is of no other use. The latter costs some tens of nanoseconds.
    ///
    /// # Panics
    /// If `i` is not below [`len`](Self::len), as indexing does.
    #[inline]
    pub fn get<'a>(&'a self, i: usize, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        match &self.form {
            Form::Arena(arena) => arena.get(i),
            Form::Ycsb(ycsb) => {
                buffer.clear();
                ycsb.write(i, buffer);
                buffer
            }
        }
    }

    /// All keys, ascending.
    pub fn cursor(&self) -> Cursor<'_> {
        self.cursor_of(0..self.len())
    }

    /// The keys of these indices, ascending; indices after the last key are left out.
    pub fn cursor_of(&self, indices: Range<usize>) -> Cursor<'_> {
        let end = indices.end.min(self.len());
        Cursor { keys: self, indices: indices.start..end, buffer: Vec::new() }
    }

    /// Where a key is, or where it would be: as for slices. About log₂ n cache misses.
    ///
    /// # Errors
    /// The index of the first greater key, if it is not there.
    pub fn binary_search(&self, key: &[u8]) -> Result<usize, usize> {
        let mut buffer = Vec::new();
        search(self.len(), |i| self.get(i, &mut buffer).cmp(key))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Arena(arena) => arena.len(),
            Form::Ycsb(ycsb) => ycsb.len(),
        }
    }

    /// Whether there are none; no spec gives such keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the shortest key.
    pub fn shortest(&self) -> usize {
        self.shortest
    }

    /// Bytes of the longest key.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The length of every key, where all have the same.
    pub fn every_length(&self) -> Option<usize> {
        (self.shortest == self.longest && self.longest > 0).then_some(self.longest)
    }

    /// Bytes of all keys together.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> u64 {
        match &self.form {
            Form::Arena(arena) => arena.memory_bytes(),
            Form::Ycsb(ycsb) => ycsb.memory_bytes(),
        }
    }

    /// The arena, where the keys lie in one.
    pub fn as_arena(&self) -> Option<&KeyArena> {
        match &self.form {
            Form::Arena(arena) => Some(arena),
            Form::Ycsb(_) => None,
        }
    }

    /// The keys in an arena, written into one where they do not lie in one already. Aborts without
    /// memory, as `Vec` does.
    pub fn into_arena(self) -> KeyArena {
        if let Form::Arena(arena) = self.form {
            return arena;
        }
        let mut arena = KeyArena::new();
        let mut cursor = self.cursor();
        while let Some(key) = cursor.next_key() {
            arena.push(key);
        }
        arena
    }
}

/// Gives keys one after the other; each lives until the next is asked for.
#[derive(Debug)]
pub struct Cursor<'a> {
    keys: &'a ByteKeys,
    indices: Range<usize>,
    buffer: Vec<u8>,
}

impl Cursor<'_> {
    /// The next key, or `None` after the last.
    #[inline]
    pub fn next_key(&mut self) -> Option<&[u8]> {
        let i = self.indices.next()?;
        Some(self.keys.get(i, &mut self.buffer))
    }

    /// Number of keys to come.
    pub fn left(&self) -> usize {
        self.indices.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_good_keys_are_taken() {
        let keys = |keys: &[&str]| ByteKeys::new(keys.iter().collect());
        assert!(keys(&["b", "a"]).is_none() && keys(&["a", "a"]).is_none() && keys(&["", "a"]).is_none());
        assert!(keys(&["a", &"b".repeat(4_097)]).is_none());
        let good = keys(&["a", "ab", "b"]).unwrap();
        assert_eq!((good.len(), good.shortest(), good.longest(), good.every_length()), (3, 1, 2, None));
        assert_eq!(
            (good.text_bytes(), good.binary_search(b"ab"), good.binary_search(b"aa")),
            (4, Ok(1), Err(1))
        );
        assert!(keys(&[]).unwrap().is_empty());
    }

    #[test]
    fn cursors_give_the_keys_of_their_indices() {
        let keys = ByteKeys::new((10..20).map(|i: u32| i.to_string()).collect()).unwrap();
        let mut cursor = keys.cursor_of(7..100);
        assert_eq!(cursor.left(), 3);
        let mut seen = Vec::new();
        while let Some(key) = cursor.next_key() {
            seen.push(key.to_vec());
        }
        assert_eq!(seen, [b"17", b"18", b"19"]);
        assert!(keys.cursor_of(50..60).next_key().is_none());
    }
}
