//! The lease of a word that tells readers what is reused: by it a look at the word judges READs
//! that came later.
//!
//! A memory node that leases its word waits for the lease's length between storing the word and
//! storing what the word warns of. So a word whose READ was posted at *t* is good for all READs
//! that have completed by *t* plus that length: the word was fetched after *t*, what it does not
//! show was stored after *t*, and what that warns of a lease after *t*, when these READs were over.

use std::time::{Duration, Instant};

/// A word under a lease, as an endpoint knows it: good for all READs that have completed by the
/// lease's length after its own was posted. A memory node waits as long before it stores what a
/// change of the word warns of.
#[derive(Clone, Copy, Debug)]
pub struct LeasedWord {
    length: Duration,
    /// The word, and when its READ was posted.
    known: Option<(u64, Instant)>,
}

impl LeasedWord {
    /// A word that is not known yet. A lease of no length is none.
    pub fn new(length: Duration) -> Self {
        Self { length, known: None }
    }

    /// Whether the word should come with the next READs: what is known of it will soon be too old.
    pub fn is_due(&self, now: Instant) -> bool {
        !self.length.is_zero() && !self.is_younger(now, self.length / 2)
    }

    /// The word of a READ that was posted at that instant.
    pub fn learn(&mut self, word: u64, posted: Instant) {
        self.known = Some((word, posted));
    }

    /// The word, if it is good for READs that have completed by now. An eighth is left for clocks
    /// that differ in speed, and for the time that a store takes to be seen.
    pub fn value(&self, now: Instant) -> Option<u64> {
        let (word, _) = self.known?;
        self.is_younger(now, self.length / 8 * 7).then_some(word)
    }

    fn is_younger(&self, now: Instant, than: Duration) -> bool {
        self.known.is_some_and(|(_, posted)| now.saturating_duration_since(posted) < than)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_due_before_it_is_too_old() {
        let begin = Instant::now();
        let at = |micros| begin + Duration::from_micros(micros);
        let mut word = LeasedWord::new(Duration::from_micros(800));
        assert!(word.is_due(begin) && word.value(begin).is_none());
        word.learn(7, begin);
        assert!(!word.is_due(at(399)) && word.is_due(at(400)));
        assert_eq!((word.value(at(699)), word.value(at(700))), (Some(7), None));
    }

    #[test]
    fn a_lease_of_no_length_is_none() {
        let begin = Instant::now();
        let mut word = LeasedWord::new(Duration::ZERO);
        word.learn(7, begin);
        assert!(!word.is_due(begin + Duration::from_secs(1)) && word.value(begin).is_none());
    }
}
