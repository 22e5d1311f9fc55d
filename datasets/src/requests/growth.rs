//! A split of the keys into those loaded first and those inserted later, and the order of the
//! latter.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use super::absent::Absent;
use super::permutation::Permutation;
use crate::random::Random;

/// Which keys are inserted after a load, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InsertOrder {
    /// Keys of the data set, drawn at random and held back, in random order.
    #[default]
    Random,
    /// The greatest keys, ascending.
    Append,
    /// The least keys, descending.
    Descending,
    /// A run in the middle of the keys, ascending.
    Middle,
    /// Random keys, held back; inserts keep to a short stretch of neighbours, in random order, and
    /// then move to another stretch.
    HotspotMoves,
    /// All keys of the data set are loaded; the inserted ones are new, between two neighbours drawn
    /// at random.
    Fresh,
}

/// A text that names no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an order of inserts: write random, append, descending, middle, hotspot-moves or fresh"
)]
pub struct ParseInsertOrderError {
    text: String,
}

impl InsertOrder {
    /// All orders.
    pub const ALL: [Self; 6] =
        [Self::Random, Self::Append, Self::Descending, Self::Middle, Self::HotspotMoves, Self::Fresh];

    /// As options and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Append => "append",
            Self::Descending => "descending",
            Self::Middle => "middle",
            Self::HotspotMoves => "hotspot-moves",
            Self::Fresh => "fresh",
        }
    }
}

impl FromStr for InsertOrder {
    type Err = ParseInsertOrderError;

    fn from_str(text: &str) -> Result<Self, ParseInsertOrderError> {
        let found = Self::ALL.into_iter().find(|order| order.name() == text);
        found.ok_or_else(|| ParseInsertOrderError { text: text.to_owned() })
    }
}

impl fmt::Display for InsertOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Keys to load and keys to insert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// To load: ascending.
    pub loaded: Vec<u64>,
    /// To insert: distinct, in this order, none of them loaded.
    pub inserts: Vec<u64>,
}

/// Inserts that a hot spot stays for.
const STAY: usize = 4096;
const PURPOSE_GROWTH: u64 = 0x6E0;

impl Growth {
    /// Splits the distinct ascending `keys` so that `inserts` of them, and at most all but one, are
    /// to be inserted; with [`InsertOrder::Fresh`] as many new keys as that, unless keys leave less
    /// room. A function of its arguments alone. Costs a pass over the keys and about 50 ns per
    /// insert.
    pub fn split(keys: &[u64], inserts: usize, order: InsertOrder, seed: u64) -> Self {
        let mut random = Random::new(seed, PURPOSE_GROWTH);
        let count = inserts.min(keys.len().saturating_sub(1));
        let rest = keys.len() - count;
        match order {
            InsertOrder::Append => Self { loaded: keys[..rest].to_vec(), inserts: keys[rest..].to_vec() },
            InsertOrder::Descending => Self {
                loaded: keys[count..].to_vec(),
                inserts: keys[..count].iter().rev().copied().collect(),
            },
            InsertOrder::Middle => {
                let from = rest / 2;
                let loaded = [&keys[..from], &keys[from + count..]].concat();
                Self { loaded, inserts: keys[from..from + count].to_vec() }
            }
            InsertOrder::Random => {
                let (loaded, mut held) = hold_back(keys, count, &mut random);
                shuffle(&mut held, &mut random);
                Self { loaded, inserts: held }
            }
            InsertOrder::HotspotMoves => {
                let (loaded, held) = hold_back(keys, count, &mut random);
                Self { loaded, inserts: by_stretches(&held, &mut random) }
            }
            InsertOrder::Fresh => {
                let mut fresh = fresh_keys(keys, inserts, &mut random);
                shuffle(&mut fresh, &mut random);
                Self { loaded: keys.to_vec(), inserts: fresh }
            }
        }
    }

    /// The inserts of one of `threads` threads, which take turns: every thread sees the order of
    /// all.
    pub fn share(&self, thread: usize, threads: usize) -> Vec<u64> {
        self.inserts.iter().skip(thread).step_by(threads.max(1)).copied().collect()
    }
}

