//! What growth costs: slots copied by rebuilds per inserted key, and what the store looks like
//! then.
//!
//! A store in memory, of keys, slots and windows only: inserts choose slots, full and crowded
//! windows rebuild. The tests hold small stores to the bounds; `the_figures` prints the table that
//! the documentation quotes: `cargo test --release -p fpcache-memserver --test node -- --ignored
//! --nocapture growth_copies::`.

use std::collections::{BTreeMap, HashSet, VecDeque};

use fpcache_datasets::{OpenOptions, Spec, SpecKind};
use fpcache_index::{SegmentModel, SegmentOptions, Segmenter};
use fpcache_memserver::rebuild::choose::{choose_slot, is_nearly_full};
use fpcache_memserver::rebuild::plan::{Facts, Gathered, RebuildOptions, neighbours, plan};

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

    fn shuffle(&mut self, keys: &mut [u64]) {
        for i in (1..keys.len()).rev() {
            keys.swap(i, self.below(i + 1));
        }
    }
}

/// Key and the write that stored it; 0 is the load.
type Record = (u64, u64);

struct Segment {
    hi: u64,
    model: SegmentModel,
    slots: Vec<Option<Record>>,
    live: usize,
    written: u64,
    queued: bool,
}

/// Writes between a window's being crowded and the rebuild in the background.
const LAG: u64 = 16;

#[derive(Default)]
struct Store {
    segments: BTreeMap<u64, Segment>,
    options: RebuildOptions,
    queue: VecDeque<(u64, u64)>,
    writes: u64,
    inserts: u64,
    copies: u64,
    rebuilds: u64,
    waits: u64,
    at_home: u64,
}

/// What growth came to.
#[derive(Debug)]
struct Figures {
    copies: f64,
    rebuilds_per_1000: f64,
    /// Share of rebuilds that a writer waited for.
    waited: f64,
    at_home: f64,
    keys_per_segment: f64,
    window: f64,
    slots_per_key: f64,
}

impl Store {
    fn load(keys: &[u64]) -> Self {
        let options = SegmentOptions::default();
        let mut segmenter = Segmenter::new(options).unwrap();
        let mut pieces: Vec<_> = keys.iter().filter_map(|key| segmenter.push(*key).unwrap()).collect();
        pieces.extend(segmenter.finish());
        let mut store = Self::default();
        let (mut rest, mut lo) = (keys, 0);
        for piece in pieces {
            for placed in piece.place(&rest[..piece.keys], &options) {
                let (own, after) = rest.split_at(placed.keys);
                let hi = after.first().map_or(u64::MAX, |next| next - 1);
                let records: Vec<Record> = own.iter().map(|key| (*key, 0)).collect();
                store.build(lo, hi, placed.model, &placed.slots, &records);
                lo = hi.wrapping_add(1);
                rest = after;
            }
        }
        store
    }

    fn build(&mut self, lo: u64, hi: u64, model: SegmentModel, slots: &[u16], records: &[Record]) {
        let mut filled = vec![None; usize::from(model.cap)];
        for (record, slot) in records.iter().zip(slots) {
            assert!(model.window(record.0).contains(u32::from(*slot)), "outside its window");
            assert_eq!(filled[usize::from(*slot)].replace(*record), None, "a slot for two");
        }
        assert_eq!(slots.len(), records.len());
        let written = records.iter().map(|record| record.1).max().unwrap_or(self.writes);
        let segment = Segment { hi, model, slots: filled, live: records.len(), written, queued: false };
        self.segments.insert(lo, segment);
    }

    fn segment_of(&self, key: u64) -> u64 {
        *self.segments.range(..=key).next_back().unwrap().0
    }

    fn insert(&mut self, key: u64) {
        self.writes += 1;
        self.inserts += 1;
        let lo = self.segment_of(key);
        let segment = self.segments.get_mut(&lo).unwrap();
        let predicted = segment.model.predict(key);
        let window = segment.model.window(key);
        let is_free = |slot: &u32| segment.slots[*slot as usize].is_none();
        let free: Vec<u32> = (window.first..=window.last).filter(is_free).collect();
        if let Some(slot) = choose_slot(&free, predicted, window) {
            segment.slots[slot as usize] = Some((key, self.writes));
            segment.live += 1;
            segment.written = self.writes;
            self.at_home += u64::from(slot == predicted);
            if is_nearly_full(free.len() - 1, window) && !segment.queued {
                segment.queued = true;
                self.queue.push_back((lo, self.writes));
            }
        } else {
            self.waits += 1;
            self.rebuild(lo, Some(key));
        }
        while let Some((lo, since)) = self.queue.front().copied() {
            if since + LAG > self.writes {
                break;
            }
            self.queue.pop_front();
            if self.segments.get(&lo).is_some_and(|segment| segment.queued) {
                self.rebuild(lo, None);
            }
        }
    }

    fn update(&mut self, key: u64) {
        self.writes += 1;
        let lo = self.segment_of(key);
        let segment = self.segments.get_mut(&lo).unwrap();
        let window = segment.model.window(key);
        let slots = &mut segment.slots[window.first as usize..=window.last as usize];
        slots.iter_mut().flatten().find(|record| record.0 == key).unwrap().1 = self.writes;
    }

