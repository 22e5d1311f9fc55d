//! Groups: the few slots of a segment that a key can lie in, told by a small table beside the
//! segment's line.
//!
//! A line predicts a slot within ±ε, and a segment's order within that window is free. Here it is
//! spent on *blocks* of slots that hold keys in their order, equally many in each. A 16-bit
//! *separator* a block, relative to the line, names the block of a key, so that one READ of few
//! slots finds nearly every key, present or absent, whatever ε is. Three forms:
//!
//! | form | a block is | names besides | what is READ |
//! |---|---|---|---|
//! | [`BlockForm::Plain`] | one group | nothing | the group's slots and those it shares with the next |
//! | [`BlockForm::Seeded`] | several groups | the group by the key's hash, with a seed for each block | the group's slots |
//! | [`BlockForm::Pilots`] | many slots | the slot by the key's hash, with a pilot for each bucket of keys | one slot |
//!
//! Plain groups are for short slots, seeded ones for small budgets at the cost of order within a
//! block, pilots for long slots. Keys that the table does not lead to, *strays*, are few and lie
//! near: within the window of the model that comes with the table, whose ε says how far any key is
//! from its prediction. A wrong table can therefore cost READs, never an answer.
//!
//! Pilots are those of CHD (Belazzougui, Botelho, Dietzfelbinger, ESA 2009) and PTHash (Pibiri and
//! Trani, SIGIR 2021), in small.

mod hash;
mod packed;
mod pilots;
mod seeded;
mod separators;
mod slot_fill;

pub use packed::{blocks_in_packed, pack, packed_words, separator_in_packed};
pub use pilots::{bucket_of, slot_by_pilot};
pub use seeded::group_by_seed;
pub use separators::{BlockRun, BlockSeparators, blocks_among, finest};

use crate::line::FRACTION_BITS;
use crate::{Line, PlacedSegment, SegmentModel};

/// How a block's slots are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockForm {
    /// A block is a group of `stride` slots, READ with those of the next up to `reach`.
    Plain {
        /// Slots from one group to the next.
        stride: u16,
        /// Slots that are READ, not below the stride: any beyond the stride belong to the next
        /// group as well.
        reach: u16,
    },
    /// A block has several groups of `reach` slots each, between which the keys' hashes choose.
    Seeded {
        /// Groups in a block, at most 64.
        groups: u16,
        /// Slots of a group.
        reach: u16,
    },
    /// A block's slots are chosen by hashes, one by one.
    Pilots {
        /// Slots in a block.
        slots: u16,
        /// Buckets in a block, each with a pilot.
        buckets: u16,
    },
}

impl BlockForm {
    /// Groups of nine slots, READ with the first of the next.
    pub const PLAIN: Self = Self::Plain { stride: 9, reach: 10 };
    /// Six groups of ten slots with one separator and one seed.
    pub const SEEDED: Self = Self::Seeded { groups: 6, reach: 10 };
    /// Blocks of 32 slots with 7 pilots, for 3.7 keys each where 80 % of the slots are in use.
    pub const PILOTS: Self = Self::Pilots { slots: 32, buckets: 7 };

    /// Whether there are tables of this form.
    #[must_use]
    pub fn is_valid(self) -> bool {
        match self {
            Self::Plain { stride, reach } => {
                0 < stride && stride <= reach && reach <= 2 * stride && stride <= 64
            }
            Self::Seeded { groups, reach } => (1..=64).contains(&groups) && (1..=64).contains(&reach),
            Self::Pilots { slots, buckets } => (1..=256).contains(&slots) && (1..=256).contains(&buckets),
        }
    }

    /// Slots from one block to the next.
    #[inline]
    fn block(self) -> u16 {
        match self {
            Self::Plain { stride, .. } => stride,
            Self::Seeded { groups, reach } => groups * reach,
            Self::Pilots { slots, .. } => slots,
        }
    }

    /// Slots beyond the last block's own.
    #[inline]
    fn overhang(self) -> u16 {
        match self {
            Self::Plain { stride, reach } => reach - stride,
            _ => 0,
        }
    }

    /// Bytes of a block beside its separator: its seed, or its pilots.
    #[inline]
    fn bytes(self) -> usize {
        match self {
            Self::Plain { .. } => 0,
            Self::Seeded { .. } => 1,
            Self::Pilots { buckets, .. } => usize::from(buckets),
        }
    }

