//! DMTree: a B+ tree whose leaves' fingerprints lie on compute nodes. See this folder's
//! `README.md`.

mod scan;
mod split;

use crate::bench::{Answer, Operation};
use crate::inner_nodes::{Asked, Growth, Inner, InnerNodes, LeafAt, Scanning, Seek, Shape};
use crate::kept::Kept;
use crate::local_locks::Claim;
use crate::nic::Target;
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Turn};
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
    /// The levels above the leaves.
    pub inner: Inner,
}

impl Options {
    /// The published ones: half and half, as in the artifact; leaves as full as a tree that grew
    /// has them; inner nodes as wide as leaves, of which the lowest are kept.
    pub fn published(budget: u64) -> Self {
        let inner = Inner { span: SPAN, all_levels: false };
        Self { budget, fingerprint_share: 0.5, fill: 0.69, inner }
    }
}

/// Records of a leaf, and children of an inner node unless told otherwise.
const SPAN: usize = 32;
/// Words before a leaf's fingerprints: lock, leaf, the first key that is not its own, and the
/// fingerprints of the leaf after it.
const HEAD: usize = 4;
/// Words of them with the fingerprints, a byte each.
const TABLE: usize = HEAD + SPAN / 8;
/// Bytes of a leaf's fingerprints: they, and what comes with them.
const TABLE_BYTES: usize = SPAN + 24;
/// Words of a record: key, value, and whether there is one, which is in the 8 bytes that a record
/// has beside these.
const RECORD: usize = 3;
/// The last of them, where there is one: any key may be that of a record.
const USED: u64 = 1;
/// Words of a leaf: its records, and after them what scans go by, the first key that is not its own
/// and the fingerprints of the leaf after it.
const LEAF: usize = SPAN * RECORD + 2;
/// Bytes of these two.
const FENCE_BYTES: usize = 16;
const LOCK: u64 = 1;

/// Bytes of an inner node's record.
const fn child_bytes(sizes: Sizes) -> usize {
    28 + sizes.key
}

/// The tree, and what compute nodes keep.
#[derive(Debug)]
pub struct DmTree {
    sizes: Sizes,
    /// Records of a leaf when it was loaded.
    per_leaf: f64,
    inner: InnerNodes,
    /// Copies of fingerprints by where they lie.
    copies: Vec<Kept<[u64; TABLE]>>,
    /// Bytes of the fingerprints that each compute node owns.
    owned: Vec<u64>,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    stage: Stage,
    /// Where the leaf's fingerprints lie.
    table: Address,
    leaf: Address,
    /// Whether what is gone by comes from the fingerprints' owner.
    is_fresh: bool,
    /// Entries of the leaf that the key may be in, a bit each.
    left: u32,
    /// The inner node's copy that led here may be old.
    is_copied: bool,
    /// A record was not the one that its fingerprint told of: the leaf was being split.
    has_moved: bool,
    /// The fingerprints as they were under the lock, and as they are to be.
    under_lock: Vec<u64>,
    becomes: Vec<u64>,
    sibling: (u64, Address),
    growth: Option<Growth>,
    /// Of a leaf that is being split, the record that is added to it, and its entry.
    added: Option<(u32, [u64; RECORD])>,
    scan: Scanning,
    /// Fingerprints that a scan has asked for, by where they lie.
    asked: Vec<(Address, Landed)>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Begin,
    Inner(Asked),
    /// Its turn for the lock of the fingerprints.
    Turn,
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
    /// All records of a full leaf, which is locked.
    Full(Landed),
    /// The new sibling is there, with its fingerprints: these records are left.
    Sibling(u32),
    /// What has moved is gone from the leaf.
    Cleared,
    /// The fingerprints say so: the level above takes the sibling.
    Halved,
    Growing,
    /// Fingerprints of leaves of a scan, which say where these lie.
    Tables,
    /// Leaves of a scan.
    Leaves,
}

fn fingerprint(key: u64) -> u8 {
    // Never 0, which is that of a free entry.
    (scatter(key) % 255 + 1) as u8
}

/// The fingerprints of a leaf.
fn fingerprints(table: &[u64]) -> impl Iterator<Item = u8> {
    table[HEAD..].iter().flat_map(|word| word.to_le_bytes())
}

/// The words of a leaf's fingerprints, not locked.
fn table_of(keys: impl Iterator<Item = u64>, leaf: Address, (high, next): (u64, Address)) -> [u64; TABLE] {
    let mut bytes = [0; SPAN];
    bytes.iter_mut().zip(keys).for_each(|(byte, key)| *byte = fingerprint(key));
    let mut table = [0; TABLE];
    table[..HEAD].copy_from_slice(&[0, leaf, high, next]);
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    table[HEAD..].iter_mut().zip(words).for_each(|(to, from)| *to = from);
    table
}

/// Entries whose fingerprint is that of the key, a bit each.
fn matching(table: &[u64], key: u64) -> u32 {
    let (wanted, mut found) = (fingerprint(key), 0);
    for (entry, byte) in fingerprints(table).enumerate() {
        found |= u32::from(byte == wanted) << entry;
    }
    found
}

