//! CHIME: a B+ tree with hopscotch leaves and a buffer of hot entries. See this folder's
//! `README.md`.

mod hot_entries;
mod layout;
mod scan;

use crate::Sizes;
use crate::bench::{Answer, Operation};
use crate::inner_nodes::{Asked, Growth, Inner, InnerNodes, LeafAt, Scanning, Seek, Shape};
use crate::local_locks::Claim;
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Turn};
use hot_entries::HotEntries;
use layout::{ENTRY, HEAD, HOP, LEAF, LOCK, SPAN, fingerprint, home, neighbourhood_bytes, place, run_bytes};

/// How CHIME is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep, hot entries included.
    pub budget: u64,
    /// The part of it for hot entries.
    pub hot_share: f64,
    /// Share of a leaf's entries that loading fills.
    pub fill: f64,
    /// The levels above the leaves.
    pub inner: Inner,
}

impl Options {
    /// The published ones: 30 MB of 100 MB for hot entries; leaves as full as a tree that grew has
    /// them; inner nodes as wide as leaves.
    pub fn published(budget: u64) -> Self {
        let inner = Inner { span: SPAN, all_levels: true };
        Self { budget, hot_share: 0.3, fill: 0.65, inner }
    }
}

/// The tree, and what compute nodes keep.
#[derive(Debug)]
pub struct Chime {
    sizes: Sizes,
    /// Records of a leaf when it was loaded.
    per_leaf: f64,
    inner: InnerNodes,
    hot: Vec<HotEntries>,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    stage: Stage,
    split: Split,
    growth: Option<Growth>,
    scan: Scanning,
}

/// A leaf that is being split: what it is to hold, and its sibling's first key and place.
#[derive(Debug, Default)]
struct Split {
    left: Vec<u64>,
    sibling: (u64, Address),
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Begin,
    Inner(Asked),
    /// The entry that is thought to be the key's.
    Guess {
        at: LeafAt,
        entry: usize,
        landed: Landed,
    },
    /// The neighbourhood, in one piece or two, and the leaf's sibling pointer.
    Neighbourhood {
        at: LeafAt,
        parts: [Landed; 2],
        next: Landed,
    },
    /// Its turn for the leaf's lock.
    Turn(LeafAt),
    /// The leaf's lock.
    Lock {
        at: LeafAt,
        landed: Landed,
    },
    /// The end of a write; whether the key was there.
    Written {
        is_there: bool,
    },
    /// The whole leaf, which is locked and has no room for the key.
    Full {
        at: LeafAt,
        landed: Landed,
    },
    /// The new sibling of this leaf is there, which is still locked and whole.
    Sibling(Address),
    /// Both halves are: the level above takes the sibling.
    Halved,
    Growing,
    /// Leaves of a scan.
    Leaves,
}

impl Chime {
    /// The tree over ascending keys with their first values, for `compute_nodes` compute nodes.
    pub fn new(
        memory: &mut Memory,
        keys: &[u64],
        sizes: Sizes,
        compute_nodes: u16,
        options: &Options,
    ) -> Self {
        let (mut leaves, mut rest) = (Vec::new(), keys);
        let most = ((SPAN as f64 * options.fill) as usize).clamp(1, SPAN);
        while !rest.is_empty() {
            let mut count = most.min(rest.len());
            let entries = loop {
                match place(&rest[..count]) {
                    Some(entries) => break entries,
                    None => count -= 1,
                }
            };
            let at = memory.allocate(LEAF, layout::leaf_bytes(sizes) as u64);
            let words = memory.words_mut(at, LEAF);
            for (words, key) in words[HEAD..].as_chunks_mut::<ENTRY>().0.iter_mut().zip(entries) {
                if let Some(key) = key {
                    *words = [1, key, first_value(key)];
                }
            }
            if let Some((_, before)) = leaves.last() {
                memory.words_mut(*before, HEAD)[1..].copy_from_slice(&[at, rest[0]]);
            }
            memory.words_mut(at, HEAD)[2] = u64::MAX;
            leaves.push((rest[0], at));
            rest = &rest[count..];
        }
        let hot_bytes = (options.budget as f64 * options.hot_share) as u64;
        let Inner { span, all_levels } = options.inner;
        let shape = Shape {
            span,
            bytes: span * (sizes.key + 9) + 60,
            cached_bytes: (span * (sizes.key + 9) + 35 + 2 * sizes.key + 16) as u64,
            all_levels,
            reads_root: true,
        };
        let inner = InnerNodes::build(memory, shape, leaves, 1.0, compute_nodes, options.budget - hot_bytes);
        let hot = (0..compute_nodes).map(|_| HotEntries::new(hot_bytes)).collect();
        Self { sizes, per_leaf: most as f64, inner, hot }
    }

