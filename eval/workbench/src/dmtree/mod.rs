//! DMTree: a B+ tree whose leaves' fingerprints lie on compute nodes. See this folder's `README.md`.

use crate::bench::{Answer, Operation};
use crate::inner_nodes::{Asked, InnerNodes, Seek, Shape};
use crate::kept::Kept;
use crate::nic::Target;
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Trip};
use crate::{Sizes, scatter};

/// How DMTree is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep, of inner nodes and of other nodes' fingerprints.
    pub budget: u64,
    /// The part of it for fingerprints.
    pub fingerprint_share: f64,
    /// Share of a leaf that loading fills.
    pub fill: f64,
}

impl Options {
    /// The published ones: half and half, as in the artifact; leaves as full as a tree that grew has them.
    pub fn published(budget: u64) -> Self {
        Self { budget, fingerprint_share: 0.5, fill: 0.69 }
    }
}

/// Records of a leaf, and children of an inner node.
const SPAN: usize = 32;
/// Words of a leaf's fingerprints: lock, leaf, and 32 of a byte each.
const TABLE: usize = 2 + SPAN / 8;
/// Bytes of a leaf's fingerprints: they, and what comes with them.
const TABLE_BYTES: usize = SPAN + 24;
/// Words of a record: key and value.
const RECORD: usize = 2;
const LOCK: u64 = 1;

/// Bytes of an inner node's record.
const fn child_bytes(sizes: Sizes) -> usize {
    28 + sizes.key
}

/// The tree, and what compute nodes keep.
#[derive(Debug)]
pub struct DmTree {
    sizes: Sizes,
    inner: InnerNodes,
    /// Copies of fingerprints by where they lie.
    copies: Vec<Kept<[u64; TABLE]>>,
    /// Bytes of the fingerprints that a compute node owns.
    owned: u64,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    operation: Option<Operation>,
    stage: Stage,
    /// Where the leaf's fingerprints lie.
    table: Address,
    leaf: Address,
    /// Whether what is gone by comes from the fingerprints' owner.
    is_fresh: bool,
    /// Entries of the leaf that the key may be in, a bit each.
    left: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Begin,
    Inner(Asked),
    Lock(Landed),
    Table(Landed),
    Record {
        entry: u32,
        landed: Landed,
    },
    Written,
    Unlocked {
        is_there: bool,
    },
}

fn fingerprint(key: u64) -> u8 {
    // Never 0, which is that of a free entry.
    (scatter(key) % 255 + 1) as u8
}

/// Entries whose fingerprint is that of the key, a bit each.
fn matching(table: &[u64], key: u64) -> u32 {
    let (wanted, mut found) = (fingerprint(key), 0);
    let bytes = table[2..].iter().flat_map(|word| word.to_le_bytes());
    for (entry, byte) in bytes.enumerate() {
        found |= u32::from(byte == wanted) << entry;
    }
    found
}

impl DmTree {
    /// The tree over ascending keys with their first values, for so many compute nodes.
    pub fn new(
        memory: &mut Memory,
        keys: &[u64],
        sizes: Sizes,
        compute_nodes: u16,
        options: &Options,
    ) -> Self {
        let per_leaf = ((SPAN as f64 * options.fill) as usize).clamp(1, SPAN);
        let record_bytes = 8 + sizes.key + sizes.value;
        let mut tables: Vec<(u64, Address)> = Vec::with_capacity(keys.len().div_ceil(per_leaf));
        for (i, part) in keys.chunks(per_leaf).enumerate() {
            let leaf = memory.allocate(SPAN * RECORD, (SPAN * record_bytes) as u64);
            let records = memory.words_mut(leaf, SPAN * RECORD).as_chunks_mut::<RECORD>().0;
            records.iter_mut().zip(part).for_each(|(record, key)| *record = [*key, first_value(*key)]);
            let at = memory.allocate_on_compute(i % usize::from(compute_nodes.max(1)), TABLE);
            let mut bytes = [0; SPAN];
            bytes.iter_mut().zip(part).for_each(|(byte, key)| *byte = fingerprint(*key));
            let table = memory.words_mut(at, TABLE);
            table[1] = leaf;
            let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            table[2..].iter_mut().zip(words).for_each(|(to, from)| *to = from);
            tables.push((part[0], at));
        }
        let shape = Shape {
            span: SPAN,
            bytes: SPAN * child_bytes(sizes) + 83,
            cached_bytes: (SPAN * child_bytes(sizes)) as u64,
            all_levels: false,
            reads_root: false,
        };
        let owned = (tables.len().div_ceil(compute_nodes.max(1).into()) * TABLE_BYTES) as u64;
        let of_copies = (options.budget as f64 * options.fingerprint_share) as u64;
        let inner = InnerNodes::build(memory, shape, tables, 1.0, compute_nodes, options.budget - of_copies);
        let copies = |seed| Kept::new(of_copies, TABLE_BYTES as u64, u64::from(seed));
        Self { sizes, inner, copies: (0..compute_nodes).map(copies).collect(), owned }
    }