impl DmTree {
    /// The tree over ascending keys with their first values, for `compute_nodes` compute nodes.
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
            let leaf = memory.allocate(LEAF, (SPAN * record_bytes + FENCE_BYTES) as u64);
            let records = memory.words_mut(leaf, SPAN * RECORD).as_chunks_mut::<RECORD>().0;
            records.iter_mut().zip(part).for_each(|(record, key)| *record = [*key, first_value(*key), USED]);
            let at = memory.allocate_on_compute(i % usize::from(compute_nodes.max(1)), TABLE);
            let table = table_of(part.iter().copied(), leaf, (u64::MAX, 0));
            memory.words_mut(at, TABLE).copy_from_slice(&table);
            memory.words_mut(leaf, LEAF)[SPAN * RECORD..].copy_from_slice(&[u64::MAX, 0]);
            if let Some((_, before)) = tables.last() {
                let before = memory.words_mut(*before, TABLE);
                before[2..HEAD].copy_from_slice(&[part[0], at]);
                let leaf = before[1];
                memory.words_mut(leaf, LEAF)[SPAN * RECORD..].copy_from_slice(&[part[0], at]);
            }
            tables.push((part[0], at));
        }
        let Inner { span, all_levels } = options.inner;
        let shape = Shape {
            span,
            bytes: span * child_bytes(sizes) + 83,
            cached_bytes: (span * child_bytes(sizes)) as u64,
            all_levels,
            reads_root: false,
        };
        let mut owned = vec![0; compute_nodes.max(1).into()];
        for i in 0..tables.len() {
            owned[i % usize::from(compute_nodes.max(1))] += TABLE_BYTES as u64;
        }
        let of_copies = (options.budget as f64 * options.fingerprint_share) as u64;
        let inner = InnerNodes::build(memory, shape, tables, 1.0, compute_nodes, options.budget - of_copies);
        let copies = |seed| Kept::new(of_copies, TABLE_BYTES as u64, u64::from(seed));
        let copies = (0..compute_nodes).map(copies).collect();
        Self { sizes, per_leaf: per_leaf as f64, inner, copies, owned }
    }

    fn go_on(&mut self, task: &mut Task, seek: Seek, turn: &mut Turn<'_>) -> Next {
        match (seek, turn.operation) {
            (Seek::Asked(asked), _) => task.stage = Stage::Inner(asked),
            (Seek::Leaf(at), Operation::Read { key }) => {
                (task.table, task.is_copied, task.has_moved) = (at.leaf, at.is_copied, false);
                if let Some(copy) = self.copies[turn.compute].get(at.leaf).copied() {
                    (task.is_fresh, task.leaf, task.left) = (false, copy[1], matching(&copy, key));
                    return self.next_record(task, turn);
                }
                return self.ask_table(task, turn);
            }
            (Seek::Leaf(at), Operation::Update { .. } | Operation::Insert { .. }) => {
                (task.table, task.is_copied) = (at.leaf, at.is_copied);
                return self.ask_lock(task, turn);
            }
            (Seek::Leaf(at), Operation::Scan { .. }) => {
                self.inner.name_leaves(&mut task.scan, at, self.per_leaf, turn.compute);
                self.ask_leaves(task, turn);
            }
        }
        Next::Trip
    }

    fn ask_lock(&self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        if turn.claim(task.table) == Claim::Waits {
            task.stage = Stage::Turn;
            return Next::Waits;
        }
        task.stage = Stage::Lock(turn.trip.compare_swap(task.table, (0, LOCK), LOCK));
        Next::Trip
    }

    fn leaf_bytes(&self) -> usize {
        SPAN * self.record_bytes() + FENCE_BYTES
    }

    /// Gets the fingerprints from their owner, which may be this compute node.
    fn ask_table(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        if Memory::node_of(task.table) == Target::Compute(turn.compute as u16) {
            let table = turn.memory.words(task.table, TABLE).to_vec();
            return self.take_table(task, &table, turn);
        }
        task.stage = Stage::Table(turn.trip.read(task.table, TABLE, TABLE_BYTES));
        Next::Trip
    }

    fn take_table(&mut self, task: &mut Task, table: &[u64], turn: &mut Turn<'_>) -> Next {
        let (operation, key) = (turn.operation, turn.operation.key());
        if let Some(table) = table.first_chunk::<TABLE>()
            && Memory::node_of(task.table) != Target::Compute(turn.compute as u16)
        {
            self.copies[turn.compute].keep(task.table, *table);
        }
        (task.is_fresh, task.leaf, task.left) = (true, table[1], matching(table, key));
        if key >= table[2] && table[2] != u64::MAX {
            // A copy that led here is old; else the leaf after this one has the key.
            if operation.written().is_some() {
                turn.unlock(task.table, 0, 8);
            }
            let at = LeafAt { leaf: task.table, next: None, is_copied: task.is_copied };
            let seek = self.inner.seek_again(key, (at, table[3]), turn);
            return self.go_on(task, seek, turn);
        }
        task.has_moved = false;
        task.under_lock = table.to_vec();
        self.next_record(task, turn)
    }

    /// Asks for the next record with the key's fingerprint.
    fn next_record(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        if task.left != 0 {
            let entry = task.left.trailing_zeros();
            task.left &= task.left - 1;
            let at = task.leaf + u64::from(entry) * RECORD as u64;
            task.stage = Stage::Record { entry, landed: turn.trip.read(at, RECORD, self.record_bytes()) };
            return Next::Trip;
        }
        match turn.operation {
            Operation::Read { .. } if task.is_fresh && !task.has_moved => Next::Done(Answer::Value(None)),
            // A copy's word for it that the key is not there is not enough.
            Operation::Read { .. } => self.ask_table(task, turn),
            Operation::Insert { key, value } => self.insert(task, (key, value), turn),
            Operation::Update { .. } | Operation::Scan { .. } => {
                turn.unlock(task.table, 0, 8);
                task.stage = Stage::Unlocked { is_there: false };
                Next::Trip
            }
        }
    }

    /// Puts a record into a free entry of the leaf whose fingerprints are locked.
    fn insert(&self, task: &mut Task, (key, value): (u64, u64), turn: &mut Turn<'_>) -> Next {
        let free = fingerprints(&task.under_lock).position(|byte| byte == 0);
        let Some(entry) = free else {
            task.stage = Stage::Full(turn.trip.read(task.leaf, SPAN * RECORD, self.leaf_bytes()));
            return Next::Trip;
        };
        turn.trip.write(task.leaf + (entry * RECORD) as u64, &[key, value, USED], self.record_bytes());
        task.becomes.clone_from(&task.under_lock);
        task.becomes[0] = 0;
        task.becomes[HEAD + entry / 8] |= u64::from(fingerprint(key)) << (8 * (entry % 8));
        task.stage = Stage::Written;
        Next::Trip
    }

    /// Takes the record of an entry whose fingerprint is the key's.
    fn take_record(&mut self, task: &mut Task, entry: u32, record: &[u64], turn: &mut Turn<'_>) -> Next {
        let (operation, key) = (turn.operation, task.scan.key_of(turn.operation));
        match (record, operation) {
            (&[found, value, USED], Operation::Read { .. }) if found == key => {
                Next::Done(Answer::Value(Some(value)))
            }
            (&[found, _, USED], Operation::Update { value, .. } | Operation::Insert { value, .. })
                if found == key =>
            {
                let at = task.leaf + u64::from(entry) * RECORD as u64 + 1;
                turn.trip.write(at, &[value], self.record_bytes());
                task.stage = Stage::Written;
                Next::Trip
            }
            (&[found, _, used], _) => {
                task.has_moved |= fingerprint(found) != fingerprint(key) || used != USED;
                self.next_record(task, turn)
            }
            _ => Next::Done(Answer::Failed("a record is three words".into())),
        }
    }

    fn record_bytes(&self) -> usize {
        8 + self.sizes.key + self.sizes.value
    }
}