    /// The slots of the group that a key of this hash belongs to, in a block of a segment of `cap`
    /// slots: the first, and how many; none, and the first of the block, if no pilot tells.
    /// `name(i)` is byte `i` of those that choose between the groups of all blocks.
    #[inline]
    #[must_use]
    pub fn run(self, block: u16, hash: u64, cap: u16, name: impl FnOnce(usize) -> u8) -> (u32, u32) {
        let first = u32::from(block) * u32::from(self.block());
        let bytes = usize::from(block) * self.bytes();
        let (skipped, reach) = match self {
            Self::Plain { reach, .. } => (Some(0), reach),
            Self::Seeded { groups, reach } => {
                // Fewer groups in the only block of a segment with fewer slots.
                let group = group_by_seed(hash, name(bytes), groups.min(cap / reach.max(1)));
                (Some(u32::from(group) * u32::from(reach)), reach)
            }
            Self::Pilots { slots, buckets } => {
                let pilot = name(bytes + bucket_of(hash, buckets));
                (slot_by_pilot(hash, pilot, slots.min(cap)).map(u32::from), 1)
            }
        };
        let Some(skipped) = skipped else { return (first, 0) };
        let first = first + skipped;
        (first, u32::from(reach).min(u32::from(cap).saturating_sub(first)))
    }

    /// How many blocks a segment of at least `cap` slots has, and how many slots that takes: all
    /// blocks are whole, but the one of a segment that has no more slots than one, of which seeded
    /// groups are. `None` if more than 2^16.
    #[must_use]
    pub fn blocks(self, cap: u16) -> Option<(u16, u16)> {
        let whole = self.block() + self.overhang();
        if cap <= whole {
            let slots = match self {
                Self::Plain { .. } => cap,
                Self::Seeded { reach, .. } => cap.max(1).next_multiple_of(reach),
                Self::Pilots { .. } => cap.max(1),
            };
            return Some((1, slots));
        }
        let blocks = (cap - self.overhang()).div_ceil(self.block());
        Some((blocks, blocks.checked_mul(self.block())?.checked_add(self.overhang())?))
    }
}

/// Neighbouring slots of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRun {
    /// The first of them.
    pub first: u16,
    /// How many there are.
    pub len: u16,
}

impl SlotRun {
    /// Whether `slot` is one of them.
    #[inline]
    #[must_use]
    pub fn contains(self, slot: u16) -> bool {
        slot.checked_sub(self.first).is_some_and(|offset| offset < self.len)
    }
}

/// The table that leads from a key to a few slots of its segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupTable {
    form: BlockForm,
    cap: u16,
    separators: BlockSeparators,
    /// Seeds or pilots of all blocks.
    bytes: Vec<u8>,
}

/// A segment whose keys lie in groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupedSegment {
    /// The line and ε of all keys, wherever the table leads: no window is too narrow for any of
    /// them.
    pub model: SegmentModel,
    /// The slot of each key: distinct, and within the model's window of the key.
    pub slots: Vec<u16>,
    /// The table that leads to nearly all of them.
    pub table: GroupTable,
    /// Which keys, by rank, lie where the table does not lead.
    pub strays: Vec<u32>,
}

impl GroupTable {
    /// A table of these parts, of a segment with `cap` slots; `None` if they do not fit one
    /// another. Whatever the values are, it leads to slots of the segment.
    #[must_use]
    pub fn from_parts(
        form: BlockForm,
        cap: u16,
        separators: BlockSeparators,
        bytes: Vec<u8>,
    ) -> Option<Self> {
        let (blocks, slots) = if form.is_valid() { form.blocks(cap)? } else { return None };
        let fits = slots == cap
            && separators.stride() == form.block()
            && separators.blocks() == usize::from(blocks)
            && bytes.len() == form.bytes() * usize::from(blocks);
        fits.then_some(Self { form, cap, separators, bytes })
    }

    /// The slots to READ for a key of this coordinate and hash, by the segment's model. Where no
    /// pilot tells, none: a run without slots at the first of the key's block.
    #[inline]
    #[must_use]
    pub fn slots_of(&self, model: &SegmentModel, x: u64, hash: u64) -> SlotRun {
        self.run(self.separators.blocks_of(model, x).of(hash), hash)
    }