    fn facts(&self, lo: u64) -> Facts {
        let segment = &self.segments[&lo];
        let idle = (self.writes - segment.written) as u32;
        Facts { keys: segment.live, cap: segment.model.cap, idle }
    }

    fn rebuild(&mut self, centre: u64, incoming: Option<u64>) {
        let left = self.segments.range(..centre).next_back().map(|(lo, _)| *lo);
        let right = self.segments[&centre].hi.checked_add(1);
        let gather =
            neighbours(self.facts(centre), left.map(|lo| self.facts(lo)), right.map(|lo| self.facts(lo)));
        let left = left.filter(|_| gather.left);
        let right = right.filter(|_| gather.right);
        let mut records = Vec::new();
        let (mut hi, lo) = (0, left.unwrap_or(centre));
        for lo in [left, Some(centre), right].into_iter().flatten() {
            let segment = self.segments.remove(&lo).unwrap();
            hi = segment.hi;
            records.extend(segment.slots.into_iter().flatten());
        }
        self.copies += records.len() as u64;
        self.rebuilds += 1;
        records.extend(incoming.map(|key| (key, self.writes)));
        records.sort_unstable();
        let xs: Vec<u64> = records.iter().map(|record| record.0).collect();
        let age = |record: &Record| if record.1 == 0 { u32::MAX } else { (self.writes - record.1) as u32 };
        let ages: Vec<u32> = records.iter().map(age).collect();
        for planned in plan(&Gathered { lo, hi, xs: &xs, ages: &ages }, &self.options) {
            self.build(planned.lo, planned.hi, planned.model, &planned.slots, &records[planned.keys]);
        }
    }

    fn figures(&self) -> Figures {
        let (mut live, mut slots, mut windows) = (0, 0, 0);
        for segment in self.segments.values() {
            live += segment.live;
            slots += segment.slots.len();
            let lengths = segment.slots.iter().flatten().map(|record| segment.model.window(record.0).len());
            windows += lengths.sum::<u32>() as usize;
        }
        let per_insert = |count: u64| count as f64 / self.inserts.max(1) as f64;
        Figures {
            copies: per_insert(self.copies),
            rebuilds_per_1000: 1_000.0 * per_insert(self.rebuilds),
            waited: self.waits as f64 / self.rebuilds.max(1) as f64,
            at_home: per_insert(self.at_home),
            keys_per_segment: live as f64 / self.segments.len() as f64,
            window: windows as f64 / live as f64,
            slots_per_key: slots as f64 / live as f64,
        }
    }
}

/// The two kinds of keys: evenly spread, and as uneven as fb's.
const KINDS: [&str; 2] = ["uniform", "fb"];

fn keys(kind: &str, count: usize) -> Vec<u64> {
    let kind = if kind == "fb" { SpecKind::Fb } else { SpecKind::Uniform };
    Spec::new(kind, Some(count as u64)).open(&OpenOptions::default()).unwrap().into_keys()
}

/// Loads one key of `1 + held`, at random, and gives the others, in order.
fn held_back(kind: &str, count: usize, held: usize) -> (Store, Vec<u64>) {
    let mut random = Random(5);
    let (loaded, others): (Vec<u64>, Vec<u64>) =
        keys(kind, count).into_iter().partition(|_| random.below(1 + held) == 0);
    (Store::load(&loaded), others)
}

fn insert_all(mut store: Store, keys: impl IntoIterator<Item = u64>) -> Store {
    for key in keys {
        store.insert(key);
    }
    store
}

fn random_half(kind: &str, count: usize) -> Figures {
    let (store, mut others) = held_back(kind, 2 * count, 1);
    Random(3).shuffle(&mut others);
    insert_all(store, others).figures()
}

fn appended(kind: &str, count: usize) -> Figures {
    let keys = keys(kind, 2 * count);
    insert_all(Store::load(&keys[..count]), keys[count..].iter().copied()).figures()
}

fn descending(kind: &str, count: usize) -> Figures {
    let keys = keys(kind, 2 * count);
    insert_all(Store::load(&keys[count..]), keys[..count].iter().rev().copied()).figures()
}

/// Held-back keys in order, `held` to each that was loaded.
fn sweep(kind: &str, count: usize, held: usize, ascending: bool) -> Figures {
    let (store, mut others) = held_back(kind, 2 * count, held);
    if !ascending {
        others.reverse();
    }
    insert_all(store, others).figures()
}

/// The held-back half, at random from the next `width` keys.
fn hot_spot(kind: &str, count: usize, width: usize) -> Figures {
    let (mut store, others) = held_back(kind, 2 * count, 1);
    let (mut random, mut others, mut next) = (Random(9), others.into_iter(), Vec::new());
    loop {
        next.extend(others.by_ref().take(width - next.len()));
        if next.is_empty() {
            return store.figures();
        }
        store.insert(next.swap_remove(random.below(next.len())));
    }
}