    /// Asks for what comes first at a leaf.
    fn at_leaf(&mut self, task: &mut Task, at: LeafAt, turn: &mut Turn<'_>) -> Next {
        match turn.operation {
            Operation::Read { key } => {
                let near = (0..HOP).map(|i| (home(key) + i) % SPAN);
                match self.hot[turn.compute].find(at.leaf, near, fingerprint(key)) {
                    Some(entry) => {
                        let bytes = run_bytes(self.sizes, entry, 1);
                        let landed = turn.trip.read(entry_at(at.leaf, entry), ENTRY, bytes);
                        task.stage = Stage::Guess { at, entry, landed };
                    }
                    None => self.ask_neighbourhood(task, key, (at, HOP), turn),
                }
            }
            Operation::Update { .. } | Operation::Insert { .. } => {
                if turn.claim(at.leaf) == Claim::Waits {
                    task.stage = Stage::Turn(at);
                    return Next::Waits;
                }
                let landed = turn.trip.compare_swap(at.leaf, (0, LOCK), LOCK);
                task.stage = Stage::Lock { at, landed };
            }
            Operation::Scan { .. } => {
                self.inner.name_leaves(&mut task.scan, at, self.per_leaf, turn.compute);
                self.ask_leaves(task, turn);
            }
        }
        Next::Trip
    }

    /// Asks for `wanted` entries from a key's home on.
    fn ask_neighbourhood(
        &self,
        task: &mut Task,
        key: u64,
        (at, wanted): (LeafAt, usize),
        turn: &mut Turn<'_>,
    ) {
        let first = home(key);
        let count = wanted.min(SPAN - first);
        let bytes = neighbourhood_bytes(self.sizes, first, count);
        let mut parts = [turn.trip.read(entry_at(at.leaf, first), count * ENTRY, bytes), Landed::default()];
        let next = turn.trip.and_read(at.leaf + 1, 2);
        if count < wanted {
            let wrapped = wanted - count;
            parts[1] =
                turn.trip.read(entry_at(at.leaf, 0), wrapped * ENTRY, run_bytes(self.sizes, 0, wrapped));
        }
        task.stage = Stage::Neighbourhood { at, parts, next };
    }

    /// Looks for the key in its neighbourhood.
    fn take_neighbourhood(
        &mut self,
        task: &mut Task,
        at: LeafAt,
        (parts, next): ([Landed; 2], Landed),
        turn: &mut Turn<'_>,
    ) -> Next {
        let (operation, key) = (turn.operation, turn.operation.key());
        let entries = parts.iter().flat_map(|part| turn.landed.words(*part).as_chunks::<ENTRY>().0);
        let found = entries.enumerate().find(|(_, [used, k, _])| *used != 0 && *k == key);
        let entry = found.map(|(i, [.., value])| ((home(key) + i) % SPAN, *value));
        let &[right, high] = turn.landed.words(next) else { return Next::Trip };
        let has_moved = key >= high && high != u64::MAX;
        match (operation, entry) {
            (Operation::Read { .. }, Some((entry, value))) => {
                self.hot[turn.compute].note(at.leaf, entry, fingerprint(key));
                return Next::Done(Answer::Value(Some(value)));
            }
            (Operation::Read { .. }, None) => {
                // The copy is old if the leaf has another right neighbour than it says.
                let is_old = at.is_copied && at.next.is_some_and(|said| said != right);
                if has_moved || is_old {
                    return self.go_right(task, (at, right), turn);
                }
                return Next::Done(Answer::Value(None));
            }
            (_, None) if has_moved => {
                turn.unlock(at.leaf, 0, 8);
                return self.go_right(task, (at, right), turn);
            }
            (Operation::Insert { value, .. }, None) => {
                return self.insert(task, at, (key, value), turn);
            }
            (Operation::Update { value, .. } | Operation::Insert { value, .. }, Some((entry, _))) => {
                turn.trip.write(entry_at(at.leaf, entry) + 2, &[value], run_bytes(self.sizes, entry, 1));
            }
            (Operation::Update { .. } | Operation::Scan { .. }, _) => {}
        }
        // The word of the lock, with vacancies and the greatest key's place.
        turn.unlock(at.leaf, 0, 8);
        task.stage = Stage::Written { is_there: entry.is_some() };
        Next::Trip
    }

