//! Runs of a system with its published parameters, and with the best of those tried.

use super::candidate::{Candidate, inner_levels};
use super::{Experiment, Parameters, Run, SystemName};
use crate::BuildError;
use crate::fpcache::Options;
use crate::inner_nodes::Inner;

impl Experiment<'_> {
    /// Measures a system with the parameters that its authors publish, or with the best of those
    /// tried.
    ///
    /// # Errors
    /// If it cannot be built in the budget, whatever its parameters.
    pub fn run(&self, name: SystemName, parameters: Parameters) -> Result<Run, BuildError> {
        match parameters {
            Parameters::Published => self.with_published(name),
            Parameters::Best => {
                let [_, best] = self.run_both(name);
                best
            }
        }
    }

    /// Measures a system with both. The published parameters are the best where those that a
    /// smaller experiment found are slower here.
    pub fn run_both(&self, name: SystemName) -> [Result<Run, BuildError>; 2] {
        let published = self.with_published(name);
        let found = self.with_best(name, || published.clone());
        let best = match (&published, found) {
            (Ok(one), Ok(other)) if one.measured.per_second > other.measured.per_second => published.clone(),
            (Ok(_), Err(_)) => published.clone(),
            (_, found) => found,
        };
        [published, best]
    }

    /// Measures FPCache set up in this way.
    ///
    /// # Errors
    /// If it cannot be built in the budget.
    pub fn run_fpcache(&self, options: &Options) -> Result<Run, BuildError> {
        Candidate::fpcache(*options).run(self)
    }

    fn with_published(&self, name: SystemName) -> Result<Run, BuildError> {
        let all = Candidate::of(name, Parameters::Published, self, None);
        let first = all.first().ok_or_else(|| BuildError(format!("{} has no parameters", name.name())))?;
        first.run(self)
    }

    /// Of a tree first the levels above the leaves are chosen, with everything else as published,
    /// and then the rest with these.
    fn with_best(
        &self,
        name: SystemName,
        published: impl FnOnce() -> Result<Run, BuildError>,
    ) -> Result<Run, BuildError> {
        let search = self.search.map_or_else(|| self.shortened(), Clone::clone);
        let levels = inner_levels(name);
        // Those that are compared have the smaller experiment's budget.
        let with = |inner: &Option<Inner>| Candidate::of(name, Parameters::Published, &search, *inner);
        let each: Vec<_> = levels.iter().flat_map(with).collect();
        let inner = fastest(&each, &search);
        let of = |experiment: &Experiment<'_>| {
            Candidate::of(name, Parameters::Best, experiment, levels.get(inner).copied().flatten())
        };
        let best = fastest(&of(&search), &search);
        match of(self).get(best) {
            // The first one of the first levels is the published one.
            Some(candidate) if (inner, best) != (0, 0) => candidate.run(self),
            _ => published(),
        }
    }
}

/// Which of the candidates is the fastest in an experiment, the first if none is; what does not fit
/// the budget, or answers wrongly, is not. One alone need not be measured.
fn fastest(all: &[Candidate], search: &Experiment<'_>) -> usize {
    let mut best = (0, 0.0);
    for (i, candidate) in all.iter().enumerate().filter(|_| all.len() > 1) {
        match (candidate.measure)(search) {
            Ok(measured) if measured.wrong == 0 && measured.per_second > best.1 => {
                best = (i, measured.per_second);
            }
            Ok(_) | Err(_) => {}
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::fpcache::plan::Plan;

    use super::*;
    use crate::Sizes;
    use crate::bench::Operation;
    use crate::experiment::Fixed;
    use crate::nic::{Hosts, NicSpec};

    #[test]
    fn trees_are_tried_with_other_inner_nodes_and_rolex_with_pointers_to_long_values() {
        let keys: Arc<Vec<u64>> = Arc::new((1..=30_000).map(|key| key << 20).collect());
        let operations: Vec<_> = (0..40_000)
            .map(|i| Operation::Read { key: keys[crate::scatter(i) as usize % keys.len()] })
            .collect();
        let experiment = Experiment {
            keys: Arc::clone(&keys),
            sizes: Sizes { key: 128, value: 128 },
            hosts: Hosts::paper(NicSpec::CX6_100G),
            budget: 50_000,
            operations: &operations,
            warm: 20_000,
            by_recency: false,
            fixed: Fixed::default(),
            window: None,
            search: None,
        };
        for (name, said) in [
            (SystemName::Chime, "inner nodes of"),
            (SystemName::Sherman, "inner nodes of"),
            (SystemName::DmTree, "inner nodes of"),
            (SystemName::Rolex, "behind pointers"),
        ] {
            let [published, best] = experiment.run_both(name).map(|run| run.expect("a run"));
            assert!(!published.parameters.contains(said), "{}", published.parameters);
            assert!(best.parameters.contains(said), "{name:?}: {}", best.parameters);
            let [published, best] = [published, best].map(|run| run.measured.per_second);
            assert!(best > 1.2 * published, "{name:?}: {best} beside {published}");
        }
    }

    #[test]
    fn what_is_compared_over_fewer_keys_has_their_budget() {
        let keys =
            |step: u64| Arc::new((1..=40_000 / step).map(|key| (key * step) << 20).collect::<Vec<u64>>());
        let operations = |keys: &[u64]| -> Vec<_> {
            let of = |i| Operation::Read { key: keys[crate::scatter(i) as usize % keys.len()] };
            (0..20_000).map(of).collect()
        };
        let (few, all) = (keys(10), keys(1));
        let (of_few, of_all) = (operations(&few), operations(&all));
        let large = Experiment {
            keys: all,
            sizes: Sizes { key: 128, value: 128 },
            hosts: Hosts::paper(NicSpec::CX6_100G),
            // Of the fewer keys all inner nodes would fit this, whatever their width.
            budget: 100_000,
            operations: &of_all,
            warm: 10_000,
            by_recency: false,
            fixed: Fixed::default(),
            window: None,
            search: None,
        };
        let small = Experiment { keys: few, budget: 10_000, operations: &of_few, ..large.clone() };
        let best = Experiment { search: Some(&small), ..large }.run(SystemName::DmTree, Parameters::Best);
        let best = best.expect("a run").parameters;
        assert!(best.contains("inner nodes of"), "{best}");
    }

    #[test]
    fn candidates_that_differ_in_fill_alone_are_all_tried() {
        let fixed = Fixed { epsilon: Some(8), plan: Some(Plan::Range), ..Fixed::default() };
        let experiment = Experiment {
            keys: Arc::default(),
            sizes: Sizes { key: 8, value: 8 },
            hosts: Hosts::paper(NicSpec::CX6_100G),
            budget: 1 << 20,
            operations: &[],
            warm: 0,
            by_recency: false,
            fixed,
            window: None,
            search: None,
        };
        let all = Candidate::of(SystemName::FpCache, Parameters::Best, &experiment, None);
        for fill in ["fill 1", "fill 0.95"] {
            let filled = format!(", {fill}, changes together");
            assert_eq!(all.iter().filter(|one| one.text.ends_with(&filled)).count(), 1, "{fill}");
        }
        let [published, others @ ..] = &all[..] else { panic!("nothing is tried") };
        assert!(
            !published.text.contains("fill") && !published.text.contains("together"),
            "{}",
            published.text
        );
        assert!(others.iter().all(|one| one.text.contains("together")));
    }
}