impl Index for DmTree {
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
            Stage::Lock(old) if turn.landed.word(old) & LOCK == 0 => {
                // Among atomics and WRITEs of others the owner's own table is looked at through its
                // card, too.
                task.stage = Stage::Table(turn.trip.read(task.table, TABLE, TABLE_BYTES));
                Next::Trip
            }
            Stage::Turn | Stage::Lock(_) => self.ask_lock(task, turn),
            Stage::Table(table) => self.take_table(task, turn.landed.words(table), turn),
            Stage::Record { entry, landed } => self.take_record(task, entry, turn.landed.words(landed), turn),
            Stage::Full(records) => self.halve(task, turn.landed.words(records), turn),
            Stage::Sibling(kept) => self.clear_moved(task, kept, turn),
            Stage::Cleared => {
                turn.trip.write(task.table, &task.becomes, TABLE_BYTES);
                turn.has_unlocked();
                task.stage = Stage::Halved;
                Next::Trip
            }
            Stage::Halved => {
                task.growth = Some(self.inner.grow(task.sibling, turn));
                task.stage = Stage::Growing;
                Next::Trip
            }
            Stage::Tables => {
                self.take_tables(task, turn);
                Next::Trip
            }
            Stage::Leaves => self.take_leaves(task, turn),
            Stage::Growing => self.inner.grow_on(&mut task.growth, turn),
            Stage::Written if !task.becomes.is_empty() => {
                // The fingerprints with the new one, not locked.
                turn.trip.write(task.table, &task.becomes, TABLE_BYTES);
                turn.has_unlocked();
                task.stage = Stage::Unlocked { is_there: true };
                Next::Trip
            }
            Stage::Written => {
                turn.unlock(task.table, 0, 8);
                task.stage = Stage::Unlocked { is_there: true };
                Next::Trip
            }
            Stage::Unlocked { is_there } => Next::written(is_there),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let copies = self.copies.iter().map(Kept::most_bytes).max().unwrap_or(0);
        (self.inner.most_bytes() + copies, self.owned.iter().copied().max().unwrap_or(0))
    }

    fn shares_work(&self) -> bool {
        true
    }
}