    fn go_right(&mut self, task: &mut Task, from: (LeafAt, Address), turn: &mut Turn<'_>) -> Next {
        let seek = self.inner.seek_again(turn.operation.key(), from, turn);
        self.go_on(task, seek, turn)
    }

    /// Puts a record into a leaf whose lock is held, and moves others for it; WRITEs from its home,
    /// which has the hop bitmap, to the last entry that changes.
    fn insert(&self, task: &mut Task, at: LeafAt, (key, value): (u64, u64), turn: &mut Turn<'_>) -> Next {
        let leaf = turn.memory.words(at.leaf, LEAF);
        let Some(changed) = with_record(leaf, (key, value)) else {
            task.stage =
                Stage::Full { at, landed: turn.trip.read(at.leaf, LEAF, layout::leaf_bytes(self.sizes)) };
            return Next::Trip;
        };
        let first = home(key);
        let differs = |i: &usize| {
            let entry = HEAD + (first + i) % SPAN * ENTRY;
            changed[entry..entry + ENTRY] != leaf[entry..entry + ENTRY]
        };
        let count = (0..SPAN).rev().find(differs).map_or(1, |last| last + 1);
        let runs = [(first, count.min(SPAN - first)), (0, (first + count).saturating_sub(SPAN))];
        for (first, count) in runs.into_iter().filter(|(_, count)| *count > 0) {
            let words = &changed[HEAD + first * ENTRY..][..count * ENTRY];
            turn.trip.write(entry_at(at.leaf, first), words, run_bytes(self.sizes, first, count));
        }
        turn.unlock(at.leaf, 0, 8);
        task.stage = Stage::Written { is_there: true };
        Next::Trip
    }

    /// WRITEs the right half of a full leaf with one record more.
    fn halve(&self, task: &mut Task, (at, leaf): (LeafAt, &[u64]), turn: &mut Turn<'_>) -> Next {
        let mut records: Vec<(u64, u64)> = records(leaf).map(|[_, key, value]| (key, value)).collect();
        records.push((turn.operation.key(), turn.operation.written().unwrap_or(0)));
        records.sort_unstable();
        let right = records.split_off(records.len() / 2);
        let middle = right[0].0;
        let sibling = turn.memory.allocate(LEAF, layout::leaf_bytes(self.sizes) as u64);
        let halves = (leaf_of(&right, leaf[1], leaf[2]), leaf_of(&records, sibling, middle));
        let (Some(right), Some(left)) = halves else {
            turn.unlock(at.leaf, 0, 8);
            task.stage = Stage::Written { is_there: false };
            return Next::Trip;
        };
        turn.trip.write(sibling, &right, layout::leaf_bytes(self.sizes));
        task.split = Split { left, sibling: (middle, sibling) };
        task.stage = Stage::Sibling(at.leaf);
        Next::Trip
    }

    fn go_on(&mut self, task: &mut Task, seek: Seek, turn: &mut Turn<'_>) -> Next {
        match seek {
            Seek::Leaf(at) => self.at_leaf(task, at, turn),
            Seek::Asked(asked) => {
                task.stage = Stage::Inner(asked);
                Next::Trip
            }
        }
    }
}

/// A leaf's used entries.
fn records(leaf: &[u64]) -> impl Iterator<Item = [u64; ENTRY]> {
    leaf[HEAD..].as_chunks::<ENTRY>().0.iter().copied().filter(|[used, ..]| *used != 0)
}

/// A leaf's words with one record more; `None` if there is no room.
fn with_record(leaf: &[u64], (key, value): (u64, u64)) -> Option<Vec<u64>> {
    let mut entries = [None; SPAN];
    for (entry, [used, key, _]) in entries.iter_mut().zip(leaf[HEAD..].as_chunks::<ENTRY>().0) {
        *entry = (*used != 0).then_some(*key);
    }
    layout::insert(&mut entries, key)?;
    let value_of = |wanted: u64| match wanted == key {
        true => value,
        false => records(leaf).find(|[_, key, _]| *key == wanted).map_or(0, |[.., value]| value),
    };
    Some(words_of(&entries, value_of, leaf[1], leaf[2]))
}