    /// The same slots, and those of the key's block.
    #[must_use]
    pub fn homes_of(&self, model: &SegmentModel, x: u64, hash: u64) -> [SlotRun; 2] {
        let block = self.separators.blocks_of(model, x).of(hash);
        let first = block * self.form.block();
        let len = (self.form.block() + self.form.overhang()).min(self.cap - first);
        [self.run(block, hash), SlotRun { first, len }]
    }

    /// Bytes that a compute node keeps of it: packed separators, seeds and pilots.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let mut words = Vec::new();
        let BlockSeparators { bits, stride, distances } = &self.separators;
        let is_packed = pack(*bits, *stride, distances, &mut words);
        let separators = if is_packed { 4 * words.len() } else { 2 * distances.len() };
        separators + self.bytes.len()
    }

    /// The number of the group that a run begins, among all of the segment. With pilots each slot
    /// is a group.
    #[must_use]
    pub fn group_of(&self, run: SlotRun) -> u16 {
        match self.form {
            BlockForm::Plain { stride, .. } => run.first / stride,
            BlockForm::Seeded { reach, .. } => run.first / reach,
            BlockForm::Pilots { .. } => run.first,
        }
    }

    /// The separators, which lead to blocks.
    #[must_use]
    pub fn separators(&self) -> &BlockSeparators {
        &self.separators
    }

    /// The names, which lead on within blocks: the seeds or pilots of each, one after the other.
    #[must_use]
    pub fn names(&self) -> &[u8] {
        &self.bytes
    }

    /// The run of a block's slots, in which a key of this hash is.
    #[inline]
    fn run(&self, block: u16, hash: u64) -> SlotRun {
        let (first, len) = self.form.run(block, hash, self.cap, |at| self.bytes[at]);
        // Blocks are whole, and the last ends with the segment.
        SlotRun { first: first as u16, len: len as u16 }
    }
}

impl PlacedSegment {
    /// Puts the keys of this segment, which are `xs` and have these hashes, into groups; `None` if
    /// that takes more than 65,535 slots or a wider window than a model has, which segments of a
    /// few thousand slots never do.
    ///
    /// The segment gets some slots more where the last block was not whole. Its line keeps its
    /// slope and is centred; its ε becomes the largest distance of a key from its prediction, about
    /// ε/fill and half a block.
    ///
    /// # Panics
    /// If there are not as many coordinates and hashes as the segment has keys, or the form is not
    /// valid.
    #[must_use]
    pub fn grouped(&self, xs: &[u64], hashes: &[u64], form: BlockForm) -> Option<GroupedSegment> {
        assert!(form.is_valid(), "{form:?}");
        assert!(
            xs.len() == self.keys && hashes.len() == self.keys,
            "one coordinate and one hash for each key"
        );
        let (blocks, cap) = form.blocks(self.model.cap)?;
        let mut model = SegmentModel { cap, ..self.model };
        model.line = centred(&model, xs);
        let (separators, firsts) = BlockSeparators::fit(&model, xs, blocks, form.block())?;
        let mut table =
            GroupTable { form, cap, separators, bytes: vec![0; form.bytes() * usize::from(blocks)] };
        let mut slots = slot_fill::SlotFill::new(cap, self.keys);
        let of_keys = table.blocks_of_keys(&model, (xs, hashes), &firsts);
        let (keys, ends) = by_block(&of_keys, blocks);
        for (block, end) in (0..blocks).zip(&ends) {
            let first = block.checked_sub(1).map_or(0, |before| ends[usize::from(before)]);
            table.fill_block(block, &keys[first..*end], hashes, &mut slots);
        }
        slots.place_the_rest(|rank| of_keys[rank].into(), form.block());
        let slots = slots.into_slots();
        let farthest = xs.iter().zip(&slots).map(|(x, slot)| model.predict(*x).abs_diff(u32::from(*slot)));
        model.epsilon = u16::try_from(farthest.max().unwrap_or(0)).ok()?.max(self.model.epsilon);
        // Whatever was meant by putting keys where they are, readers see what the table says.
        let leads = |at: usize| table.slots_of(&model, xs[at], hashes[at]).contains(slots[at]);
        // A segment has fewer keys than 2^16.
        let strays = (0..self.keys).filter(|at| !leads(*at)).map(|at| at as u32).collect();
        Some(GroupedSegment { model, slots, table, strays })
    }
}

