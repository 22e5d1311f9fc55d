use std::sync::Arc;

use fpcache_workbench::Sizes;
use fpcache_workbench::bench::Operation;
use fpcache_workbench::experiment::{Fixed, Parameters};
use fpcache_workbench::nic::Hosts;

use super::*;
use crate::cli::Command;
use crate::cli::testing::command;

/// Rows of these systems with these options; all tell of one run.
fn rows(options: &str, systems: &[SystemName]) -> Vec<Row> {
    let options = format!("--transport nic:cx6-100g --dataset uniform:1K {options}");
    let Command::Run(arguments) = command("run", &options).expect("options") else { panic!("no `run`") };
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
    let run = experiment.run(experiment::SystemName::Smart, Parameters::Published).expect("a run");
    let row =
        |&system: &SystemName| Row::new(&arguments, &experiment, system, &Tag::default(), Ok(run.clone()));
    systems.iter().map(row).collect()
}

#[test]
fn wrong_answers_of_every_seed_are_in_the_merged_row() {
    let mut seeds = rows("", &[SystemName::Smart; 3]);
    for (at, row) in seeds.iter_mut().enumerate() {
        let measured = &mut row.run.as_mut().expect("a run").measured;
        measured.per_second = 1e6 * (1 + at) as f64;
        // The slowest and the fastest answered wrongly, and the median did not.
        measured.wrong = [2, 0, 1][at];
        measured.first_wrong =
            [Some("7 was absent".to_owned()), None, Some("9 was absent".to_owned())][at].clone();
    }
    let merged = Row::merged(&seeds).expect("a row");
    assert_eq!((merged.wrong(), merged.run.as_ref().map(|run| run.measured.per_second)), (3, Some(2e6)));
    let text = table(&[merged]);
    assert!(text.contains("smart: 3 wrong answers, the first: 7 was absent"), "{text}");
}

#[test]
fn a_table_says_that_fpcache_is_set_up_by_options_and_the_others_are_not() {
    let both = [SystemName::Fpcache, SystemName::Smart];
    let reversed = [SystemName::Smart, SystemName::Fpcache];
    for (options, systems, said) in [
        ("--epsilon 64", &both[..], "per key, fpcache as the options say, the others as published;"),
        ("", &reversed[..], "per key, fpcache as the options say, the others as published;"),
        ("", &both[..1], "per key, fpcache as the options say;"),
        ("", &both[1..], "per key, all with published parameters;"),
        ("--parameters published", &both[..], "per key, all with published parameters;"),
        ("--parameters best", &both[..], "per key, all with best parameters;"),
    ] {
        let text = table(&rows(options, systems));
        assert!(text.contains(said), "{options}: {text}");
    }
}
