//! The decision whether to ask the memory node, by how questions went. Kept with the buffers of
//! lookups in batches.

/// Questions in vain in a row after which some lookups ask no more.
const PATIENCE: u32 = 4;
/// Lookups that are skipped before the next question, at most.
const MOST_SKIPPED: u32 = 1024;

/// One thread's record of how its questions about a table went.
///
/// A memory node may have no view of a table for long, where its models find no room, or where all
/// values are external: then each question is a round trip for nothing. So after four in a row the
/// next four lookups ask nothing, and twice as many after every second further question in vain, at
/// most 1024; after the others, four. For the first question after long finds a view that was not
/// brought up to date: it is the second one that tells whether there is one at all. A question is
/// in vain if it has an answer for less than half of its keys: the round trip of the others is
/// lost. One that is not makes all well.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct AskBackoff {
    /// Questions in a row that were in vain.
    failed_questions: u32,
    /// Lookups that ask nothing yet.
    to_skip: u32,
}

impl AskBackoff {
    /// Whether the next lookup asks.
    pub(super) fn may_ask(&mut self) -> bool {
        let may = self.to_skip == 0;
        self.to_skip = self.to_skip.saturating_sub(1);
        may
    }

    /// Notes that of a question about `keys` keys `answered` were answered.
    pub(super) fn note_answers(&mut self, answered: usize, keys: usize) {
        self.failed_questions =
            if answered * 2 >= keys { 0 } else { self.failed_questions.saturating_add(1) };
        self.to_skip = match self.failed_questions.checked_sub(PATIENCE) {
            None => 0,
            Some(more) if more % 2 == 1 => PATIENCE,
            Some(more) => (PATIENCE << (more / 2).min(16)).min(MOST_SKIPPED),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_in_vain_become_rare_and_do_not_end() {
        let mut asking = AskBackoff::default();
        let mut asked_of = |lookups: u32| {
            let mut asked = 0;
            for _ in 0..lookups {
                if asking.may_ask() {
                    asked += 1;
                    asking.note_answers(31, 64);
                }
            }
            asked
        };
        assert_eq!(asked_of(4), 4);
        assert_eq!(asked_of(5), 1);
        assert_eq!(asked_of(10_000), 31, "two of 1030 at last");
        assert_eq!(asked_of(103_000), 200);
        asking.note_answers(32, 64);
        assert!(asking.may_ask());
    }

    /// Each question was the first one for a thousand lookups, found a view of before these, and
    /// was in vain.
    #[test]
    fn a_view_that_a_question_has_brought_up_to_date_is_asked_before_it_is_old() {
        const OLD: u32 = 100;
        let (mut asking, mut updated, mut answered) = (AskBackoff::default(), 0, 0);
        for _ in 0..40 {
            asking.note_answers(0, 1);
        }
        for lookup in OLD..20_000 {
            if asking.may_ask() {
                let is_new = lookup - updated < OLD;
                asking.note_answers(usize::from(is_new), 1);
                updated = lookup;
                answered += u32::from(is_new);
            }
        }
        assert!(answered > 15_000, "{answered} answered");
    }
}
