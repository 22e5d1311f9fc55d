//! The separators of one directory page, as compute nodes that keep some of its pages hold them.

use std::fmt::Debug;

use fpcache_index::strings::common_prefix;

/// Separators of a page, in ascending order, in just the bytes they need.
pub trait PageSeparators<Key: ?Sized + ToOwned>: Debug + Send + Sync + 'static {
    /// Heap bytes for each, beside its [`text`](Self::text_bytes).
    const EACH: usize;

    /// These, which ascend.
    fn of<'k>(ascending: impl ExactSizeIterator<Item = &'k Key>) -> Self
    where
        Key: 'k;

    /// The place of the greatest at or below `key`, or of the first; and how many bytes the key
    /// shares with it, where that matters.
    fn position(&self, key: &Key) -> (usize, usize);

    /// The one in this place.
    fn get(&self, at: usize) -> Option<Key::Owned>;

    /// Those from this place on.
    fn from(&self, at: usize) -> impl Iterator<Item = Key::Owned>;

    /// Heap bytes of what they say, beside [`Self::EACH`].
    fn text_bytes(&self) -> usize;
}

impl PageSeparators<u64> for Box<[u64]> {
    const EACH: usize = size_of::<u64>();

    fn of<'k>(ascending: impl ExactSizeIterator<Item = &'k u64>) -> Self {
        ascending.copied().collect()
    }

    #[inline]
    fn position(&self, key: &u64) -> (usize, usize) {
        (self.partition_point(|separator| separator <= key).saturating_sub(1), 0)
    }

    fn get(&self, at: usize) -> Option<u64> {
        <[u64]>::get(self, at).copied()
    }

    fn from(&self, at: usize) -> impl Iterator<Item = u64> {
        self.iter().skip(at).copied()
    }

    fn text_bytes(&self) -> usize {
        0
    }
}

/// Byte strings of which each is here without what it shares with the one before, as in the page: a
/// page full of keys that share kibibytes would take a hundred times as much if they were whole.
#[derive(Debug)]
pub struct FrontCoded {
    /// How many bytes each shares with the one before; apart from the rest, as a search passes most
    /// with a look at this.
    shared: Box<[u16]>,
    /// Where in the text what follows these ends.
    ends: Box<[u32]>,
    text: Box<[u8]>,
}

impl FrontCoded {
    /// The bytes that a string does not share with the one before.
    #[inline]
    fn rest(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        let end = self.ends.get(at).map_or(start, |end| *end as usize);
        self.text.get(start..end).unwrap_or_default()
    }
}

impl PageSeparators<[u8]> for FrontCoded {
    const EACH: usize = size_of::<u16>() + size_of::<u32>();

    fn of<'k>(ascending: impl ExactSizeIterator<Item = &'k [u8]>) -> Self {
        let count = ascending.len();
        let (mut shared, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut text, mut before): (Vec<u8>, &[u8]) = (Vec::new(), &[]);
        for string in ascending {
            // Separators have some 4 KiB at most; should one share more than can be told, it is
            // told less.
            let with_before = common_prefix(before, string).min(usize::from(u16::MAX));
            text.extend_from_slice(&string[with_before..]);
            shared.push(with_before as u16);
            // A page's text is no longer than the page.
            ends.push(text.len() as u32);
            before = string;
        }
        Self { shared: shared.into(), ends: ends.into(), text: text.into() }
    }

    /// From the first on, as each is told by the one before: but where it shares more with that
    /// than the key does, it lies on the same side of the key, and where it shares less, above it.
    /// So hardly any string is looked at.
    fn position(&self, key: &[u8]) -> (usize, usize) {
        let (mut found, mut matched) = (0, 0);
        for (at, shared) in self.shared.iter().map(|shared| usize::from(*shared)).enumerate() {
            if shared < matched {
                break;
            }
            if shared == matched {
                let (rest, of_key) = (self.rest(at), &key[matched..]);
                let more = common_prefix(rest, of_key);
                let is_above = rest.get(more) > of_key.get(more);
                if is_above && at > 0 {
                    break;
                }
                matched += more;
                if is_above {
                    break;
                }
            }
            found = at;
        }
        (found, matched)
    }

    fn get(&self, at: usize) -> Option<Vec<u8>> {
        let (mut missing, rest) = (usize::from(*self.shared.get(at)?), self.rest(at));
        let mut string = vec![0; missing + rest.len()];
        string[missing..].copy_from_slice(rest);
        for before in (0..at).rev() {
            let shared = usize::from(self.shared[before]);
            if shared < missing {
                let rest = self.rest(before).get(..missing - shared)?;
                string[shared..missing].copy_from_slice(rest);
                missing = shared;
            }
            if missing == 0 {
                break;
            }
        }
        Some(string)
    }

    fn from(&self, at: usize) -> impl Iterator<Item = Vec<u8>> {
        let mut string = Vec::new();
        (at..self.shared.len()).map_while(move |next| {
            if next == at {
                string = self.get(at)?;
            } else {
                string.truncate(usize::from(self.shared[next]));
                string.extend_from_slice(self.rest(next));
            }
            Some(string.clone())
        })
    }

    fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Strings that share much, and some that are prefixes of others.
    fn string() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![&b"a"[..], b"b", b"\0", b"\xff", b"abc", &[b'x'; 40]]);
        prop::collection::vec(piece, 0..7).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn front_coded_strings_are_found_as_whole_ones_are(
            strings in prop::collection::btree_set(string(), 1..40),
            keys in prop::collection::vec(string(), 1..40),
        ) {
            let strings: Vec<Vec<u8>> = strings.into_iter().collect();
            let coded = FrontCoded::of(strings.iter().map(Vec::as_slice));
            for key in keys.iter().chain(&strings) {
                let at = strings.partition_point(|string| string <= key).saturating_sub(1);
                prop_assert_eq!(coded.position(key), (at, common_prefix(key, &strings[at])));
                prop_assert!(PageSeparators::from(&coded, at).eq(strings[at..].iter().cloned()));
            }
            for (at, string) in strings.iter().enumerate() {
                prop_assert!(coded.get(at).as_ref() == Some(string));
            }
            prop_assert_eq!(coded.get(strings.len()), None);
            prop_assert!(coded.text_bytes() <= strings.iter().map(Vec::len).sum());
        }
    }
}