/// The model's line, moved so that keys which lie evenly over the slots are as far above it as
/// below at most. Where a line has room to move, a placement in order of slots may have left it up
/// to ε to one side.
fn centred(model: &SegmentModel, xs: &[u64]) -> Line {
    /// Keys from one that is looked at to the next: fewer than a group has.
    const STEP: usize = 4;
    let one = 1i64 << FRACTION_BITS;
    let flat = model.line.with_intercept(0);
    let lags = (0..xs.len()).step_by(STEP).map(|rank| {
        // A segment has fewer keys and slots than 2^16.
        let slot = (rank * usize::from(model.cap)) as i64 * one / xs.len() as i64;
        let height = flat.scaled(xs[rank].saturating_sub(model.origin));
        slot.saturating_sub(i64::try_from(height).unwrap_or(i64::MAX))
    });
    let (least, most) = lags.fold((i64::MAX, i64::MIN), |(least, most), lag| (least.min(lag), most.max(lag)));
    if least > most {
        return model.line;
    }
    let middle = least / 2 + most / 2;
    model.line.with_intercept(middle.clamp(Line::MIN_INTERCEPT, Line::MAX_INTERCEPT))
}

/// The keys by their blocks, those of one in their order, and where the keys of each block end.
fn by_block(of_keys: &[u16], blocks: u16) -> (Vec<usize>, Vec<usize>) {
    let mut ends = vec![0; blocks.into()];
    of_keys.iter().for_each(|block| ends[usize::from(*block)] += 1);
    let mut before = 0;
    for end in &mut ends {
        (*end, before) = (before, before + *end);
    }
    let mut keys = vec![0; of_keys.len()];
    for (key, block) in of_keys.iter().enumerate() {
        let end = &mut ends[usize::from(*block)];
        keys[*end] = key;
        *end += 1;
    }
    (keys, ends)
}

impl GroupTable {
    /// The block of each key, by the ranks of blocks' first keys.
    fn blocks_of_keys(
        &self,
        model: &SegmentModel,
        (xs, hashes): (&[u64], &[u64]),
        firsts: &[usize],
    ) -> Vec<u16> {
        let mut of_keys = Vec::with_capacity(xs.len());
        for (block, first) in (0..).zip(firsts) {
            let next = firsts.get(usize::from(block) + 1).copied().unwrap_or(xs.len());
            // Where hashes choose: between blocks that begin with the same key, and between the
            // first two.
            let is_shared = block < 2 || firsts[usize::from(block) - 1] == *first;
            let of_key = |rank: usize| match is_shared {
                true => self.separators.blocks_of(model, xs[rank]).of(hashes[rank]),
                false => block,
            };
            of_keys.extend((*first..next).map(of_key));
        }
        of_keys
    }

    /// Puts the keys of a block into its slots, as many as go there.
    fn fill_block(&mut self, block: u16, keys: &[usize], hashes: &[u64], slots: &mut slot_fill::SlotFill) {
        let first = block * self.form.block();
        let bytes = usize::from(block) * self.form.bytes();
        match self.form {
            BlockForm::Plain { stride, reach } => {
                // Slots of two groups go last, so that those stay free which an insert into either
                // can take.
                let shared = reach - stride;
                let own = first + shared..first + stride;
                let order = own.chain(first..first + shared).chain(first + stride..first + reach);
                let cap = self.cap;
                slots.fill(keys, order.filter(|slot| *slot < cap));
            }
            BlockForm::Seeded { groups, reach } => {
                let groups = groups.min(self.cap / reach);
                let own: Vec<u64> = keys.iter().map(|key| hashes[*key]).collect();
                let seed = seeded::choose_seed(&own, groups, reach);
                self.bytes[bytes] = seed;
                for (key, hash) in keys.iter().zip(own) {
                    let first = first + group_by_seed(hash, seed, groups) * reach;
                    slots.fill(&[*key], first..first + reach);
                }
            }
            BlockForm::Pilots { slots: among, buckets } => {
                let among = among.min(self.cap);
                let pilots = &mut self.bytes[bytes..bytes + usize::from(buckets)];
                let own: Vec<u64> = keys.iter().map(|key| hashes[*key]).collect();
                pilots::choose_pilots(&own, among, pilots, |key, slot| slots.put(keys[key], first + slot));
            }
        }
    }
}
