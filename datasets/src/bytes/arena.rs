//! An arena of byte strings.

use std::collections::TryReserveError;

use super::key::search;

/// Byte strings in one piece of memory: their bytes, and 4 bytes each for where they end, 8 beyond
/// 4 GiB in all, none as long as all have the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyArena {
    bytes: Vec<u8>,
    ends: Ends,
    len: usize,
}

/// Where strings end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ends {
    /// All have this length.
    Every(usize),
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Default for KeyArena {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: Ends::Every(0), len: 0 }
    }
}

impl KeyArena {
    /// Without strings, and without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a string. Aborts without memory, as `Vec` does.
    pub fn push(&mut self, key: &[u8]) {
        if self.len == 0 {
            self.ends = Ends::Every(key.len());
        }
        self.widen(key.len());
        self.bytes.extend_from_slice(key);
        match &mut self.ends {
            Ends::Every(_) => {}
            // `widen` saw that the end fits.
            Ends::Narrow(ends) => ends.push(self.bytes.len() as u32),
            Ends::Wide(ends) => ends.push(self.bytes.len() as u64),
        }
        self.len += 1;
    }

    /// Appends a string, or tells that there is no memory for it.
    pub(crate) fn try_push(&mut self, key: &[u8]) -> Result<(), TryReserveError> {
        self.bytes.try_reserve(key.len())?;
        match &mut self.ends {
            Ends::Every(length) if *length == key.len() || self.len == 0 => {}
            // A change of form needs all ends at once; a push that changes it is rare enough to
            // probe for them.
            Ends::Every(_) => drop(reserved::<u64>(self.len + 1)?),
            Ends::Narrow(ends) => ends.try_reserve(1)?,
            Ends::Wide(ends) => ends.try_reserve(1)?,
        }
        self.push(key);
        Ok(())
    }

    /// Takes the form that a further string of this length needs.
    fn widen(&mut self, length: usize) {
        let end = self.bytes.len() + length;
        if let Ends::Every(every) = self.ends
            && every != length
        {
            let ends = (1..=self.len).map(|i| i * every);
            self.ends = match u32::try_from(end) {
                // The ends before are smaller.
                Ok(_) => Ends::Narrow(ends.map(|end| end as u32).collect()),
                Err(_) => Ends::Wide(ends.map(|end| end as u64).collect()),
            };
        }
        if let Ends::Narrow(ends) = &self.ends
            && u32::try_from(end).is_err()
        {
            self.ends = Ends::Wide(ends.iter().map(|&end| u64::from(end)).collect());
        }
    }

    /// The string at index `i`.
    ///
    /// # Panics
    /// If `i` is not below [`len`](Self::len), as indexing does.
    #[inline]
    pub fn get(&self, i: usize) -> &[u8] {
        assert!(i < self.len, "index {i} of {} keys", self.len);
        // Ends are lengths of `bytes` at some time, which fit `usize`.
        match &self.ends {
            Ends::Every(length) => &self.bytes[i * length..(i + 1) * length],
            Ends::Narrow(ends) => {
                let start = if i == 0 { 0 } else { ends[i - 1] as usize };
                &self.bytes[start..ends[i] as usize]
            }
            Ends::Wide(ends) => {
                let start = if i == 0 { 0 } else { ends[i - 1] as usize };
                &self.bytes[start..ends[i] as usize]
            }
        }
    }

    /// The last string.
    pub fn last(&self) -> Option<&[u8]> {
        Some(self.get(self.len.checked_sub(1)?))
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All strings, in the order in which they were pushed.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator + Clone {
        (0..self.len).map(|i| self.get(i))
    }

    /// Where a string is among ascending ones, or where it would be: as for slices. About log₂ n
    /// cache misses.
    ///
    /// # Errors
    /// The index of the first greater string, if it is not there.
    pub fn binary_search(&self, key: &[u8]) -> Result<usize, usize> {
        search(self.len, |i| self.get(i).cmp(key))
    }

    /// The length of every string, where all have the same.
    pub fn every_length(&self) -> Option<usize> {
        match self.ends {
            Ends::Every(length) if self.len > 0 => Some(length),
            _ => None,
        }
    }

    /// Bytes of all strings.
    pub fn text_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> u64 {
        let ends = match &self.ends {
            Ends::Every(_) => 0,
            Ends::Narrow(ends) => ends.capacity() * 4,
            Ends::Wide(ends) => ends.capacity() * 8,
        };
        (self.bytes.capacity() + ends) as u64
    }

    /// The strings at these indices, in their order; `None` without memory for them.
    pub(crate) fn gather(&self, indices: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut gathered = Self::new();
        for i in indices {
            gathered.try_push(self.get(i)).ok()?;
        }
        gathered.shrink();
        Some(gathered)
    }

    /// Gives back the memory that growing reserved.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        match &mut self.ends {
            Ends::Every(_) => {}
            Ends::Narrow(ends) => ends.shrink_to_fit(),
            Ends::Wide(ends) => ends.shrink_to_fit(),
        }
    }
}

impl<K: AsRef<[u8]>> FromIterator<K> for KeyArena {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut arena = Self::new();
        keys.into_iter().for_each(|key| arena.push(key.as_ref()));
        arena
    }
}

fn reserved<T>(count: usize) -> Result<Vec<T>, TryReserveError> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(count)?;
    Ok(vector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_lengths_need_no_ends() {
        let arena: KeyArena = ["abc", "def", "ghi"].into_iter().collect();
        assert_eq!((arena.every_length(), arena.get(1)), (Some(3), &b"def"[..]));
        assert!(matches!(arena.ends, Ends::Every(3)));
        let mut arena = arena;
        arena.push(b"jk");
        assert_eq!(
            (arena.every_length(), arena.get(0), arena.get(2), arena.get(3)),
            (None, &b"abc"[..], &b"ghi"[..], &b"jk"[..])
        );
        assert_eq!(KeyArena::new().every_length(), None);
    }

    #[test]
    fn ends_beyond_32_bits_change_their_form() {
        // Four gigabytes of text would be slow to make: the form is changed by hand as `widen`
        // does.
        let mut arena: KeyArena = ["a", "bc"].into_iter().collect();
        let Ends::Narrow(ends) = &arena.ends else { panic!("two lengths") };
        arena.ends = Ends::Wide(ends.iter().map(|&end| u64::from(end)).collect());
        arena.push(b"def");
        assert!(arena.iter().eq([&b"a"[..], b"bc", b"def"]));
    }

    proptest! {
        #[test]
        fn strings_come_back_as_pushed(
            keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..40),
            one_length in any::<bool>(),
        ) {
            let mut keys = keys;
            if one_length {
                keys.iter_mut().for_each(|key| key.resize(3, 7));
            }
            let mut arena = KeyArena::new();
            keys.iter().for_each(|key| arena.try_push(key).unwrap());
            prop_assert!(arena.iter().eq(keys.iter().map(Vec::as_slice)));
            prop_assert_eq!(arena.last(), keys.last().map(Vec::as_slice));
            keys.sort();
            keys.dedup();
            let sorted: KeyArena = keys.iter().collect();
            for probe in [&b""[..], b"\x80", b"\x07\x07\x07", b"\xFF\xFF\xFF\xFF"] {
                let expected = keys.binary_search_by(|key| key.as_slice().cmp(probe));
                prop_assert_eq!(sorted.binary_search(probe), expected);
            }
        }
    }
}
