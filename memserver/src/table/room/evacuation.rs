//! The choice of the range of a table's memory to empty next, and the beginning and end of emptying
//! one.

use std::ops::Range;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::NodeMemory;

use super::super::error::TableError;
use super::super::segments::Segments;
use super::Room;
use super::emptying::Evacuation;
use super::publication::Checkpoint;
use crate::space::Emptiest;

impl<K: BuildKeys, M: NodeMemory> Room<K, M> {
    /// The range to empty next in the background: to return the region's end, or for an extent that
    /// was missed.
    pub(crate) fn wants_emptied(
        &mut self,
        segments: &Segments<K, M>,
    ) -> Result<Option<Range<u64>>, TableError> {
        // What is free may be all that the next directory can have.
        if self.publication.lacks_room && self.wants_checkpoint() {
            return Ok(None);
        }
        if let Some(wanted) = self.emptying.wanted.take() {
            return Ok(Some(wanted));
        }
        let free = self.space.granted_free_bytes();
        let is_more = |known: Option<u64>| known.is_none_or(|known| free > known + known / 8);
        if !is_more(self.emptying.stuck) {
            return Ok(None);
        }
        if self.superblock.grant.is_shared() && is_more(self.emptying.shrunk) {
            let used = self.superblock.grant.end().saturating_sub(free);
            let is_beyond = self.superblock.grant.is_short()
                || self.superblock.grant.end() > self.superblock.grant.limit();
            let most = if is_beyond { used / 8 } else { used / 2 };
            if free > most + (1 << 20) {
                return Ok(Some((used + used / 8 + (512 << 10)).next_multiple_of(8)..u64::MAX));
            }
        }
        let missed = std::mem::take(&mut self.emptying.hole);
        let longest = self.space.longest();
        if missed > longest {
            return self.window_for(segments, missed);
        }
        let value = self.emptying.longest_value;
        if value > longest && value < free / 2 {
            // Shorter ones if that is in vain.
            self.emptying.longest_value /= 2;
            return self.window_for(segments, value);
        }
        Ok(None)
    }

    /// Whether the last search for a range to empty has not looked at all free extents after those
    /// it looked at.
    pub(crate) fn has_more_to_look_at(&self) -> bool {
        self.emptying.look_from > 0
    }

    /// Has the next search for a range to empty look at all free extents.
    pub(crate) fn look_at_all(&mut self) {
        self.emptying.look_from = 0;
    }

    pub(crate) fn begin_evacuation(&mut self, window: Range<u64>) {
        self.space.set_emptied(Some(window));
        self.leave_emptied();
        let from = K::lowest().to_owned();
        self.emptying.evacuation = Some(Evacuation { from, moved: None, replaced: 0 });
    }

    /// Has the next directory leave the range that is being emptied: memory set aside for it, and
    /// what is written of it, which begins anew.
    fn leave_emptied(&mut self) {
        let Some(emptied) = self.space.emptied().cloned() else { return };
        self.publication.aside.leave(&emptied, &mut self.space);
        let lies_there = |next: &mut Checkpoint<K>| next.extents.iter().any(|extent| extent.meets(&emptied));
        if let Some(next) = self.publication.checkpoint.take_if(lies_there) {
            next.extents.into_iter().for_each(|extent| self.space.put(extent));
        }
    }

    /// Ends the evacuation under way; `true` if something unknown was in the way, so that another
    /// range may be the better one.
    pub(crate) fn end_evacuation(&mut self) -> bool {
        let has_moved = self.emptying.evacuation.as_ref().is_some_and(|evacuation| evacuation.replaced > 0);
        let was_end = self.space.emptied().is_some_and(|emptied| emptied.end == u64::MAX);
        self.give_up_evacuation();
        self.space.shrink();
        let free = self.space.remaining_free_bytes();
        let found_obstacle = self.emptying.immovables.found_obstacle();
        if !has_moved && !found_obstacle {
            self.emptying.stuck = Some(free);
        }
        if was_end {
            // What is left cannot be freed by moving what comes after it.
            self.emptying.shrunk = Some(free);
        }
        found_obstacle
    }

    /// Cancels the evacuation under way; `false` if there is none.
    pub(crate) fn give_up_evacuation(&mut self) -> bool {
        self.space.set_emptied(None);
        self.emptying.evacuation.take().is_some()
    }