/// What goes on between the inserts of runs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Besides {
    Nothing,
    /// Two uniform inserts to one of a run.
    Inserts,
    /// Eight updates of any record to one insert.
    Updates,
}

/// As many runs, in turn by chance, between two loaded keys each, in steps of 1 to 3.
fn mid_range(kind: &str, count: usize, runs: usize, ascending: bool, besides: Besides) -> Figures {
    let mut loaded: Vec<u64> = keys(kind, count).iter().map(|key| key.saturating_mul(1 << 20)).collect();
    if kind == "uniform" {
        loaded = keys(kind, count);
    }
    loaded.dedup();
    let mut store = Store::load(&loaded);
    let mut random = Random(7);
    let mut taken: HashSet<u64> = loaded.iter().copied().collect();
    let mut heads: Vec<u64> =
        (0..runs).map(|_| loaded[random.below(loaded.len() - 1) + usize::from(!ascending)]).collect();
    let mut all = loaded;
    while store.inserts < count as u64 {
        let run = random.below(runs);
        let step = 1 + random.below(3) as u64;
        let head = heads[run];
        heads[run] = if ascending { head + step } else { head - step };
        if !taken.insert(heads[run]) {
            continue;
        }
        store.insert(heads[run]);
        all.push(heads[run]);
        for _ in 0..2 {
            let key = random.next();
            if besides == Besides::Inserts && taken.insert(key) {
                store.insert(key);
            }
        }
        for _ in 0..8 {
            if besides == Besides::Updates {
                store.update(all[random.below(all.len())]);
            }
        }
    }
    store.figures()
}

const SMALL: usize = 20_000;

#[test]
fn random_inserts_that_double_a_store_copy_at_most_five_slots_a_key() {
    for kind in KINDS {
        let figures = random_half(kind, SMALL);
        assert!(figures.copies < 5.0 && figures.slots_per_key < 1.45, "{kind}: {figures:?}");
    }
}

#[test]
fn appended_and_descending_keys_copy_next_to_nothing() {
    for kind in KINDS {
        for figures in [appended(kind, SMALL), descending(kind, SMALL)] {
            assert!(figures.copies < 2.0 && figures.slots_per_key < 1.4, "{kind}: {figures:?}");
        }
    }
}

#[test]
fn runs_in_the_middle_cause_no_storm_whatever_else_is_written() {
    for kind in KINDS {
        for (runs, ascending, besides) in [
            (1, true, Besides::Nothing),
            (1, false, Besides::Updates),
            (1, true, Besides::Inserts),
            (8, false, Besides::Nothing),
            (8, true, Besides::Updates),
            (8, false, Besides::Inserts),
        ] {
            let figures = mid_range(kind, SMALL, runs, ascending, besides);
            let what = format!("{kind}, {runs} runs, ascending {ascending}, {besides:?}: {figures:?}");
            // Two of three inserts are random then.
            let most = if besides == Besides::Inserts { 4.6 } else { 3.0 };
            assert!(figures.copies < most, "{what}");
            assert!(figures.slots_per_key < 1.9, "{what}");
        }
    }
}

#[test]
fn runs_through_older_keys_cause_no_storm() {
    for kind in KINDS {
        for (held, ascending) in [(1, true), (1, false), (4, true), (20, false)] {
            let figures = sweep(kind, SMALL, held, ascending);
            assert!(figures.copies < 4.4, "{kind}, {held} to one, ascending {ascending}: {figures:?}");
        }
        let figures = hot_spot(kind, SMALL, 100);
        assert!(figures.copies < 6.5, "{kind}, hot spot: {figures:?}");
    }
}

#[test]
#[ignore = "prints figures; half a minute in release"]
fn the_figures() {
    let count = 400_000;
    let show = |name: String, f: Figures| {
        println!(
            "{name:<44} copies {:5.2}  rebuilds/1000 {:6.2}  waited {:.2}  at home {:.2}  keys/segment {:7.1}  window {:5.1}  \
             slots/key {:.3}",
            f.copies, f.rebuilds_per_1000, f.waited, f.at_home, f.keys_per_segment, f.window, f.slots_per_key
        );
    };
    for kind in KINDS {
        show(format!("{kind} loaded"), held_back(kind, 2 * count, 1).0.figures());
        show(format!("{kind} random half"), random_half(kind, count));
        show(format!("{kind} appended"), appended(kind, count));
        show(format!("{kind} descending"), descending(kind, count));
        for runs in [1, 16] {
            for ascending in [true, false] {
                for besides in [Besides::Nothing, Besides::Inserts, Besides::Updates] {
                    let figures = mid_range(kind, count, runs, ascending, besides);
                    show(format!("{kind} {runs} runs, ascending {ascending}, {besides:?}"), figures);
                }
            }
        }
        for held in [1, 4, 20] {
            for ascending in [true, false] {
                let figures = sweep(kind, count, held, ascending);
                show(format!("{kind} sweep, {held} to one, ascending {ascending}"), figures);
            }
        }
        for width in [100, 3_000] {
            show(format!("{kind} hot spot of {width}"), hot_spot(kind, count, width));
        }
    }
}
