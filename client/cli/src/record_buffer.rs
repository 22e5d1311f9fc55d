//! Records in memory: as they come, then sorted, each key once.

use std::borrow::Borrow;

use clap::ValueEnum;

use crate::keys::Keys;
use crate::record_lines::Entry;

/// Which of several records with one key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Repeated {
    /// None: they are an error
    Refuse,
    /// The first in the file
    First,
    /// The last in the file
    Last,
}

/// Records whose keys and values lie in two pieces of memory.
#[derive(Debug)]
pub(crate) struct RecordBuffer<K: Keys> {
    rows: Vec<Row<K>>,
    keys: Vec<u8>,
    values: Vec<u8>,
    longest_key: usize,
    /// The first line whose key is below that of the line before, and how many such lines there
    /// are.
    descent: Option<u64>,
    descents: u64,
}

#[derive(Clone, Copy, Debug)]
struct Row<K: Keys> {
    key: K::Kept,
    /// Where its value begins.
    start: usize,
    /// Bytes of its value, of which a line has less than 4 GiB.
    len: u32,
    line: u64,
}

/// Two lines with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SameKeyLines {
    pub(crate) first: u64,
    pub(crate) second: u64,
}

impl<K: Keys> RecordBuffer<K> {
    pub(crate) fn new() -> Self {
        Self {
            rows: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            longest_key: 0,
            descent: None,
            descents: 0,
        }
    }

    pub(crate) fn push(&mut self, entry: &Entry<K>) {
        let key: &K::Key = entry.key.borrow();
        if self.rows.last().is_some_and(|last| K::kept(&last.key, &self.keys) > key) {
            self.descent = self.descent.or(Some(entry.line));
            self.descents += 1;
        }
        self.longest_key = self.longest_key.max(K::encoded_len(key));
        let (start, len) = (self.values.len(), entry.value.len() as u32);
        self.values.extend_from_slice(&entry.value);
        self.rows.push(Row { key: K::keep(key, &mut self.keys), start, len, line: entry.line });
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u64 {
        (self.rows.len() * size_of::<Row<K>>() + self.keys.len() + self.values.len()) as u64
    }

    /// Bytes of the longest key.
    pub(crate) fn longest_key(&self) -> usize {
        self.longest_key
    }

    /// The first line whose key is below that of the line before.
    pub(crate) fn descent(&self) -> Option<u64> {
        self.descent
    }

    /// How many such lines there are.
    pub(crate) fn descents(&self) -> u64 {
        self.descents
    }

    pub(crate) fn key(&self, i: usize) -> &K::Key {
        K::kept(&self.rows[i].key, &self.keys)
    }

    /// The line of a record.
    pub(crate) fn line(&self, i: usize) -> u64 {
        self.rows[i].line
    }

    pub(crate) fn value(&self, i: usize) -> &[u8] {
        let Row { start, len, .. } = self.rows[i];
        &self.values[start..start + len as usize]
    }

    /// The first of the lines that have a record for which `is_fit` is false of the lengths of its
    /// key and its value, and these lengths.
    pub(crate) fn misfit(&self, is_fit: impl Fn(usize, usize) -> bool) -> Option<(u64, usize, usize)> {
        let lengths = self
            .rows
            .iter()
            .map(|row| (row.line, K::encoded_len(K::kept(&row.key, &self.keys)), row.len as usize));
        lengths.filter(|(_, key, value)| !is_fit(*key, *value)).min()
    }

    /// A copy of the last record.
    pub(crate) fn last(&self) -> Option<Entry<K>> {
        let i = self.rows.len().checked_sub(1)?;
        let (key, value) = (self.key(i).to_owned(), self.value(i).to_vec());
        Some(Entry { key, value, line: self.rows[i].line })
    }

    /// Sorts them by their keys, and keeps one of each key; says how many were left out.
    pub(crate) fn order(&mut self, repeated: Repeated) -> Result<u64, SameKeyLines> {
        let Self { rows, keys, .. } = self;
        if self.descents > 0 {
            // Stable: records of one key stay in the order of their lines.
            rows.sort_by(|a, b| K::kept(&a.key, keys).cmp(K::kept(&b.key, keys)));
        }
        let before = rows.len();
        let mut twins = None;
        rows.dedup_by(|later, kept| {
            let is_same = K::kept(&later.key, keys) == K::kept(&kept.key, keys);
            if is_same {
                twins = twins.or(Some(SameKeyLines { first: kept.line, second: later.line }));
                if repeated == Repeated::Last {
                    *kept = *later;
                }
            }
            is_same
        });
        match twins {
            Some(twins) if repeated == Repeated::Refuse => Err(twins),
            _ => Ok((before - rows.len()) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use fpcache_client::{ByteKeys, U64Keys};

    use super::*;

    fn held(keys: &[u64]) -> RecordBuffer<U64Keys> {
        let mut held = RecordBuffer::new();
        for (line, key) in (1..).zip(keys) {
            held.push(&Entry { key: *key, value: vec![line as u8], line });
        }
        held
    }

    fn records(held: &RecordBuffer<U64Keys>) -> Vec<(u64, u8)> {
        (0..held.len()).map(|i| (*held.key(i), held.value(i)[0])).collect()
    }

    #[test]
    fn records_are_sorted_and_one_of_each_key_counts() {
        let file = [5, 9, 5, 1, 5, 9];
        let mut first = held(&file);
        assert_eq!((first.descent(), first.descents()), (Some(3), 2));
        assert_eq!(first.order(Repeated::First), Ok(3));
        assert_eq!(records(&first), [(1, 4), (5, 1), (9, 2)]);
        let mut last = held(&file);
        assert_eq!(last.order(Repeated::Last), Ok(3));
        assert_eq!(records(&last), [(1, 4), (5, 5), (9, 6)]);
        assert_eq!(held(&file).order(Repeated::Refuse), Err(SameKeyLines { first: 1, second: 3 }));
        assert_eq!(held(&[1, 2, 7]).order(Repeated::Refuse), Ok(0));
        assert_eq!(held(&[]).order(Repeated::Refuse), Ok(0));
    }

    #[test]
    fn byte_strings_are_in_the_order_of_their_bytes() {
        let mut held = RecordBuffer::<ByteKeys>::new();
        for (line, key) in (1..).zip([&b"b"[..], b"\xff", b"a\0", b"a", "ü".as_bytes()]) {
            held.push(&Entry { key: key.to_vec(), value: key.to_vec(), line });
        }
        held.order(Repeated::Refuse).expect("none is there twice");
        let keys: Vec<&[u8]> = (0..held.len()).map(|i| held.key(i)).collect();
        assert_eq!(keys, [&b"a"[..], b"a\0", b"b", "ü".as_bytes(), b"\xff"]);
        assert!((0..held.len()).all(|i| held.key(i) == held.value(i)));
        assert_eq!(held.longest_key(), 2);
    }
}
