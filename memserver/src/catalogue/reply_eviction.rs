//! The limit on replies kept for repeated requests. All tables share it; above it, the replies of
//! the clients that have been silent longest are discarded first.

use super::Catalogue;

impl Catalogue {
    /// Evicts replies if the tables keep too many.
    #[inline]
    pub(super) fn limit_replies(&mut self) {
        if self.opening.kept_replies.are_too_many() {
            self.evict_replies();
        }
    }

    #[cold]
    fn evict_replies(&mut self) {
        const PAUSE: u32 = 64;
        if let Some(left) = self.reply_eviction.pause.checked_sub(1) {
            self.reply_eviction.pause = left;
            return;
        }
        let tables = self.tables.iter_mut().enumerate();
        let mut oldest: Vec<(u64, usize)> = tables
            .filter_map(|(number, table)| Some((table.as_mut()?.node.oldest_replies()?, number)))
            .collect();
        oldest.sort_unstable();
        let mut have_gone = false;
        for (at, &(_, number)) in oldest.iter().enumerate() {
            // Until another table's are older.
            let until = oldest.get(at + 1).map_or(u64::MAX, |(heard, _)| *heard);
            if let Some(table) = &mut self.tables[number] {
                have_gone |= table.node.evict_replies(until);
            }
            if self.opening.kept_replies.are_few_enough() {
                break;
            }
        }
        self.reply_eviction.pause = if have_gone { 0 } else { PAUSE };
    }
}
