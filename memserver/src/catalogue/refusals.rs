//! A rate-limited log of clients that were refused or disconnected, and of the fabric's troubles.

use std::time::{Duration, Instant};

use fpcache_fabric::FabricError;

/// How often a line may be written of clients, and of each trouble.
const PAUSE: Duration = Duration::from_secs(1);

/// What was told, and how much was not.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    told_at: Option<Instant>,
    untold: u64,
    /// The fabric's troubles that were told within the pause.
    troubles: Vec<(String, Instant)>,
}

/// Different troubles that are told within a pause.
const MOST_TROUBLES: usize = 8;

impl Refusals {
    /// The line to write, if one may be written. A region that there is not is the client's to
    /// tell.
    pub(crate) fn line(&mut self, error: &FabricError, now: Instant) -> Option<String> {
        if matches!(error, FabricError::NoSuchRegion { .. }) {
            return None;
        }
        if matches!(error, FabricError::Io { .. } | FabricError::Rdma(_)) {
            return self.trouble(error.to_string(), now);
        }
        if self.told_at.is_some_and(|at| now.saturating_duration_since(at) < PAUSE) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(match std::mem::take(&mut self.untold) {
            0 => error.to_string(),
            untold => format!("{error} ({untold} more were not shown)"),
        })
    }

    /// The line of a trouble of the fabric's own, some of which it tells once: neither refusals nor
    /// other troubles hide it.
    fn trouble(&mut self, text: String, now: Instant) -> Option<String> {
        self.troubles.retain(|(_, at)| now.saturating_duration_since(*at) < PAUSE);
        if self.troubles.len() >= MOST_TROUBLES || self.troubles.iter().any(|(told, _)| *told == text) {
            return None;
        }
        self.troubles.push((text.clone(), now));
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_told_line_by_line() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let error = FabricError::HungUp { peer: "a peer".to_owned(), why: "it dribbles".to_owned() };
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let line = refusals.line(&error, at(0)).expect("the first one is told");
        assert!(line.contains("a peer") && line.contains("it dribbles"), "{line}");
        assert!((1..100).all(|i| refusals.line(&error, at(i)).is_none()));
        let line = refusals.line(&error, at(1000)).expect("a second has passed");
        assert!(line.contains("99 more"), "{line}");
        let nowhere = FabricError::NoSuchRegion { address: String::new(), name: String::new() };
        assert_eq!(refusals.line(&nowhere, at(9000)), None);
    }

    /// A partial failure to register memory is told once, and was not shown if a stranger had been
    /// refused within the second before.
    #[test]
    fn refusals_of_clients_do_not_hide_troubles_of_the_memory_node() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let stranger = FabricError::HungUp { peer: "a peer".to_owned(), why: "it dribbles".to_owned() };
        assert!(refusals.line(&stranger, now).is_some());
        let mut trouble = |what: &str, at| {
            let error = FabricError::from(fpcache_fabric::RdmaError::Unusable(what.to_owned()));
            refusals.line(&error, now + Duration::from_millis(at))
        };
        assert_eq!(trouble("too little", 10).as_deref(), Some("too little"));
        // Nor does one hide another, however often it comes.
        assert_eq!(trouble("too little", 20), None);
        assert_eq!(trouble("it has gone", 20).as_deref(), Some("it has gone"));
        assert_eq!(trouble("too little", 1010).as_deref(), Some("too little"));
    }
}
