//! The limit on replies kept for repeated requests. All tables share it; above it, the replies of
//! the clients that have been silent longest are discarded first.

use super::Catalogue;

impl Catalogue {
    /// Lets replies go if the tables keep too many.
    #[inline]
    pub(super) fn keep_few_replies(&mut self) {
        if self.opening.kept_replies.are_too_many() {
            self.let_replies_go();
        }
    }

    #[cold]
    fn let_replies_go(&mut self) {
        const PAUSE: u32 = 64;
        if let Some(left) = self.letting_go.pause.checked_sub(1) {
            self.letting_go.pause = left;
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
                have_gone |= table.node.let_replies_go(until);
            }
            if self.opening.kept_replies.are_few_enough() {
                break;
            }
        }
        self.letting_go.pause = if have_gone { 0 } else { PAUSE };
    }
}
