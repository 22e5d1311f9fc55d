//! What growth costs with byte-string keys: slots copied by rebuilds per inserted key, in a memory
//! node as it is.
//!
//! The tests hold small stores to the bounds; `the_figures` prints what larger ones come to, beside
//! integer keys: `cargo test --release -p fpcache-memserver --test node -- --ignored --nocapture
//! growth_copies_strings`.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::{Integers, Key, KeyRef, Strings, TestKeys};
use crate::common::requests::Writer;
use fpcache::key_space::{BuildKeys, KeySpace};
use fpcache::layout::{RecordShape, RecordToken, TableParameters};
use fpcache::message::{NodeStats, WriteKind, WriteStatus};
use fpcache_fabric::{Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Often little, now and then much.
    fn skewed(&mut self, bound: usize) -> usize {
        let bound = 1 + self.below(bound);
        self.below(bound)
    }

    fn shuffle<Q>(&mut self, keys: &mut [Q]) {
        for i in (1..keys.len()).rev() {
            keys.swap(i, self.below(i + 1));
        }
    }
}

/// A kind of keys to grow with.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// `user` and nineteen digits, evenly spread.
    Users,
    /// Paths of files in folders of every size.
    Paths,
    /// Words of the letters that words have, of every length.
    Words,
}

const KINDS: [Kind; 3] = [Kind::Users, Kind::Paths, Kind::Words];

impl Kind {
    fn key(self, random: &mut Random) -> Vec<u8> {
        let key = match self {
            Self::Users => format!("user{:019}", random.next() >> 1),
            Self::Paths => {
                let (a, b, c) = (random.skewed(30), random.skewed(300), random.skewed(40));
                format!(
                    "/srv/projects/p{a:02}/releases/r{b:03}/src/m{c:02}/f{:05}.rs",
                    random.skewed(100_000)
                )
            }
            Self::Words => {
                let letters = b"eeeeetttaaaooiinnsshhrrdlcumwfgypbvk";
                let len = 4 + random.below(9);
                return (0..len).map(|_| letters[random.below(letters.len())]).collect();
            }
        };
        key.into_bytes()
    }

    /// So many keys, in order.
    fn keys(self, count: usize) -> Vec<Vec<u8>> {
        let mut random = Random(11);
        let mut keys = std::collections::BTreeSet::new();
        while keys.len() < count {
            keys.insert(self.key(&mut random));
        }
        keys.into_iter().collect()
    }
}

fn numbers(count: usize) -> Vec<u64> {
    let mut random = Random(11);
    let mut keys: Vec<u64> = (0..count).map(|_| random.next()).collect();
    keys.sort_unstable();
    keys
}

/// What growth came to.
#[derive(Debug)]
struct Figures {
    copies: f64,
    /// Those of them that inserts did not wait for.
    in_background: f64,
    rebuilds_per_1000: f64,
    keys_per_segment: f64,
    slots_per_key: f64,
    checkpoints: u64,
}

/// Loads `loaded`, and inserts the others in the order in which they come.
fn grow<T: TestKeys>(
    loaded: &[Key<T>],
    inserted: impl Iterator<Item = Key<T>>,
    shape: RecordShape,
) -> Figures {
    let region = Arc::new(SharedMemory::anonymous((loaded.len() * 600).max(16 << 20)).unwrap());
    let mut node: MemoryNode<T::Space> = MemoryNode::new(region, 1, 0, Instant::now()).unwrap();
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let encoders = T::Space::train(loaded.iter().step_by(7).map(|key| of::<T>(key)), loaded.len() as u64);
    let value = [7; 8];
    let records = loaded.iter().map(|key| (key.clone(), value));
    node.load_records(parameters, encoders, records).unwrap();
    let mut writer = Writer::<T>::new(1);
    let mut in_background = 0;
    for (i, key) in inserted.enumerate() {
        let reply =
            writer.one_of(&mut node, WriteKind::Insert, of::<T>(&key), RecordToken::default(), &value);
        assert_eq!(reply.status, WriteStatus::Done, "{}", T::Space::show(of::<T>(&key)));
        // Background work comes when there is nothing else to do.
        if i % 16 == 0 {
            let before = node.stats().copies;
            while node.work() == Work::More {}
            in_background += node.stats().copies - before;
        }
    }
    let audit = node.audit().unwrap().unwrap();
    let NodeStats { inserts, copies, rebuilds, checkpoint, .. } = node.stats();
    Figures {
        copies: copies as f64 / inserts as f64,
        in_background: in_background as f64 / inserts as f64,
        rebuilds_per_1000: rebuilds as f64 * 1_000.0 / inserts as f64,
        keys_per_segment: audit.keys as f64 / audit.segments as f64,
        slots_per_key: audit.slots as f64 / audit.keys as f64,
        checkpoints: checkpoint,
    }
}

fn of<T: TestKeys>(key: &Key<T>) -> &KeyRef<T> {
    key.borrow()
}

/// In which order the second half of the keys comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// At random.
    Random,
    /// In order, after those loaded.
    Appended,
    /// In descending order, before those loaded.
    Descending,
    /// In order, one after each that was loaded.
    Between,
    /// The same in descending order.
    BetweenDescending,
    /// At random from the next hundred.
    HotSpot,
}

