//! CHIME: a B+ tree with hopscotch leaves and a buffer of hot entries. See this folder's `README.md`.

mod hot_entries;
mod layout;

use crate::Sizes;
use crate::bench::{Answer, Operation};
use crate::inner_nodes::{Asked, InnerNodes, LeafAt, Seek, Shape};
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Trip};
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
}

impl Options {
    /// The published ones: 30 MB of 100 MB for hot entries; leaves as full as a tree that grew has them.
    pub fn published(budget: u64) -> Self {
        Self { budget, hot_share: 0.3, fill: 0.65 }
    }
}

/// The tree, and what compute nodes keep.
#[derive(Debug)]
pub struct Chime {
    sizes: Sizes,
    inner: InnerNodes,
    hot: Vec<HotEntries>,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    operation: Option<Operation>,
    stage: Stage,
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
    /// The leaf's lock.
    Lock {
        at: LeafAt,
        landed: Landed,
    },
    /// The end of a write; whether the key was there.
    Written {
        is_there: bool,
    },
}

impl Chime {
    /// The tree over ascending keys with their first values, for so many compute nodes.
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
                memory.words_mut(*before, HEAD)[1] = at;
            }
            leaves.push((rest[0], at));
            rest = &rest[count..];
        }
        let hot_bytes = (options.budget as f64 * options.hot_share) as u64;
        let shape = Shape {
            span: SPAN,
            bytes: SPAN * (sizes.key + 9) + 60,
            cached_bytes: (SPAN * (sizes.key + 9) + 35 + 2 * sizes.key + 16) as u64,
            all_levels: true,
            reads_root: true,
        };
        let inner = InnerNodes::build(memory, shape, leaves, 1.0, compute_nodes, options.budget - hot_bytes);
        Self { sizes, inner, hot: (0..compute_nodes).map(|_| HotEntries::new(hot_bytes)).collect() }
    }

    /// Asks for what comes first at a leaf.
    fn at_leaf(
        &self,
        compute: usize,
        task: &mut Task,
        operation: Operation,
        at: LeafAt,
        trip: &mut Trip,
    ) -> Next {
        match operation {
            Operation::Read { key } => {
                let near = (0..HOP).map(|i| (home(key) + i) % SPAN);
                match self.hot[compute].find(at.leaf, near, fingerprint(key)) {
                    Some(entry) => {
                        let bytes = run_bytes(self.sizes, entry, 1);
                        let landed = trip.read(entry_at(at.leaf, entry), ENTRY, bytes);
                        task.stage = Stage::Guess { at, entry, landed };
                    }
                    None => self.ask_neighbourhood(task, key, at, trip),
                }
            }
            Operation::Update { .. } => {
                let landed = trip.compare_swap(at.leaf, (0, LOCK), LOCK);
                task.stage = Stage::Lock { at, landed };
            }
        }
        Next::Trip
    }

    fn ask_neighbourhood(&self, task: &mut Task, key: u64, at: LeafAt, trip: &mut Trip) {
        let first = home(key);
        let count = HOP.min(SPAN - first);
        let bytes = neighbourhood_bytes(self.sizes, first, count);
        let mut parts = [trip.read(entry_at(at.leaf, first), count * ENTRY, bytes), Landed::default()];
        let next = trip.and_read(at.leaf + 1, 1);
        if count < HOP {
            let wrapped = HOP - count;
            parts[1] = trip.read(entry_at(at.leaf, 0), wrapped * ENTRY, run_bytes(self.sizes, 0, wrapped));
        }
        task.stage = Stage::Neighbourhood { at, parts, next };
    }

    /// Looks for the key in its neighbourhood.
    fn take_neighbourhood(
        &mut self,
        compute: usize,
        task: &mut Task,
        (operation, at): (Operation, LeafAt),
        (parts, next, landed): ([Landed; 2], Landed, &Trip),
        (trip, memory): (&mut Trip, &Memory),
    ) -> Next {
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        let entries = parts.iter().flat_map(|part| landed.words(*part).as_chunks::<ENTRY>().0);
        let found = entries.enumerate().find(|(_, [used, k, _])| *used != 0 && *k == key);
        let entry = found.map(|(i, [.., value])| ((home(key) + i) % SPAN, *value));
        match (operation, entry) {
            (Operation::Read { .. }, Some((entry, value))) => {
                self.hot[compute].note(at.leaf, entry, fingerprint(key));
                Next::Done(Answer::Value(Some(value)))
            }
            (Operation::Read { .. }, None) => {
                // The copy is old if the leaf has another right neighbour than it says.
                if at.is_copied && at.next.is_some_and(|said| said != landed.word(next)) {
                    self.inner.drop_copy(compute, key);
                    return self.seek(compute, task, operation, trip, memory);
                }
                Next::Done(Answer::Value(None))
            }
            (Operation::Update { value, .. }, entry) => {
                if let Some((entry, _)) = entry {
                    trip.write(entry_at(at.leaf, entry) + 2, &[value], run_bytes(self.sizes, entry, 1));
                }
                // The word of the lock, with vacancies and the greatest key's place.
                trip.write(at.leaf, &[0], 8);
                task.stage = Stage::Written { is_there: entry.is_some() };
                Next::Trip
            }
        }
    }

    fn seek(
        &mut self,
        compute: usize,
        task: &mut Task,
        operation: Operation,
        trip: &mut Trip,
        memory: &Memory,
    ) -> Next {
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        let seek = self.inner.seek(compute, key, trip, memory);
        self.go_on(compute, task, operation, seek, trip)
    }

    fn go_on(
        &self,
        compute: usize,
        task: &mut Task,
        operation: Operation,
        seek: Seek,
        trip: &mut Trip,
    ) -> Next {
        match seek {
            Seek::Leaf(at) => self.at_leaf(compute, task, operation, at, trip),
            Seek::Asked(asked) => {
                task.stage = Stage::Inner(asked);
                Next::Trip
            }
        }
    }
}

