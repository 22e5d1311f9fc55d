//! A rate-limited log of clients that were refused or disconnected, and of the fabric's troubles.

use std::time::{Duration, Instant};

use fpcache_fabric::FabricError;

/// How often a line may be written, of clients and of troubles each.
const PAUSE: Duration = Duration::from_secs(1);

/// What was told, and how much was not.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    of_clients: Told,
    of_troubles: Told,
}

#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    untold: u64,
}

impl Refusals {
    /// The line to write, if one may be written. A region that there is not is the client's to
    /// tell.
    pub(crate) fn line(&mut self, error: &FabricError, now: Instant) -> Option<String> {
        if matches!(error, FabricError::NoSuchRegion { .. }) {
            return None;
        }
        // The fabric tells some of its own troubles once, whatever clients do meanwhile.
        let told = match error {
            FabricError::Io { .. } | FabricError::Rdma(_) => &mut self.of_troubles,
            _ => &mut self.of_clients,
        };
        if told.at.is_some_and(|at| now.saturating_duration_since(at) < PAUSE) {
            told.untold += 1;
            return None;
        }
        told.at = Some(now);
        Some(match std::mem::take(&mut told.untold) {
            0 => error.to_string(),
            untold => format!("{error} ({untold} more were not shown)"),
        })
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
        let trouble = FabricError::from(fpcache_fabric::RdmaError::Unusable("too little".to_owned()));
        let line = refusals.line(&trouble, now + Duration::from_millis(10));
        assert_eq!(line.as_deref(), Some("too little"));
    }
}