    /// The range to empty for an extent of `len` bytes: the one with the fewest bytes in use, if
    /// these fit elsewhere, of those in which nothing is known to stay. Of very many free extents
    /// it looks at some, at others the next time.
    pub(crate) fn window_for(
        &mut self,
        segments: &Segments<K, M>,
        len: u64,
    ) -> Result<Option<Range<u64>>, TableError> {
        /// The share of the region to empty at least, up to a maximum of bytes.
        const SHARE: u64 = 16;
        const MOST: u64 = 16 << 20;
        /// The share of the available memory that must be free: with less, every new record would
        /// cost as much copying.
        const LEAST_FREE: u64 = 8;
        /// Free extents to look at: some milliseconds.
        const LOOKED_AT: usize = 1 << 15;
        let from = std::mem::take(&mut self.emptying.look_from);
        if self.space.free_bytes() < self.space.end_in_reach() / LEAST_FREE {
            return Ok(None);
        }
        let obstacles = self.emptying.immovables.obstacles(segments)?;
        let free = self.space.granted_free_bytes();
        let wanted = (self.superblock.grant.end() / SHARE).min(MOST);
        let mut bytes = (len + len / 8).max(wanted).min(free).next_multiple_of(8);
        while bytes >= len.max(8) {
            let end = self.superblock.grant.end();
            let Emptiest { found, go_on_at } = self.space.emptiest(bytes, from, end, LOOKED_AT, &obstacles);
            self.emptying.look_from = go_on_at.unwrap_or(0);
            if let Some((window, used)) = found {
                let free_inside = (window.end - window.start).saturating_sub(used);
                if used + used / 4 <= free.saturating_sub(free_inside) {
                    return Ok(Some(window));
                }
            }
            bytes = (bytes / 2) & !7;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use fpcache::key_space::U64Keys;
    use fpcache::layout::{RecordShape, TableParameters};

    use crate::fixtures::{empty_node, table_of};
    use crate::node::MemoryNode;
    use crate::space::Extent;

    /// Writes waited for ever for a search that looked again and again at what an earlier one had
    /// left.
    #[test]
    fn a_search_for_room_ends_in_a_table_that_is_too_full_to_empty_anything() {
        let mut node = loaded(1 << 20, 1000, 2048);
        let table = table_of(&mut node);
        let space = &mut table.room.space;
        let taken: Vec<Extent> = std::iter::from_fn(|| space.take(space.longest())).collect();
        let pieces =
            taken.iter().flat_map(|extent| (0..extent.len / 4096).map(|at| extent.offset + at * 4096));
        pieces.take(32).for_each(|offset| space.put(Extent::new(offset, 2048)));
        table.room.emptying.look_from = 8;
        let ended = (0..10_000).find_map(|_| table.step_search(8192).expect("it can be read"));
        assert_eq!(ended, Some(false));
    }

    /// A write was refused for want of room although a range could have been emptied.
    #[test]
    fn a_search_looks_at_all_free_extents_whatever_one_before_it_left() {
        let mut node = loaded(1 << 20, 1000, 2048);
        let table = table_of(&mut node);
        table.room.emptying.look_from = 8;
        assert_eq!(table.step_search(8192).expect("it can be read"), None);
        assert!(!table.room.has_more_to_look_at());
    }

    /// A table of this many keys, in segments of this many slots at most.
    fn loaded(bytes: usize, keys: u32, max_slots: u16) -> MemoryNode<U64Keys> {
        let mut node = empty_node::<U64Keys>(bytes);
        let shape = RecordShape::fixed(8, 8);
        let parameters = TableParameters { shape, max_slots, ..TableParameters::default() };
        node.load(parameters, (0..keys).map(|key| u64::from(key) << 20), |_, _| {}).expect("room");
        node
    }

    /// The directory that ends it was never begun, and the range stayed withheld.
    #[test]
    fn an_evacuation_that_comes_to_its_end_while_a_directory_is_written_has_the_next_one_written() {
        let mut node = loaded(16 << 20, 120_000, 32);
        let table = table_of(&mut node);
        table.room.begin_evacuation(1 << 20..(1 << 20) + (8 << 10));
        let head = table.room.log_head();
        while table.room.log_head() == head {
            table.give_back().expect("room");
        }
        table.room.step_checkpoint(&table.segments).expect("room");
        let sequence = table.room.publication.checkpoint.as_ref().map(|checkpoint| checkpoint.sequence);
        while table.give_back().expect("room") {}
        assert!(sequence.is_some_and(|sequence| sequence < table.room.log_head()), "{sequence:?}");
        while table.work(true).expect("room") {}
        assert!(table.room.emptying.evacuation.is_none() && table.room.space.emptied().is_none());
    }

    /// What was set aside for it was left at the end alone, so that it stayed in the range.
    #[test]
    fn a_directory_that_is_published_amid_an_evacuation_lies_outside_the_range() {
        let mut node = loaded(1 << 20, 5_000, 2048);
        let table = table_of(&mut node);
        assert!(table.room.reserve_directory(&table.segments));
        table.replace_segment(&0, None).expect("room");
        let aside = &table.room.publication.aside;
        let start = aside.pages.iter().chain(&aside.root).map(|extent| extent.offset).min();
        let segment = table.segments.directory.find(&0).expect("a segment").address().offset();
        let window = start.expect("something is set aside")..segment + 8;
        table.room.begin_evacuation(window.clone());
        let head = table.room.log_head();
        while table.room.log_head() == head {
            table.give_back().expect("room");
        }
        table.room.finish_checkpoint(&table.segments).expect("room");
        while table.room.emptying.evacuation.is_some() {
            table.work(true).expect("room");
        }
        let published = &table.room.publication.published;
        assert!(!published.iter().any(|extent| extent.meets(&window)), "{published:?} in {window:?}");
    }
}
