//! The ways in which the quickstart looks up, and what it finds of each.

use crate::run::verify::Verified;

/// Keys per group.
pub(super) const GROUP: usize = 32;

/// A line of the table: a system, asked one by one or in groups.
pub(super) struct Line {
    pub label: &'static str,
    pub system: usize,
    pub batch: usize,
}

/// Systems by index: both plans, then the maps.
pub(super) const LINES: [Line; 6] = [
    Line { label: "two-stage get", system: 0, batch: 1 },
    Line { label: "range get", system: 1, batch: 1 },
    Line { label: "hashmap get", system: 2, batch: 1 },
    Line { label: "btreemap get", system: 3, batch: 1 },
    Line { label: "two-stage, 32 keys", system: 0, batch: GROUP },
    Line { label: "range, 32 keys", system: 1, batch: GROUP },
];
/// The line others are compared with.
pub(super) const REFERENCE: usize = 2;

/// A line's figures.
pub(super) struct Figures {
    pub ns: f64,
    pub verified: Verified,
}

/// What is known of a data set after its stop.
pub(super) struct Stop {
    pub name: String,
    /// By line.
    pub figures: Vec<Figures>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_the_hashmap() {
        assert_eq!((LINES[REFERENCE].label, LINES[REFERENCE].system), ("hashmap get", 2));
        assert!(LINES.iter().all(|line| [1, GROUP].contains(&line.batch)));
    }
}