fn grown<T: TestKeys>(keys: Vec<Key<T>>, order: Order, shape: RecordShape) -> Figures {
    let half = keys.len() / 2;
    let (mut loaded, mut others): (Vec<Key<T>>, Vec<Key<T>>) = match order {
        Order::Appended => (keys[..half].to_vec(), keys[half..].to_vec()),
        Order::Descending => (keys[half..].to_vec(), keys[..half].to_vec()),
        _ => {
            let mut random = Random(5);
            let (loaded, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(|_| random.below(2) == 0);
            (loaded, others)
        }
    };
    loaded.sort();
    let mut random = Random(9);
    match order {
        Order::Random => random.shuffle(&mut others),
        Order::Descending | Order::BetweenDescending => others.reverse(),
        Order::HotSpot => {
            let (mut next, mut rest) = (Vec::new(), others.into_iter());
            others = Vec::new();
            loop {
                next.extend(rest.by_ref().take(100 - next.len()));
                if next.is_empty() {
                    break;
                }
                others.push(next.swap_remove(random.below(next.len())));
            }
        }
        Order::Appended | Order::Between => {}
    }
    grow::<T>(&loaded, others.into_iter(), shape)
}

fn grown_strings(kind: Kind, order: Order, count: usize) -> Figures {
    let shape = RecordShape { key_bytes: None, value_bytes: Some(8), room: 72 };
    grown::<Strings>(kind.keys(2 * count), order, shape)
}

/// Runs of keys that share one loaded key as their beginning and go on with a counter.
fn counted(kind: Kind, count: usize, runs: usize, ascending: bool) -> Figures {
    let loaded = kind.keys(count);
    let mut random = Random(7);
    let heads: Vec<Vec<u8>> = (0..runs).map(|_| loaded[random.below(count)].clone()).collect();
    let inserted = (0..count).map(|i| {
        let n = if ascending { i / runs } else { count - i / runs };
        [heads[i % runs].as_slice(), format!("#{n:08}").as_bytes()].concat()
    });
    let shape = RecordShape { key_bytes: None, value_bytes: Some(8), room: 88 };
    grow::<Strings>(&loaded, inserted, shape)
}

const SMALL: usize = 10_000;

#[test]
fn random_inserts_that_double_a_store_copy_at_most_five_slots_a_key() {
    for kind in KINDS {
        let figures = grown_strings(kind, Order::Random, SMALL);
        assert!(figures.copies < 5.0 && figures.slots_per_key < 1.6, "{kind:?}: {figures:?}");
    }
}

#[test]
fn ordered_inserts_copy_no_more_than_those_of_integers() {
    for kind in KINDS {
        for order in [Order::Appended, Order::Descending, Order::Between, Order::BetweenDescending] {
            let figures = grown_strings(kind, order, SMALL);
            // As integers, of which a small store costs 4.2 where the new ones come between the
            // old. Few paths share a folder in a small store; in one of 100,000 they cost 3.6.
            let most = if matches!(kind, Kind::Paths) { 6.5 } else { 4.4 };
            assert!(figures.copies < most && figures.slots_per_key < 1.9, "{kind:?}, {order:?}: {figures:?}");
        }
    }
}

#[test]
fn runs_behind_one_key_and_hot_spots_cause_no_storm() {
    for kind in KINDS {
        for (runs, ascending) in [(1, true), (1, false), (8, true), (8, false)] {
            let figures = counted(kind, SMALL, runs, ascending);
            // A descending run goes on below what the segments of its head skip, among the keys
            // before it: these are copied with each windowful until it is cut out again. Small
            // segments that runs leave in small stores are brought together in the background. How
            // much that copies hangs on where its sweeps happen to fall among the inserts: 1.9 to
            // 2.4 slots a key for 8 runs among words, over slots of 80 to 112 bytes, with
            // fingerprints of whichever width; 2.3 and 5.9 for 8 descending runs among users, in
            // segments of at most 4,096 and 2,048 slots.
            let (most, waited_for) = if ascending { (4.8, 2.5) } else { (9.0, 7.5) };
            assert!(
                figures.copies - figures.in_background < waited_for,
                "{kind:?}, {runs} runs: {figures:?}"
            );
            assert!(figures.copies < most, "{kind:?}, {runs} runs, ascending {ascending}: {figures:?}");
        }
        let figures = grown_strings(kind, Order::HotSpot, SMALL);
        assert!(figures.copies < 6.5, "{kind:?}, hot spot: {figures:?}");
    }
}

#[test]
#[ignore = "prints figures; a minute in release"]
fn the_figures() {
    let count = 100_000;
    let show = |name: String, f: Figures| {
        println!(
            "{name:<40} copies {:6.2}  rebuilds/1000 {:6.2}  keys/segment {:7.1}  slots/key {:.3}  log records {}",
            f.copies, f.rebuilds_per_1000, f.keys_per_segment, f.slots_per_key, f.checkpoints
        );
    };
    let orders = [
        Order::Random,
        Order::Appended,
        Order::Descending,
        Order::Between,
        Order::BetweenDescending,
        Order::HotSpot,
    ];
    for order in orders {
        let integers = grown::<Integers>(numbers(2 * count), order, RecordShape::fixed(8, 8));
        show(format!("integers, {order:?}"), integers);
    }
    for kind in KINDS {
        for order in orders {
            show(format!("{kind:?}, {order:?}"), grown_strings(kind, order, count));
        }
        for (runs, ascending) in [(1, true), (1, false), (16, true), (16, false)] {
            let figures = counted(kind, count, runs, ascending);
            show(format!("{kind:?}, {runs} runs, ascending {ascending}"), figures);
        }
    }
}
