//! Counts of the keys that one READ finds, in segments cut and grouped as a memory node does it.

use fpcache_index::groups::{BlockForm, GroupTable, GroupedSegment};
use fpcache_index::{PlacedSegment, SegmentModel};

/// Bytes that say where a segment's table lies.
pub const TABLE_PLACE_BYTES: usize = 8;

/// Counts over segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys, which were all looked for.
    pub keys: u64,
    /// Those that the first READ has.
    pub present_one_read: u64,
    /// Absent keys that were looked for.
    pub absent: u64,
    /// Those of which the first READ tells that they are absent.
    pub absent_one_read: u64,
    /// Those that lie in the slot their prediction names.
    pub at_home: u64,
    /// Slots that first READs of present keys had.
    pub slots_read: u64,
    /// Keys of segments without a table, where others have one.
    pub without_table: u64,
    /// Keys that are neither where their table leads nor in the window of their model.
    pub misplaced: u64,
    /// Slots of all segments.
    pub slots: u64,
    /// The ε of every key's segment, added up: half of the slots of its window, where no table is
    /// at hand.
    pub half_windows: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of the tables, 0 if there are none.
    pub table_bytes: u64,
    /// Bytes of the directory with its models, and of what its segments share.
    pub directory_bytes: u64,
}

impl Counts {
    /// Counts a segment without a table: as many slots as a plain group has, about the prediction.
    pub fn add_placed(&mut self, segment: &PlacedSegment, xs: &[u64]) {
        let PlacedSegment { model, slots, .. } = segment;
        let BlockForm::Plain { reach, .. } = BlockForm::PLAIN else { return };
        for (x, slot) in xs.iter().zip(slots) {
            let last = u32::from(model.cap.saturating_sub(reach));
            let from = model.predict(*x).saturating_sub(u32::from(reach / 2 - 1)).min(last);
            let reads = u32::from(reach.min(model.cap));
            self.at_home += u64::from(model.predict(*x) == u32::from(*slot));
            self.present_one_read += u64::from((from..from + reads).contains(&u32::from(*slot)));
            self.slots_read += u64::from(reads);
            // A window that one READ has tells absent keys as well.
            self.absent_one_read += u64::from(model.window(*x).len() <= reads);
        }
        self.absent += xs.len() as u64;
        self.add_model(model, xs.len());
    }

    /// Counts a segment whose keys, of these coordinates and hashes, lie in groups; absent keys are
    /// the caller's to count.
    pub fn add_grouped(&mut self, segment: &GroupedSegment, xs: &[u64], hashes: &[u64]) {
        let GroupedSegment { model, slots, table, .. } = segment;
        for ((x, hash), slot) in xs.iter().zip(hashes).zip(slots) {
            let run = table.slots_of(model, *x, *hash);
            let leads = run.contains(*slot);
            self.present_one_read += u64::from(leads);
            self.slots_read += u64::from(run.len);
            self.at_home += u64::from(model.predict(*x) == u32::from(*slot));
            self.misplaced += u64::from(!leads && !model.window(*x).contains(u32::from(*slot)));
        }
        self.table_bytes += (table.bytes() + TABLE_PLACE_BYTES) as u64;
        self.add_model(model, xs.len());
    }

    /// Counts a segment of `keys` keys that no table leads to, among others with tables.
    pub(super) fn add_without_table(&mut self, model: &SegmentModel, keys: usize) {
        self.without_table += keys as u64;
        // Absent keys are looked for as often as elsewhere.
        self.absent += keys as u64;
        self.add_model(model, keys);
    }

    /// Counts a segment of `keys` keys that are looked up in windows.
    fn add_model(&mut self, model: &SegmentModel, keys: usize) {
        self.keys += keys as u64;
        self.slots += u64::from(model.cap);
        self.half_windows += u64::from(model.epsilon) * keys as u64;
        self.segments += 1;
    }

    /// The counts of a table of `factor` times as many keys, but for the bytes of its directory.
    #[must_use]
    pub(super) fn times(self, factor: f64) -> Self {
        let of = |count: u64| (count as f64 * factor).round() as u64;
        Self {
            keys: of(self.keys),
            present_one_read: of(self.present_one_read),
            absent: of(self.absent),
            absent_one_read: of(self.absent_one_read),
            slots_read: of(self.slots_read),
            at_home: of(self.at_home),
            without_table: of(self.without_table),
            misplaced: of(self.misplaced),
            slots: of(self.slots),
            half_windows: of(self.half_windows),
            segments: of(self.segments),
            table_bytes: of(self.table_bytes),
            directory_bytes: self.directory_bytes,
        }
    }
}

/// Which groups of a segment say that a key of theirs lies elsewhere.
#[derive(Clone, Debug)]
pub struct Marks<'a> {
    segment: &'a GroupedSegment,
    groups: Vec<bool>,
}

impl<'a> Marks<'a> {
    /// As a builder sets them, for keys of these coordinates and hashes.
    #[must_use]
    pub fn of(segment: &'a GroupedSegment, xs: &[u64], hashes: &[u64]) -> Self {
        let mut marks = Self { segment, groups: vec![false; usize::from(segment.model.cap) + 1] };
        for rank in &segment.strays {
            marks.mark(xs[*rank as usize], hashes[*rank as usize]);
        }
        marks
    }

    fn table(&self) -> &GroupTable {
        &self.segment.table
    }

    /// Marks the group of a key that lies elsewhere.
    pub fn mark(&mut self, x: u64, hash: u64) {
        let group = self.table().group_of(self.table().slots_of(&self.segment.model, x, hash));
        self.groups[usize::from(group)] = true;
    }

    /// Whether the READ that the table leads to settles that a key is absent: there is one, and the
    /// group has all keys of its own.
    #[must_use]
    pub fn settles_absence(&self, x: u64, hash: u64) -> bool {
        let run = self.table().slots_of(&self.segment.model, x, hash);
        run.len > 0 && !self.groups[usize::from(self.table().group_of(run))]
    }
}