    fn go_on(
        &mut self,
        compute: usize,
        task: &mut Task,
        (operation, seek): (Operation, Seek),
        (trip, memory): (&mut Trip, &Memory),
    ) -> Next {
        match (seek, operation) {
            (Seek::Asked(asked), _) => task.stage = Stage::Inner(asked),
            (Seek::Leaf(at), Operation::Read { key }) => {
                task.table = at.leaf;
                if let Some(copy) = self.copies[compute].get(at.leaf).copied() {
                    (task.is_fresh, task.leaf, task.left) = (false, copy[1], matching(&copy, key));
                    return self.next_record(compute, task, operation, (trip, memory));
                }
                return self.ask_table(compute, task, operation, (trip, memory));
            }
            (Seek::Leaf(at), Operation::Update { .. }) => {
                task.table = at.leaf;
                task.stage = Stage::Lock(trip.compare_swap(at.leaf, (0, LOCK), LOCK));
            }
        }
        Next::Trip
    }

    /// Gets the fingerprints from their owner, which may be this compute node.
    fn ask_table(
        &mut self,
        compute: usize,
        task: &mut Task,
        operation: Operation,
        (trip, memory): (&mut Trip, &Memory),
    ) -> Next {
        if Memory::node_of(task.table) == Target::Compute(compute as u16) {
            let table = memory.words(task.table, TABLE).to_vec();
            return self.take_table(compute, task, operation, &table, (trip, memory));
        }
        task.stage = Stage::Table(trip.read(task.table, TABLE, TABLE_BYTES));
        Next::Trip
    }

    fn take_table(
        &mut self,
        compute: usize,
        task: &mut Task,
        operation: Operation,
        table: &[u64],
        (trip, memory): (&mut Trip, &Memory),
    ) -> Next {
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        if let Some(table) = table.first_chunk::<TABLE>()
            && Memory::node_of(task.table) != Target::Compute(compute as u16)
        {
            self.copies[compute].keep(task.table, *table);
        }
        (task.is_fresh, task.leaf, task.left) = (true, table[1], matching(table, key));
        self.next_record(compute, task, operation, (trip, memory))
    }

    /// Asks for the next record with the key's fingerprint.
    fn next_record(
        &mut self,
        compute: usize,
        task: &mut Task,
        operation: Operation,
        (trip, memory): (&mut Trip, &Memory),
    ) -> Next {
        if task.left != 0 {
            let entry = task.left.trailing_zeros();
            task.left &= task.left - 1;
            let at = task.leaf + u64::from(entry) * RECORD as u64;
            task.stage = Stage::Record { entry, landed: trip.read(at, RECORD, self.record_bytes()) };
            return Next::Trip;
        }
        match operation {
            Operation::Read { .. } if task.is_fresh => Next::Done(Answer::Value(None)),
            // A copy's word for it that the key is not there is not enough.
            Operation::Read { .. } => self.ask_table(compute, task, operation, (trip, memory)),
            Operation::Update { .. } => {
                trip.write(task.table, &[0], 8);
                task.stage = Stage::Unlocked { is_there: false };
                Next::Trip
            }
        }
    }

    fn record_bytes(&self) -> usize {
        8 + self.sizes.key + self.sizes.value
    }
}

impl Index for DmTree {
    type Task = Task;

    const DELEGATES: bool = true;

    fn begin(&mut self, _: usize, task: &mut Task, operation: Operation) {
        *task = Task { operation: Some(operation), ..Task::default() };
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
            Stage::Begin => {
                let seek = self.inner.seek(compute, key, trip, memory);
                self.go_on(compute, task, (operation, seek), (trip, memory))
            }
            Stage::Inner(asked) => {
                let seek = self.inner.take(compute, key, asked, landed, trip);
                self.go_on(compute, task, (operation, seek), (trip, memory))
            }
            Stage::Lock(old) => {
                task.stage = match landed.word(old) & LOCK == 0 {
                    // Among atomics and WRITEs of others the owner's own table is looked at through its card, too.
                    true => Stage::Table(trip.read(task.table, TABLE, TABLE_BYTES)),
                    false => Stage::Lock(trip.compare_swap(task.table, (0, LOCK), LOCK)),
                };
                Next::Trip
            }
            Stage::Table(table) => {
                self.take_table(compute, task, operation, landed.words(table), (trip, memory))
            }
            Stage::Record { entry, landed: record } => match (landed.words(record), operation) {
                (&[found, value], Operation::Read { .. }) if found == key => {
                    Next::Done(Answer::Value(Some(value)))
                }
                (&[found, _], Operation::Update { value, .. }) if found == key => {
                    let at = task.leaf + u64::from(entry) * RECORD as u64 + 1;
                    trip.write(at, &[value], self.record_bytes());
                    task.stage = Stage::Written;
                    Next::Trip
                }
                _ => self.next_record(compute, task, operation, (trip, memory)),
            },
            Stage::Written => {
                trip.write(task.table, &[0], 8);
                task.stage = Stage::Unlocked { is_there: true };
                Next::Trip
            }
            Stage::Unlocked { is_there: true } => Next::Done(Answer::Written),
            Stage::Unlocked { is_there: false } => Next::Done(Answer::Failed("there is no such key".into())),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let copies = self.copies.iter().map(Kept::most_bytes).max().unwrap_or(0);
        (self.inner.most_bytes() + copies, self.owned)
    }
}
