//! The common part of plain and filtered range reads: FPCache's segments without their
//! fingerprints, in simulated memory.
//!
//! Compute nodes keep the directory of segments, a filter if there is one, and of the rest of their
//! budget hot entries if they are to. A lookup READs whole records: those of its key's window, or
//! of the pages of it that the filter names. Memory nodes alone change segments, when they are
//! called; a full window has its segment replaced, and a client that READs the old one finds that
//! it moved, and READs the descriptors of its successors.

mod scan;
mod scanning;
mod store;
mod task;

use fpcache::key_space::{ByteKeys, KeySpace, U64Keys};
use fpcache::layout::{RecordShape, RecordToken, TableParameters};
use fpcache::message::{Sent, WriteBatch, WriteKind, WriteOperation};
use fpcache_index::{Directory, SegmentOptions, Window};

use self::store::{LIVE, MOVED, Put, SLOT_WORDS, Segment, Store, Successors, from_descriptors};
pub use self::task::Task;
use self::task::{Stage, ask_successors};
use crate::bench::{Answer, Operation};
use crate::kept::Kept;
use crate::nic::{Picos, Target, Verb};
use crate::words::{Address, Index, Memory, Next, Turn};
use crate::{BuildError, Sizes, scatter};

/// Items that are in it, and few others.
pub trait Filter: Clone {
    /// Bits for each key that the FPCache paper says it has (§4.4.2).
    const PUBLISHED_BITS: f64;

    /// An empty one with `bits_per_key` bits for each of `keys` keys; `None` where nothing is
    /// filtered.
    fn of(keys: usize, bits_per_key: f64) -> Option<Self>;

    /// Whether an item may have been added. Never wrong about one that was.
    fn contains(&self, item: u64) -> bool;

    /// Adds an item whose bits are as good as random; once more than once changes nothing.
    fn add(&mut self, item: u64);

    /// Bytes it takes.
    fn bytes(&self) -> u64;
}

/// How segments are made and read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep: the directory, the filter, and hot entries of what is left.
    pub budget: u64,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Least error bound that is stored with a segment: with 0 windows are as wide as the loaded
    /// keys need, as FPCache's.
    pub least_epsilon: u32,
    /// Share of slots that are filled.
    pub fill: f64,
    /// Slots of a page, of which the filter says whether a key is in it; with none it says whether
    /// a key is in the table, and whole windows are READ.
    pub page: Option<u32>,
    /// Bits of the filter for each key, of those that are published.
    pub bits_share: f64,
    /// Whether what is left of the budget is for entries that say where hot keys lie.
    pub keeps_hot: bool,
    /// A core's time for a put.
    pub put: Picos,
}

impl Options {
    /// As FPCache's in the paper: an error bound of 16, 85 % of the slots filled. Nothing but the
    /// directory is kept.
    pub const fn published(budget: u64) -> Self {
        let put = crate::fpcache::Options::PUT;
        Self {
            budget,
            epsilon: 16,
            least_epsilon: 0,
            fill: 0.85,
            page: None,
            bits_share: 1.0,
            keeps_hot: false,
            put,
        }
    }
}

/// Bytes that a compute node keeps of a segment: separator, descriptor, its share of the
/// directory's pages, as FPCache's does.
const SEGMENT_BYTES: u64 = 42;
/// Bytes of a hot entry: a hash of the key and an address.
const HOT_BYTES: u64 = 16;
/// Bytes that tell another compute node's filter about a key.
const TOLD_BYTES: usize = 16;
/// Bytes of the ring into which another compute node writes that, of 64 such messages.
const RING_BYTES: u64 = 64 * TOLD_BYTES as u64;
/// Bytes of the reply to a put.
const REPLY_BYTES: u32 = 32;

/// Of a reply to a put.
const DONE: u64 = 0;
const ABSENT: u64 = 1;

/// What a compute node has.
#[derive(Debug)]
struct Node<F> {
    directory: Directory<u64, Segment>,
    filter: Option<F>,
    hot: Kept<Address>,
}

