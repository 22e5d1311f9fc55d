//! What the operator is told of again and again, and not each time.

use std::fmt;
use std::time::{Duration, Instant};

use tracing::error;

/// When each was told last.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// That a write or a lookup was refused because of a damaged record.
    pub(crate) refused: NowAndThen,
    /// That work between requests failed.
    pub(crate) work: NowAndThen,
}

/// Tells the same no oftener than every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct NowAndThen(Option<Instant>);

impl NowAndThen {
    const PAUSE: Duration = Duration::from_secs(10);

    pub(crate) fn tell(&mut self, now: Instant, what: fmt::Arguments<'_>) {
        if self.is_due(now) {
            error!("{what}");
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|at| now.saturating_duration_since(at) >= Self::PAUSE);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_told_now_and_then_and_keeps_nothing_else_from_being_told() {
        let (mut told, begun) = (Told::default(), Instant::now());
        let due = [0, 1, 9, 10, 11, 25].map(|second| told.work.is_due(begun + Duration::from_secs(second)));
        assert_eq!(due, [true, false, false, true, false, true]);
        assert!(told.refused.is_due(begun));
    }
}
