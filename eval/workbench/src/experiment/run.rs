//! Runs of a system with its published parameters, and with the best of those tried.

use super::candidate::{Candidate, inner_levels};
use super::{Experiment, Parameters, Run, SystemName};
use crate::BuildError;
use crate::bench::Measured;
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
    /// smaller experiment found are slower here. The best run tells of wrong answers of all that
    /// were tried.
    pub fn run_both(&self, name: SystemName) -> [Result<Run, BuildError>; 2] {
        let published = self.with_published(name);
        let mut wrong = Wrong::default();
        let found = self.with_best(name, || published.clone(), &mut wrong);
        let best = match (&published, found) {
            (Ok(one), Ok(other)) if one.measured.per_second > other.measured.per_second => published.clone(),
            (Ok(_), Err(_)) => published.clone(),
            (_, found) => found,
        };
        [published, best.map(|run| wrong.told_by(run))]
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
        wrong: &mut Wrong,
    ) -> Result<Run, BuildError> {
        let search = self.search.map_or_else(|| self.shortened(), Clone::clone);
        let levels = inner_levels(name);
        // Those that are compared have the smaller experiment's budget.
        let with = |inner: &Option<Inner>| Candidate::of(name, Parameters::Published, &search, *inner);
        let each: Vec<_> = levels.iter().flat_map(with).collect();
        let inner = fastest(&each, &search, wrong);
        let of = |experiment: &Experiment<'_>| {
            Candidate::of(name, Parameters::Best, experiment, levels.get(inner).copied().flatten())
        };
        let best = fastest(&of(&search), &search, wrong);
        match of(self).get(best) {
            // The first one of the first levels is the published one.
            Some(candidate) if (inner, best) != (0, 0) => candidate.run(self),
            _ => published(),
        }
    }
}

/// Wrong answers of candidates, which are told whichever of them is chosen.
#[derive(Default)]
struct Wrong {
    count: u64,
    first: Option<String>,
}

impl Wrong {
    fn add(&mut self, candidate: &Candidate, measured: &Measured) {
        self.count += measured.wrong;
        if let Some(first) = &measured.first_wrong {
            self.first.get_or_insert_with(|| format!("with {}: {first}", candidate.text));
        }
    }

    /// The run that was chosen, with these beside its own.
    fn told_by(self, mut run: Run) -> Run {
        run.measured.wrong += self.count;
        run.measured.first_wrong = run.measured.first_wrong.or(self.first);
        run
    }
}

/// Which of the candidates is the fastest in an experiment, the first if none is; what does not fit
/// the budget, or answers wrongly, is not. One alone need not be measured.
fn fastest(all: &[Candidate], search: &Experiment<'_>, wrong: &mut Wrong) -> usize {
    let mut best = (0, 0.0);
    for (i, candidate) in all.iter().enumerate().filter(|_| all.len() > 1) {
        let Ok(measured) = (candidate.measure)(search) else { continue };
        wrong.add(candidate, &measured);
        if measured.wrong == 0 && measured.per_second > best.1 {
            best = (i, measured.per_second);
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
    fn a_candidate_that_answers_wrongly_is_told_of_although_another_is_faster() {
        let keys: Arc<Vec<u64>> = Arc::new((1..=1_000).map(|key| key << 20).collect());
        let operations: Vec<_> = keys.iter().map(|&key| Operation::Read { key }).collect();
        let experiment = Experiment {
            keys: Arc::clone(&keys),
            sizes: Sizes { key: 8, value: 8 },
            hosts: Hosts::paper(NicSpec::CX6_100G),
            budget: 1 << 20,
            operations: &operations,
            warm: 500,
            by_recency: false,
            fixed: Fixed::default(),
            window: None,
            search: None,
        };
        let right = experiment.run(SystemName::Smart, Parameters::Published).expect("a run").measured;
        assert_eq!(right.wrong, 0);
        let of = |text: &str, per_second: f64, wrong: u64| {
            let first_wrong = (wrong > 0).then(|| "a key has no value".to_owned());
            let measured = Measured { per_second, wrong, first_wrong, ..right.clone() };
            Candidate { text: text.to_owned(), measure: Box::new(move |_| Ok(measured.clone())) }
        };
        let all = [of("published", 1e6, 0), of("wide", 3e6, 2), of("narrow", 2e6, 0), of("full", 1e5, 1)];
        let mut wrong = Wrong::default();
        let best = fastest(&all, &experiment, &mut wrong);
        assert_eq!(all[best].text, "narrow");
        let told = wrong.told_by(all[best].run(&experiment).expect("a run")).measured;
        assert_eq!((told.wrong, told.first_wrong.as_deref()), (3, Some("with wide: a key has no value")));
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
