//! Turns in which nothing waits for the disk. Only then are segments replaced in the background,
//! and with `--fsync always` writes that never cease leave none: after a while they wait for a few.

/// Turns in which something waited for the disk until writes wait.
const MOST_PASSED: u32 = 1024;
/// For how many of them one counts in which segments were known to be due.
const DUE: u32 = 32;
/// Quiet turns for which writes wait then, at most.
const TURNS: u32 = 4;

/// How long there has been no such turn.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    passed: u32,
    turns: u32,
}

impl Quiet {
    /// Whether writes are to wait until there has been one.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.passed >= MOST_PASSED
    }

    /// Takes note of a turn: whether nothing waited for the disk, and whether there are segments to
    /// replace.
    pub(super) fn note_turn(&mut self, is_quiet: bool, is_due: bool) {
        if !is_quiet {
            self.passed = (self.passed + if is_due { DUE } else { 1 }).min(MOST_PASSED);
        } else if self.is_wanted() && is_due && self.turns + 1 < TURNS {
            self.turns += 1;
        } else {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_wait_after_a_while_and_for_a_few_turns() {
        let mut quiet = Quiet::default();
        let turns = |quiet: &mut Quiet, is_quiet, is_due| {
            let before = quiet.is_wanted();
            (1..10_000).find(|_| {
                quiet.note_turn(is_quiet, is_due);
                quiet.is_wanted() != before
            })
        };
        for is_due in [true, false] {
            assert_eq!(turns(&mut quiet, false, is_due), Some(if is_due { 32 } else { 1024 }));
            assert_eq!(turns(&mut quiet, true, is_due), Some(if is_due { 4 } else { 1 }));
        }
        assert_eq!(turns(&mut quiet, true, true), None);
    }
}