fn entry_at(leaf: Address, entry: usize) -> Address {
    leaf + (HEAD + entry * ENTRY) as u64
}

impl Index for Chime {
    type Task = Task;

    const DELEGATES: bool = true;

    fn begin(&mut self, _: usize, task: &mut Task, operation: Operation) {
        *task = Task { operation: Some(operation), stage: Stage::Begin };
    }

    fn step(
        &mut self,
        compute: usize,
        task: &mut Task,
        landed: &Trip,
        trip: &mut Trip,
        memory: &mut Memory,
    ) -> Next {
        let Some(operation) = task.operation else {
            return Next::Done(Answer::Failed("there is nothing to do".into()));
        };
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        match task.stage {
            Stage::Begin => self.seek(compute, task, operation, trip, memory),
            Stage::Inner(asked) => {
                let seek = self.inner.take(compute, key, asked, landed, trip);
                self.go_on(compute, task, operation, seek, trip)
            }
            Stage::Guess { at, entry, landed: words } => {
                let [used, found, value] = *landed.words(words) else { return Next::Trip };
                if used != 0 && found == key {
                    self.hot[compute].note(at.leaf, entry, fingerprint(key));
                    return Next::Done(Answer::Value(Some(value)));
                }
                self.ask_neighbourhood(task, key, at, trip);
                Next::Trip
            }
            Stage::Neighbourhood { at, parts, next } => {
                let came = (parts, next, landed);
                self.take_neighbourhood(compute, task, (operation, at), came, (trip, memory))
            }
            Stage::Lock { at, landed: old } => {
                if landed.word(old) & LOCK != 0 {
                    return self.at_leaf(compute, task, operation, at, trip);
                }
                self.ask_neighbourhood(task, key, at, trip);
                Next::Trip
            }
            Stage::Written { is_there: true } => Next::Done(Answer::Written),
            Stage::Written { is_there: false } => Next::Done(Answer::Failed("there is no such key".into())),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let entries = self.hot.iter().map(HotEntries::capacity).max().unwrap_or(0);
        // The source's table that finds hot entries: 10⁶ × 16 × 8 bytes beside a buffer of 30 MB.
        let table = entries * 128_000_000 / (30_000_000 / hot_entries::ENTRY_BYTES);
        (self.inner.most_bytes() + entries * hot_entries::ENTRY_BYTES, table)
    }
}