/// Divides keys into those kept and `count` drawn at random, both ascending (Knuth, The Art of
/// Computer Programming volume 2, algorithm 3.4.2 S).
fn hold_back(keys: &[u64], count: usize, random: &mut Random) -> (Vec<u64>, Vec<u64>) {
    let (mut kept, mut held) = (Vec::with_capacity(keys.len() - count), Vec::with_capacity(count));
    for (at, &key) in keys.iter().enumerate() {
        let missing = (count - held.len()) as u64;
        let to_hold = random.below((keys.len() - at) as u64) < missing;
        if to_hold { held.push(key) } else { kept.push(key) }
    }
    (kept, held)
}

/// Fisher and Yates, as Durstenfeld has it (Communications of the ACM 7(7), 1964, algorithm 235).
fn shuffle(keys: &mut [u64], random: &mut Random) {
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// Stretches of neighbours in random order, and within each its keys in random order.
fn by_stretches(keys: &[u64], random: &mut Random) -> Vec<u64> {
    let stretches: Vec<&[u64]> = keys.chunks(STAY).collect();
    if stretches.is_empty() {
        return Vec::new();
    }
    let places = Permutation::new(stretches.len() as u64, random);
    let mut inserts = Vec::with_capacity(keys.len());
    for at in 0..stretches.len() {
        let from = inserts.len();
        inserts.extend_from_slice(stretches[places.apply(at as u64) as usize]);
        shuffle(&mut inserts[from..], random);
    }
    inserts
}

/// `count` new keys, ascending, between neighbours drawn at random; where these leave too little
/// room, what is missing is drawn from all that is free between keys, and fewer only if there are
/// no more.
fn fresh_keys(keys: &[u64], count: usize, random: &mut Random) -> Vec<u64> {
    let Some(absent) = Absent::new(keys, &mut Vec::new()) else { return Vec::new() };
    let mut fresh = Vec::with_capacity(count);
    // Few keys are drawn twice unless there is hardly room; further draws make up for them.
    for _ in 0..8 {
        let missing = count - fresh.len();
        fresh.extend((0..missing).filter_map(|_| absent.draw_between(random)));
        fresh.sort_unstable();
        fresh.dedup();
    }
    top_up(keys, count, &mut fresh, random);
    fresh
}

/// Adds keys that are between others and not in `fresh`, each as likely as any other, until there
/// are `count` or no more.
fn top_up(keys: &[u64], count: usize, fresh: &mut Vec<u64>, random: &mut Random) {
    // The room before each pair of neighbours, from the first on: of distinct keys it is below
    // 2^64.
    let before: Vec<u64> = (0..).zip(keys).map(|(at, key)| key - keys[0] - at).collect();
    let room = before.last().copied().unwrap_or_default();
    let missing = count.min(usize::try_from(room).unwrap_or(usize::MAX)) - fresh.len();
    if missing == 0 {
        return;
    }
    if room / 2 <= count as u64 {
        let free: Vec<u64> = keys
            .windows(2)
            .flat_map(|pair| pair[0] + 1..pair[1])
            .filter(|key| fresh.binary_search(key).is_err())
            .collect();
        fresh.extend(hold_back(&free, missing, random).1);
    } else {
        let mut added = HashSet::with_capacity(missing);
        while added.len() < missing {
            let place = random.below(room);
            let pair = before.partition_point(|before| *before <= place) - 1;
            let key = keys[pair] + 1 + (place - before[pair]);
            // More than half of the room is free: two draws find a place, on average.
            if fresh.binary_search(&key).is_err() {
                added.insert(key);
            }
        }
        fresh.extend(added);
    }
    fresh.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_is_loaded_or_inserted_and_none_is_both(
            keys in prop::collection::btree_set(any::<u64>(), 1..300),
            inserts in 0usize..320,
            order in prop::sample::select(&InsertOrder::ALL[..]),
            seed in any::<u64>(),
        ) {
            let keys: Vec<u64> = keys.into_iter().collect();
            let growth = Growth::split(&keys, inserts, order, seed);
            prop_assert_eq!(&growth, &Growth::split(&keys, inserts, order, seed));
            prop_assert!(growth.loaded.is_sorted() && !growth.loaded.is_empty());
            let mut all = [&growth.loaded[..], &growth.inserts[..]].concat();
            all.sort_unstable();
            prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
            if order == InsertOrder::Fresh {
                prop_assert_eq!(&growth.loaded, &keys);
                let room = keys[keys.len() - 1] - keys[0] - (keys.len() as u64 - 1);
                prop_assert_eq!(growth.inserts.len() as u64, room.min(inserts as u64));
            } else {
                prop_assert_eq!(all, keys.clone());
                prop_assert_eq!(growth.inserts.len(), inserts.min(keys.len() - 1));
            }
            let mut shared: Vec<u64> = (0..3).flat_map(|thread| growth.share(thread, 3)).collect();
            let mut inserts = growth.inserts;
            shared.sort_unstable();
            inserts.sort_unstable();
            prop_assert_eq!(shared, inserts);
        }
    }

    #[test]
    fn fresh_keys_are_as_many_as_asked_for_where_room_is_rare_or_little() {
        let fresh = |keys: &[u64], inserts| Growth::split(keys, inserts, InsertOrder::Fresh, 7).inserts;
        let even: Vec<u64> = (0..=10_000).map(|i| 2 * i).collect();
        assert_eq!(fresh(&even, 10_000).len(), 10_000);
        assert_eq!(fresh(&even, 20_000).len(), 10_000);
        let crowded: Vec<u64> = (0..=1000).map(|i| 2 * i).chain([1_000_000]).collect();
        assert_eq!(fresh(&crowded, 10_000).len(), 10_000);
        assert_eq!(fresh(&[0, 100], 99).len(), 99);
        assert_eq!(fresh(&[0, u64::MAX], 3).len(), 3);
        assert!(fresh(&[], 3).is_empty() && fresh(&[7], 3).is_empty() && fresh(&[7, 8], 3).is_empty());
        let dense: Vec<u64> = (0..2_000_000).filter(|key| *key != 1_000_000).collect();
        assert_eq!(fresh(&dense, 200), [1_000_000]);
    }

    #[test]
    fn orders_are_what_they_are_called() {
        let keys: Vec<u64> = (0..20_000).map(|i| i * 10).collect();
        let split = |order| Growth::split(&keys, 10_000, order, 7);
        assert_eq!(split(InsertOrder::Append).inserts, keys[10_000..]);
        assert!(split(InsertOrder::Descending).inserts.is_sorted_by(|a, b| a > b));
        let middle = split(InsertOrder::Middle);
        assert_eq!(middle.inserts, keys[5_000..15_000]);
        assert_eq!((middle.loaded[4_999], middle.loaded[5_000]), (49_990, 150_000));
        let step = |inserts: &[u64]| {
            inserts.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum::<u64>() / inserts.len() as u64
        };
        // Two random keys of a range are a third of it apart.
        assert!((60_000..73_000).contains(&step(&split(InsertOrder::Random).inserts)));
        assert!(step(&split(InsertOrder::HotspotMoves).inserts) < 33_000);
        let fresh = split(InsertOrder::Fresh).inserts;
        assert_eq!(fresh.len(), 10_000);
        assert!(fresh.iter().all(|key| !key.is_multiple_of(10) && *key < 199_990));
    }

    #[test]
    fn names_are_read_and_others_are_refused() {
        for order in InsertOrder::ALL {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert!("sorted".parse::<InsertOrder>().unwrap_err().to_string().contains("hotspot-moves"));
    }

    #[test]
    fn keys_without_room_between_them_have_no_fresh_ones() {
        let keys: Vec<u64> = (5..105).collect();
        let growth = Growth::split(&keys, 50, InsertOrder::Fresh, 1);
        assert!(growth.inserts.is_empty());
    }
}
