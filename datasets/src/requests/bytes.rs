//! Lookups of byte strings, and byte strings that no data set holds.

use super::distribution::Distribution;
use super::draw::{ABSENT, RequestOptions, draw_each, negative_share};
use super::sosd;
use crate::bytes::{ByteDataset, ByteKeys, KeyArena, MAX_KEY_BYTES};
use crate::random::Random;

/// A stream of lookups and what each must find: what [`Requests`](super::Requests) is for `u64`
/// keys.
#[derive(Clone, Debug, Default)]
pub struct ByteRequests {
    /// The key of each lookup, in one piece of memory, so that running the stream costs nothing but
    /// reading it.
    pub keys: KeyArena,
    /// The index into the data set's keys of each lookup, or [`ABSENT`].
    pub expected: Vec<u64>,
    /// Things to announce.
    pub notes: Vec<String>,
}

impl ByteRequests {
    /// Number of lookups.
    pub fn len(&self) -> usize {
        self.expected.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }
}

/// Generates a stream over a data set's keys, as [`generate_for`](super::generate_for) does for
/// `u64` keys: the present keys are spread in the same way, the absent ones are those of
/// [`AbsentKeys`].
///
/// Costs the bytes of each key and 12 bytes more per request.
pub fn generate_bytes(dataset: &ByteDataset, options: &RequestOptions) -> ByteRequests {
    let keys = dataset.keys();
    let crowded = match options.distribution {
        Distribution::Sosd => dataset.crowded(sosd::MOST_EQUAL),
        _ => Vec::new(),
    };
    let absent = AbsentKeys::new(keys);
    let mut requests =
        ByteRequests { expected: Vec::with_capacity(options.lookups), ..ByteRequests::default() };
    let share = match &absent {
        Some(_) => negative_share(keys.len(), options),
        None => 0.0,
    };
    if options.negative > 0.0 && absent.is_none() {
        requests.notes.push("no negative requests: every key of this length may be present".to_owned());
    }
    let ByteRequests { keys: asked, expected, notes } = &mut requests;
    let (mut buffer, mut made) = (Vec::new(), Vec::new());
    draw_each(keys.len() as u64, share, crowded, options, notes, |index, random| {
        match (index, &absent) {
            (Some(index), _) => asked.push(keys.get(index as usize, &mut buffer)),
            (None, Some(absent)) => {
                absent.draw_from(random, &mut made);
                asked.push(&made);
            }
            // A share of zero draws no absent key.
            (None, None) => return,
        }
        expected.push(index.unwrap_or(ABSENT));
    });
    requests
}

/// Changes tried before a key is made of random bytes.
const TRIES: usize = 16;

const PURPOSE_ABSENT: u64 = 0x4E2;

/// Draws keys that are not in a set but resemble those that are.
///
/// A key of the set is drawn and changed: one byte becomes a byte of another key, or the end of
/// another key takes the place of its own; and, where the keys have several lengths, it is cut
/// short or continued by bytes of another key. So most lie between two neighbours and share a
/// prefix with one. Where all keys have one length, so do the absent ones.
#[derive(Debug)]
pub struct AbsentKeys<'a> {
    keys: &'a ByteKeys,
    /// The length of all keys, where they have one.
    every_length: Option<usize>,
}

impl<'a> AbsentKeys<'a> {
    /// `None` where the keys have one length and leave hardly a key of that length, or none at all.
    pub fn new(keys: &'a ByteKeys) -> Option<Self> {
        let every_length = keys.every_length();
        let possible = every_length.and_then(|length| 256u128.checked_pow(length.min(16) as u32));
        let is_crowded = possible.is_some_and(|possible| keys.len() as u128 > possible / 2);
        (!is_crowded).then_some(Self { keys, every_length })
    }

    /// An absent key for each index of a stream, a function of both alone. Costs about two searches
    /// of the set.
    pub fn draw(&self, seed: u64, index: u64, key: &mut Vec<u8>) {
        let seed = seed ^ index.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        self.draw_from(&mut Random::new(seed, PURPOSE_ABSENT), key);
    }

    pub(super) fn draw_from(&self, random: &mut Random, key: &mut Vec<u8>) {
        let mut buffer = Vec::new();
        for attempt in 0.. {
            key.clear();
            if attempt < TRIES && !self.keys.is_empty() {
                key.extend_from_slice(self.any(random, &mut buffer));
                self.change(random, key, &mut buffer);
            } else {
                // A set that holds every change of its keys: the number of tries has no bound, but
                // at least half of all keys of this length are absent.
                let length = self.every_length.unwrap_or(24);
                key.extend((0..length).map(|_| random.bits() as u8));
            }
            if !key.is_empty() && key.len() <= MAX_KEY_BYTES && self.keys.binary_search(key).is_err() {
                return;
            }
        }
    }

    fn any<'b>(&'b self, random: &mut Random, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        let i = random.below(self.keys.len() as u64) as usize;
        self.keys.get(i, buffer)
    }

    /// Changes a key in one of four ways; two of them keep its length.
    fn change(&self, random: &mut Random, key: &mut Vec<u8>, buffer: &mut Vec<u8>) {
        let other = self.any(random, buffer);
        let at = random.below(key.len() as u64) as usize;
        let ways = if self.every_length.is_some() { 2 } else { 4 };
        match random.below(ways) {
            0 => key[at] = other[random.below(other.len() as u64) as usize],
            1 => {
                let end = key.len().min(other.len());
                if at < end {
                    key[at..end].copy_from_slice(&other[at..end]);
                }
            }
            2 => key.truncate(at.max(1)),
            _ => key.extend_from_slice(&other[..1 + random.below(other.len().min(4) as u64) as usize]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(texts: &[&str]) -> ByteKeys {
        ByteKeys::new(texts.iter().collect()).unwrap()
    }

    #[test]
    fn absent_keys_are_absent_good_and_repeatable() {
        let set = keys(&["a", "ab", "abc", "b", "ba", "user1", "user2"]);
        let absent = AbsentKeys::new(&set).unwrap();
        let (mut key, mut again) = (Vec::new(), Vec::new());
        for i in 0..2_000 {
            absent.draw(7, i, &mut key);
            absent.draw(7, i, &mut again);
            assert_eq!(key, again);
            assert!(!key.is_empty() && set.binary_search(&key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn keys_of_one_length_stay_of_that_length() {
        let set = keys(&["aaa", "abc", "bcd"]);
        let absent = AbsentKeys::new(&set).unwrap();
        let mut key = Vec::new();
        for i in 0..500 {
            absent.draw(7, i, &mut key);
            assert!(key.len() == 3 && set.binary_search(&key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn a_set_that_holds_all_its_changes_still_has_absent_keys() {
        let binary: Vec<String> = (0..64).map(|i| format!("{i:06b}")).collect();
        let set = ByteKeys::new(binary.iter().collect()).unwrap();
        let mut key = Vec::new();
        AbsentKeys::new(&set).unwrap().draw(1, 1, &mut key);
        assert!(key.len() == 6 && set.binary_search(&key).is_err());
        let full: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        assert!(AbsentKeys::new(&ByteKeys::new(full.iter().collect()).unwrap()).is_none());
    }
}