/// Segments, their memory nodes' processors, and what compute nodes keep.
#[derive(Debug)]
pub struct Segmented<F> {
    store: Store,
    nodes: Vec<Node<F>>,
    options: Options,
    put_bytes: usize,
}

/// What a filter has of a key that may be anywhere in its window.
fn anywhere(key: u64) -> u64 {
    scatter(key)
}

/// What a filter has of a key that was loaded into this page of its segment.
fn in_page(key: u64, page: u32) -> u64 {
    scatter(scatter(key).wrapping_add((u64::from(page) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

impl<F: Filter> Segmented<F> {
    /// Segments of ascending keys with their first values, for `compute_nodes` compute nodes, each
    /// with a filter of its own.
    ///
    /// # Errors
    /// If an option is out of range, or directory and filter do not fit the budget.
    pub fn new(
        memory: &mut Memory,
        keys: &[u64],
        sizes: Sizes,
        compute_nodes: u16,
        options: &Options,
    ) -> Result<Self, BuildError> {
        let mut filter = F::of(keys.len(), options.bits_share * F::PUBLISHED_BITS);
        let shape = RecordShape::fixed(sizes.key as u16, sizes.value as u32);
        let parameters = TableParameters { shape, ..TableParameters::default() };
        let slot_bytes = parameters.geometry().slot_bytes;
        let of_index = SegmentOptions {
            max_slots: parameters.max_slots,
            epsilon: options.epsilon,
            least_epsilon: options.least_epsilon,
            fill: options.fill,
            ..SegmentOptions::default()
        };
        let page = options.page.map(|slots| slots.max(1));
        let options = Options { page, ..*options };
        let store = Store::new(memory, keys, &of_index, slot_bytes, |key, slot| {
            if let Some(filter) = &mut filter {
                filter.add(page.map_or(anywhere(key), |slots| in_page(key, slot / slots)));
            }
        })?;
        let of_directory = SEGMENT_BYTES * store.directory.len() as u64;
        let of_filter = filter.as_ref().map_or(0, Filter::bytes);
        let Some(left) = options.budget.checked_sub(of_directory + of_filter) else {
            return Err(BuildError(format!(
                "the segments' directory takes {of_directory} bytes and the filter {of_filter}, more than the budget of {}",
                options.budget
            )));
        };
        let of_hot = if options.keeps_hot { left } else { 0 };
        let node = |seed: u16| Node {
            directory: store.directory.clone(),
            filter: filter.clone(),
            hot: Kept::new(of_hot, HOT_BYTES, seed.into()),
        };
        let nodes = (0..compute_nodes).map(node).collect();
        Ok(Self { store, nodes, options, put_bytes: put_bytes(sizes) })
    }

    /// Asks for what the key may be in: nothing, if the filter knows that it is nowhere.
    fn look(&mut self, task: &mut Task, key: u64, turn: &mut Turn<'_>) -> Next {
        let slot_bytes = self.store.slot_bytes;
        let node = &mut self.nodes[turn.compute];
        if let Some(at) = node.hot.get(key).copied() {
            task.stage = Stage::Hot(turn.trip.read(at, SLOT_WORDS, slot_bytes));
            return Next::Trip;
        }
        self.look_in_window(task, key, turn)
    }

    fn look_in_window(&self, task: &mut Task, key: u64, turn: &mut Turn<'_>) -> Next {
        let node = &self.nodes[turn.compute];
        let Some(segment) = node.directory.find(&key).copied() else {
            return Next::Done(Answer::Value(None));
        };
        task.runs.clear();
        for Window { first, last } in self.parts(node, key, &segment) {
            let (at, slots) = (segment.slot(first), (last + 1 - first) as usize);
            task.runs.push((at, turn.trip.read(at, SLOT_WORDS * slots, slots * self.store.slot_bytes)));
        }
        if task.runs.is_empty() {
            return Next::Done(Answer::Value(None));
        }
        task.stage = Stage::Slots(segment.at);
        Next::Trip
    }

    /// The parts of a key's window that it may be in, neighbours joined.
    fn parts(&self, node: &Node<F>, key: u64, segment: &Segment) -> Vec<Window> {
        let window = segment.model.window(key);
        let Some(filter) = &node.filter else { return vec![window] };
        if filter.contains(anywhere(key)) {
            return vec![window];
        }
        match self.options.page {
            None => Vec::new(),
            // The filter does not know in which pages its keys are.
            Some(_) if !segment.is_loaded => vec![window],
            Some(slots) => {
                let mut parts: Vec<Window> = Vec::new();
                for page in window.first / slots..=window.last / slots {
                    if !filter.contains(in_page(key, page)) {
                        continue;
                    }
                    let (first, last) =
                        (window.first.max(page * slots), window.last.min(page * slots + slots - 1));
                    match parts.last_mut() {
                        Some(part) if part.last + 1 == first => part.last = last,
                        _ => parts.push(Window { first, last }),
                    }
                }
                parts
            }
        }
    }

    /// What the slots of a window's parts say.
    fn take_slots(&mut self, task: &mut Task, key: u64, turn: &mut Turn<'_>) -> Next {
        let Stage::Slots(segment) = task.stage else { return Next::Done(Answer::Value(None)) };
        for (at, run) in &task.runs {
            let slots = turn.landed.words(*run);
            if let Some(successors) = Successors::in_slots(slots) {
                return ask_successors(task, segment, successors, turn);
            }
            let slots = slots.as_chunks::<SLOT_WORDS>().0;
            let found = slots.iter().position(|[what, found, _]| *what == LIVE && *found == key);
            if let Some(slot) = found {
                self.nodes[turn.compute].hot.keep(key, at + (SLOT_WORDS * slot) as u64);
                return Next::Done(Answer::Value(Some(slots[slot][2])));
            }
        }
        Next::Done(Answer::Value(None))
    }

    /// Takes the successors of a segment into the directory, unless another client of the node has.
    fn learn(&mut self, (compute, key): (usize, u64), old: Address, descriptors: &[u64]) {
        let directory = &mut self.nodes[compute].directory;
        let Some(located) = directory.locate(&key) else { return };
        if located.entry.at == old {
            let (start, end) = (located.start, located.end);
            let replaced = directory.replace(&start, end.as_ref(), &from_descriptors(descriptors));
            debug_assert_eq!(replaced, Ok(1), "successors have the range of what they succeed");
        }
    }

    /// Begins an insert: every other compute node's filter has the key before any can find it.
    fn tell(&mut self, task: &mut Task, key: u64, turn: &mut Turn<'_>) -> bool {
        let Some(filter) = &mut self.nodes[turn.compute].filter else { return false };
        filter.add(anywhere(key));
        for other in (0..self.nodes.len()).filter(|other| *other != turn.compute) {
            turn.trip.tell(Target::Compute(other as u16), Verb::Write, &[key], TOLD_BYTES);
        }
        task.stage = Stage::Told;
        self.nodes.len() > 1
    }

    /// Calls the memory node of the key's segment.
    fn call(&self, task: &mut Task, operation: Operation, turn: &mut Turn<'_>) -> Next {
        let (key, value) = (operation.key(), operation.written().unwrap_or(0));
        let Some(segment) = self.nodes[turn.compute].directory.find(&key) else {
            return Next::Done(Answer::Failed("there is no segment".into()));
        };
        let verb = Verb::Call { service: self.options.put, reply: REPLY_BYTES, core: None };
        let inserts = u64::from(matches!(operation, Operation::Insert { .. }));
        let words = [key, value, segment.at, inserts];
        let landed = turn.trip.tell(Memory::node_of(segment.at), verb, &words, self.put_bytes);
        task.stage = Stage::Put(segment.at, landed);
        Next::Trip
    }

    fn begin_again(&mut self, task: &mut Task, operation: Operation, turn: &mut Turn<'_>) -> Next {
        match operation {
            Operation::Read { key } => self.look_in_window(task, key, turn),
            Operation::Update { .. } | Operation::Insert { .. } => self.call(task, operation, turn),
            Operation::Scan { .. } => self.ask_scan(task, turn),
        }
    }
}

impl<F: Filter> Index for Segmented<F> {
    type Task = Task;

    fn clear(task: &mut Task) {
        task.stage = Stage::Begin;
    }

    fn step(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let (operation, key) = (turn.operation, task.scan.key_of(turn.operation));
        match task.stage {
            Stage::Begin => match operation {
                Operation::Scan { .. } => {
                    task.scan.begin(operation);
                    self.ask_scan(task, turn)
                }
                Operation::Read { key } => self.look(task, key, turn),
                Operation::Insert { .. } if self.tell(task, key, turn) => Next::Trip,
                Operation::Update { .. } | Operation::Insert { .. } => self.call(task, operation, turn),
            },
            Stage::Told => self.call(task, operation, turn),
            Stage::Hot(slot) => match *turn.landed.words(slot) {
                [LIVE, found, value] if found == key => Next::Done(Answer::Value(Some(value))),
                // Its segment was replaced: the directory says by what, or the window will.
                _ => self.look_in_window(task, key, turn),
            },
            Stage::Stretches => self.take_scan(task, turn),
            Stage::Slots(_) => self.take_slots(task, key, turn),
            Stage::Successors(old, descriptors) => {
                self.learn((turn.compute, key), old, turn.landed.words(descriptors));
                self.begin_again(task, operation, turn)
            }
            Stage::Put(segment, reply) => match *turn.landed.words(reply) {
                [DONE, ..] => Next::Done(Answer::Written),
                [MOVED, at, count, ..] => {
                    ask_successors(task, segment, Successors { at, count: count as usize }, turn)
                }
                _ => Next::Done(Answer::Absent),
            },
        }
    }

    fn receive(&mut self, to: Target, words: &mut [u64], memory: &mut Memory) {
        match (to, words) {
            (Target::Compute(node), [key]) => {
                if let Some(filter) = &mut self.nodes[usize::from(node)].filter {
                    filter.add(anywhere(*key));
                }
            }
            (Target::Memory(_), words @ [_, _, _, _]) => {
                let put = self.store.put(memory, (words[0], words[1]), words[2], words[3] != 0);
                let [status, at, count] = match put {
                    Put::Done => [DONE, 0, 0],
                    Put::Absent => [ABSENT, 0, 0],
                    Put::Moved(Successors { at, count }) => [MOVED, at, count as u64],
                };
                words[..3].copy_from_slice(&[status, at, count]);
            }
            _ => {}
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let of_node = |node: &Node<F>| {
            let filter = node.filter.as_ref().map_or(0, Filter::bytes);
            SEGMENT_BYTES * node.directory.len() as u64 + filter + node.hot.most_bytes()
        };
        let has_filter = self.nodes.first().is_some_and(|node| node.filter.is_some());
        // The rings that others write into.
        let rings = if has_filter { self.nodes.len().saturating_sub(1) as u64 * RING_BYTES } else { 0 };
        (self.nodes.iter().map(of_node).max().unwrap_or(0), rings)
    }
}

/// Bytes of a request to put one record, as FPCache's clients send it.
fn put_bytes(sizes: Sizes) -> usize {
    fn of<K: KeySpace>(key: K::Owned, value: usize) -> usize {
        let mut batch = WriteBatch::default();
        batch.push::<K>(&WriteOperation {
            kind: WriteKind::Update,
            key,
            hint: None,
            expected: RecordToken::default(),
            value: Sent::Here(&vec![0; value]),
        });
        let mut request = Vec::new();
        batch.request(1, 1, false).encode::<K>(0, &mut request);
        request.len()
    }
    match sizes.key {
        8 => of::<U64Keys>(0, sizes.value),
        bytes => of::<ByteKeys>(vec![0; bytes], sizes.value),
    }
}

/// What filters are tested by: of what was added nothing is missed.
#[cfg(test)]
pub(crate) fn misses_nothing(filter: &mut impl Filter, items: &[u64]) {
    for (i, item) in items.iter().enumerate() {
        filter.add(*item);
        assert!(items[..=i].iter().all(|added| filter.contains(*added)));
    }
}
