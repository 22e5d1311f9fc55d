//! Placement of the records of a new segment by groups.

use fpcache::layout::Grouping;
use fpcache_index::groups::GroupTable;
use fpcache_index::{PlacedSegment, SegmentModel};

/// Where a new segment's records lie.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) model: SegmentModel,
    /// The slot of each key.
    pub(crate) slots: Vec<u16>,
    pub(crate) groups: Groups,
}

/// A segment's groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// What leads to them.
    pub(crate) table: GroupTable,
    /// The slots that say it of those groups and blocks of which records lie elsewhere.
    pub(crate) marked: Vec<u16>,
}

/// The keys of a segment, with these coordinates and hashes, in groups; `None` if some key would
/// lie farther from its prediction than a window reaches in a table of this ε: then it keeps the
/// order it has.
///
/// About ε/fill and half a block is what it takes where keys lie as evenly as their line says: keys
/// of the same number for each block lie 1/fill times as far from the line in slots as they do in
/// ranks.
pub(crate) fn group(
    grouping: Grouping,
    epsilon: u32,
    (model, keys): (SegmentModel, usize),
    xs: &[u64],
    hashes: &[u64],
) -> Option<Grouped> {
    if xs.len() != keys || hashes.len() != keys {
        return None;
    }
    // As wide as rebuilds make windows, though the line be nearer to the keys: lookups READ groups,
    // and of narrow windows one fills up, and has the segment rebuilt, long before the others do.
    let model =
        SegmentModel { epsilon: model.epsilon.max(u16::try_from(epsilon).unwrap_or(u16::MAX)), ..model };
    let placed = PlacedSegment { model, keys, slots: Vec::new() };
    let grouped = placed.grouped(xs, hashes, grouping.form())?;
    let fits = u32::from(grouped.model.epsilon) <= grouping.most_epsilon(epsilon);
    // The builder's own word is not taken for it.
    let is_within = |(x, slot): (&u64, &u16)| grouped.model.window(*x).contains(u32::from(*slot));
    let is_right = fits && keys == grouped.slots.len() && xs.iter().zip(&grouped.slots).all(is_within);
    if !is_right {
        return None;
    }
    // Of a key that no pilot leads to readers look everywhere.
    let marks = |rank: &u32| {
        let (x, hash, slot) = (xs[*rank as usize], hashes[*rank as usize], grouped.slots[*rank as usize]);
        let [group, block] = grouped.table.homes_of(&grouped.model, x, hash);
        // Slots of the segment, which has fewer than 2^16.
        let [one, other] =
            grouping.marks_of_block((block.first.into(), block.len.into())).map(|mark| mark as u16);
        [(group, group.first), (block, one), (block, other)]
            .into_iter()
            .filter(move |(run, _)| run.len > 0 && !run.contains(slot))
            .map(|(_, mark)| mark)
    };
    let marked = grouped.strays.iter().flat_map(marks).collect();
    let groups = Groups { marked, table: grouped.table };
    Some(Grouped { model: grouped.model, slots: grouped.slots, groups })
}