/// A leaf of these records, not locked; `None` if they do not fit.
fn leaf_of(records: &[(u64, u64)], next: Address, high: u64) -> Option<Vec<u64>> {
    let keys: Vec<u64> = records.iter().map(|(key, _)| *key).collect();
    let value_of =
        |wanted: u64| records.iter().find(|(key, _)| *key == wanted).map_or(0, |(_, value)| *value);
    Some(words_of(&place(&keys)?, value_of, next, high))
}

fn words_of(
    entries: &[Option<u64>; SPAN],
    value_of: impl Fn(u64) -> u64,
    next: Address,
    high: u64,
) -> Vec<u64> {
    let mut words = vec![0; LEAF];
    words[..HEAD].copy_from_slice(&[0, next, high]);
    for (words, key) in words[HEAD..].as_chunks_mut::<ENTRY>().0.iter_mut().zip(entries) {
        if let Some(key) = key {
            *words = [1, *key, value_of(*key)];
        }
    }
    words
}

fn entry_at(leaf: Address, entry: usize) -> Address {
    leaf + (HEAD + entry * ENTRY) as u64
}

impl Index for Chime {
    type Task = Task;

    fn step(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let (operation, key) = (turn.operation, task.scan.key_of(turn.operation));
        match task.stage {
            Stage::Begin => {
                task.scan.begin(operation);
                let seek = self.inner.seek(key, turn);
                self.go_on(task, seek, turn)
            }
            Stage::Inner(asked) => {
                let seek = self.inner.take(key, asked, turn);
                self.go_on(task, seek, turn)
            }
            Stage::Guess { at, entry, landed: words } => {
                let [used, found, value] = *turn.landed.words(words) else { return Next::Trip };
                if used != 0 && found == key {
                    self.hot[turn.compute].note(at.leaf, entry, fingerprint(key));
                    return Next::Done(Answer::Value(Some(value)));
                }
                self.ask_neighbourhood(task, key, (at, HOP), turn);
                Next::Trip
            }
            Stage::Neighbourhood { at, parts, next } => {
                self.take_neighbourhood(task, at, (parts, next), turn)
            }
            Stage::Turn(at) => self.at_leaf(task, at, turn),
            Stage::Lock { at, landed: old } => {
                if turn.landed.word(old) & LOCK != 0 {
                    return self.at_leaf(task, at, turn);
                }
                let wanted = match operation {
                    // The lock's word says which entries are vacant, and the lock is held.
                    Operation::Insert { .. } => {
                        let leaf = turn.memory.words(at.leaf, LEAF);
                        let vacant = |i: &usize| leaf[HEAD + (home(key) + i) % SPAN * ENTRY] == 0;
                        (0..SPAN).find(vacant).map_or(HOP, |distance| HOP.max(distance + 1))
                    }
                    _ => HOP,
                };
                self.ask_neighbourhood(task, key, (at, wanted), turn);
                Next::Trip
            }
            Stage::Full { at, landed: leaf } => self.halve(task, (at, turn.landed.words(leaf)), turn),
            Stage::Sibling(leaf) => {
                turn.trip.write(leaf, &task.split.left, layout::leaf_bytes(self.sizes));
                turn.has_unlocked();
                task.stage = Stage::Halved;
                Next::Trip
            }
            Stage::Halved => {
                task.growth = Some(self.inner.grow(task.split.sibling, turn));
                task.stage = Stage::Growing;
                Next::Trip
            }
            Stage::Leaves => self.take_leaves(task, turn),
            Stage::Growing => self.inner.grow_on(&mut task.growth, turn),
            Stage::Written { is_there } => Next::written(is_there),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let entries = self.hot.iter().map(HotEntries::capacity).max().unwrap_or(0);
        // The source's table that finds hot entries: 10⁶ × 16 × 8 bytes beside a buffer of 30 MB.
        let table = entries * 128_000_000 / (30_000_000 / hot_entries::ENTRY_BYTES);
        (self.inner.most_bytes() + entries * hot_entries::ENTRY_BYTES, table)
    }

    fn shares_work(&self) -> bool {
        true
    }
}
