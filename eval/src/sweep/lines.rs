//! The lines of a sweep: ways of looking up beside each other, and what they are called.

use fpcache_client::{ClientConfig, PlanChoice, Policy, Variant};

use crate::run::options::RunArgs;
use crate::run::row::Row;

/// One way of looking up beside others; `None` leaves the choice to the option of `run`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// The plan.
    pub plan: Option<PlanChoice>,
    /// The variant of the hot cache.
    pub variant: Option<Variant>,
    /// The policy of the hot cache.
    pub policy: Option<Policy>,
}

impl Line {
    /// How a client of this line behaves at a point.
    pub fn client_config(&self, run: &RunArgs) -> ClientConfig {
        let mut config = run.client_config();
        config.plan = self.plan.unwrap_or(config.plan);
        if let Some(cache) = &mut config.cache {
            cache.variant = self.variant.unwrap_or(cache.variant);
            cache.policy = self.policy.unwrap_or(cache.policy);
        }
        config
    }
}

/// What a row's line is called: its system, and what tells it from the others of that system.
pub fn label(row: &Row, rows: &[Row]) -> String {
    let mut label = row.system.clone();
    let fields: [fn(&Row) -> Option<&str>; 4] = [
        |row| row.plan.as_deref(),
        |row| row.variant.as_deref(),
        |row| row.policy.as_deref(),
        |row| row.groups.as_deref(),
    ];
    for field in fields {
        let others = || rows.iter().filter(|other| other.system == row.system);
        if others().any(|other| field(other) != field(row)) {
            label.push(' ');
            label.push_str(field(row).unwrap_or("-"));
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_groups_are_told_apart() {
        let of = |groups: Option<&str>| Row {
            system: "fpcache".to_owned(),
            groups: groups.map(str::to_owned),
            ..Row::default()
        };
        let rows = [of(None), of(Some("plain")), of(Some("pilots"))];
        let labels: Vec<String> = rows.iter().map(|row| label(row, &rows)).collect();
        assert_eq!(labels, ["fpcache -", "fpcache plain", "fpcache pilots"]);
        assert_eq!(label(&rows[1], &rows[1..2]), "fpcache");
    }
}
