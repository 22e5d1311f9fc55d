//! Rate-limited messages to the operator about what recurs.

use std::fmt;
use std::time::{Duration, Instant};

use tracing::error;

/// When each was told last.
#[derive(Debug, Default)]
pub(crate) struct OperatorLog {
    /// That a write or a lookup was refused because of a damaged record.
    pub(crate) refused: RateLimit,
    /// That work between requests failed.
    pub(crate) work: RateLimit,
    /// That the table is full.
    full: Option<Instant>,
}

impl OperatorLog {
    /// How often a table that stays full is told of.
    const FULL_PAUSE: Duration = Duration::from_secs(600);

    /// Whether it is to be told now that the table is full.
    pub(crate) fn is_full_due(&mut self, now: Instant) -> bool {
        let is_due = self.full.is_none_or(|at| now.saturating_duration_since(at) >= Self::FULL_PAUSE);
        if is_due {
            self.full = Some(now);
        }
        is_due
    }
}

/// Tells the same of a place no oftener than every ten seconds, and of a bounded number of places
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct RateLimit(Vec<(u64, Instant)>);

impl RateLimit {
    const PAUSE: Duration = Duration::from_secs(10);
    const MOST_PLACES: usize = 64;

    /// Tells what is the matter with the place of this offset; 0 if it has none.
    pub(crate) fn tell(&mut self, now: Instant, place: u64, what: fmt::Arguments<'_>) {
        if self.is_due(now, place) {
            error!("{what}");
        }
    }

    fn is_due(&mut self, now: Instant, place: u64) -> bool {
        self.0.retain(|(_, at)| now.saturating_duration_since(*at) < Self::PAUSE);
        let is_due = self.0.len() < Self::MOST_PLACES && self.0.iter().all(|(told, _)| *told != place);
        if is_due {
            self.0.push((place, now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_told_now_and_then_and_keeps_nothing_else_from_being_told() {
        let (mut told, begun) = (OperatorLog::default(), Instant::now());
        let due =
            [0, 1, 9, 10, 11, 25].map(|second| told.work.is_due(begun + Duration::from_secs(second), 8));
        assert_eq!(due, [true, false, false, true, false, true]);
        assert!(told.refused.is_due(begun, 8));
    }

    #[test]
    fn a_table_that_stays_full_is_told_of_at_once_and_then_seldom() {
        let (mut told, begun) = (OperatorLog::default(), Instant::now());
        let due = [0, 1, 599, 600, 1199, 1200].map(|s| told.is_full_due(begun + Duration::from_secs(s)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    #[test]
    fn each_place_is_told_at_once_but_not_any_number_of_them() {
        let (mut told, begun) = (RateLimit::default(), Instant::now());
        assert!(told.is_due(begun, 8) && told.is_due(begun, 16) && !told.is_due(begun, 8));
        let many = (3..1000).filter(|place| told.is_due(begun, 8 * place)).count();
        assert_eq!(many, RateLimit::MOST_PLACES - 2);
        assert!(told.is_due(begun + RateLimit::PAUSE, 8 * 999));
    }
}
