//! `ycsb` in the model: every system, workload after workload, each over a table loaded anew.

use std::sync::Arc;

use anyhow::{Context, ensure};
use fpcache_datasets::Bar;
use fpcache_datasets::requests::{
    Distribution, Growth, Operation as Drawn, OperationKind, Operations, Workload,
};
use fpcache_workbench::bench::Operation;
use fpcache_workbench::nic::NicSpec;

use super::row::{Mixed, Tag};
use super::rows::{Place, Rows};
use super::{Modelled, Stream, seeded};
use crate::run::options::RunArgs;
use crate::verdict::Verdict;
use crate::ycsb::options::{YcsbArgs, refuse_lookups_only};

/// Runs the workloads over a modelled card and reports them.
///
/// # Errors
/// If options contradict each other or the model, or there is no memory for the keys.
pub fn ycsb(arguments: &YcsbArgs, card: &str) -> anyhow::Result<Verdict> {
    let run = &arguments.run;
    refuse_lookups_only(run)?;
    let others = [
        ("--duration", arguments.duration.is_some(), "use --ops"),
        ("--rate", arguments.rate.is_some(), "clients do one operation after the other"),
        ("--writes-in-flight", arguments.writes_in_flight.is_some(), "clients wait for each write"),
    ];
    for (option, is_given, because) in others {
        ensure!(!is_given, "{option}: not with {}: {because}", run.transport.as_str());
    }
    let nic = NicSpec::named(card)?;
    Modelled::new(run, nic, None)?.check_length("--ops", run.lookups)?;
    let mut rows = Rows::new("ycsb", run, arguments, Place::Replaced)?;
    let bar = Bar::default();
    for run in seeded(run) {
        let modelled = Modelled::new(&run, nic, None)?;
        let (keys, source) = modelled.keys(&bar)?;
        for workload in arguments.workloads() {
            let all = super::options::operations(&run);
            let (loaded, stream) =
                bar.during("drawing operations", all, || draw(arguments, &run, &workload, &keys))?;
            // Where there are not as many keys to insert, there may be fewer.
            modelled.check_length("--ops", stream.operations.len() as u64 - stream.warm)?;
            eprintln!("workload {}", workload.name);
            let mixed = Mixed {
                name: workload.name.to_string(),
                mix: workload.mix.to_string(),
                distribution: workload.distribution.to_string(),
                insert_order: arguments.insert_order.to_string(),
            };
            let tag = Tag { source: source.clone(), swept: None, workload: Some(mixed) };
            modelled.measure(&loaded, &stream, &tag, (&mut rows, &bar))?;
        }
    }
    rows.end()
}

/// The keys that are loaded, and the operations, of which as large a share is to fill caches if
/// there are fewer. Clients share them, so that which keys are recent shows when one begins.
fn draw(
    arguments: &YcsbArgs,
    run: &RunArgs,
    workload: &Workload,
    keys: &Arc<Vec<u64>>,
) -> anyhow::Result<(Arc<Vec<u64>>, Stream)> {
    let (seed, all) = (run.seed, super::options::operations(run));
    let count = usize::try_from(all).context("--ops and --warm-up exceed this machine's memory")?;
    let expected = workload.mix.share(OperationKind::Insert) * count as f64;
    // What is drawn may be somewhat more than its share.
    let wanted = if expected > 0.0 { (expected + 6.0 * expected.sqrt() + 8.0) as u64 } else { 0 };
    let wanted = arguments.inserts.unwrap_or(wanted) as usize;
    let inserts = wanted.min(keys.len() / 2);
    if inserts < wanted {
        eprintln!(
            "note: of {wanted} keys to insert half of the data set's, {inserts}, are there: there may be fewer operations"
        );
    }
    let growth = Growth::split(keys, inserts, arguments.insert_order, seed);
    let drawn = Operations::generate(&growth.loaded, workload, count, seed, 0);
    let mut operations = Vec::with_capacity(count);
    for (number, operation) in
        drawn.play(&growth.loaded, &growth.inserts, 0).by_rank().take(count).enumerate()
    {
        let value = number as u64;
        match operation {
            Drawn::Read(key) => operations.push(Operation::Read { key }),
            Drawn::Update(key) => operations.push(Operation::Update { key, value, reads: false }),
            Drawn::Insert(key) => operations.push(Operation::Insert { key, value }),
            Drawn::Scan(key, count) => operations.push(Operation::Scan { key, count: count.into() }),
            Drawn::ReadModifyWrite(key) => operations.push(Operation::Update { key, value, reads: true }),
        }
    }
    let share = operations.len() as f64 / count.max(1) as f64;
    let warm = (super::options::warm_up(run) as f64 * share) as u64;
    let by_recency = matches!(workload.distribution, Distribution::Latest { .. });
    Ok((Arc::new(growth.loaded), Stream { operations, warm, by_recency }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};
    use crate::modelled::testing::rows_in;

    fn parse(options: &str) -> YcsbArgs {
        let Command::Ycsb(arguments) =
            command("ycsb", &format!("--transport nic:cx6-100g {options}")).expect("options")
        else {
            panic!("no `ycsb`")
        };
        *arguments
    }

    fn rows(options: &str) -> Vec<serde_json::Value> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rows.json");
        let options = format!("--dataset uniform:20K --cache 300KB {options} --json {}", file.display());
        assert_eq!(crate::ycsb::ycsb(&parse(&options)).expect("figures"), Verdict::AllRight);
        rows_in(&file)
    }

    #[test]
    fn every_workload_has_a_row_for_each_system_with_right_answers() {
        let rows = rows("--ops 6K --clients 48 --workload A,C,D,E,F --system fpcache,smart,sherman");
        assert_eq!(rows.len(), 5 * 3);
        let tally = |row: &serde_json::Value, field: &str| row["tally"][field].as_f64().expect("a count");
        for row in &rows {
            let bytes = row["bytes_per_operation"].as_f64().expect("bytes");
            match row["workload"].as_str() {
                Some("E") => assert!(bytes > 30.0 * 16.0, "scans: {row}"),
                Some("C") => assert_eq!(tally(row, "writes") + tally(row, "calls"), 0.0, "{row}"),
                _ => assert!(tally(row, "writes") + tally(row, "calls") > 50.0, "{row}"),
            }
        }
        assert_eq!(rows[6]["distribution"], "latest:0.99");
        // Every other operation of F reads and then updates: of Sherman a READ, and three round
        // trips more, or several for its lock.
        let of_f = &rows[14];
        assert!((&of_f["workload"], &of_f["system"]) == (&"F".into(), &"sherman".into()), "{of_f}");
        assert_eq!(tally(of_f, "operations"), 6_000.0 - 48.0);
        let trips = of_f["round_trips_per_operation"].as_f64().expect("a number");
        assert!(trips > 2.4, "{of_f}");
        assert!(of_f["mix"].is_string() && of_f["insert_order"].is_string(), "{of_f}");
    }

    #[test]
    fn the_newest_keys_are_those_whose_inserts_have_ended() {
        let rows = rows(
            "--ops 20K --clients 192 --workload D --mix read=0.5,update=0.3,insert=0.2 --dist latest:0.99 \
             --system fpcache,smart,dmtree",
        );
        assert_eq!(rows.len(), 6);
        for row in &rows {
            assert!(row["tally"]["lookups"].as_u64() > Some(5_000), "{row}");
            assert_eq!(
                (&row["tally"]["absent"], &row["absent_per_lookup"]),
                (&0.into(), &0.0.into()),
                "{row}"
            );
        }
    }

    #[test]
    fn one_seed_gives_the_same_rows_twice_and_another_does_not() {
        let options = "--ops 6K --clients 48 --workload A,D,E --system fpcache,rolex,dmtree";
        let of = |seed: u64| rows(&format!("{options} --seed {seed}"));
        let first = of(1);
        assert_eq!(first, of(1));
        assert_ne!(first, of(2));
    }

    #[test]
    fn contradictions_are_refused_with_what_there_is() {
        let run = |options: &str| crate::ycsb::ycsb(&parse(options)).map_err(|error| format!("{error:#}"));
        let cases = [
            ("--dataset uniform:10K --workload A --duration 3s", "--ops"),
            ("--dataset uniform:10K --workload A --rate 1K", "one operation after the other"),
            ("--dataset uniform:10K --workload A --writes-in-flight 2", "wait for each"),
            ("--dataset uniform:10K --workload A --clients 100", "102"),
            (
                "--dataset uniform:10K --workload A --ops 100",
                "--ops: 100 are too few for 384 clients: use 3840",
            ),
            ("--dataset uniform:10K --workload D --ops 6K --inserts 5", "--ops"),
            ("--dataset uniform:10K --workload A --negative 0.5", "omit it"),
            ("--dataset words --workload A", "uniform"),
        ];
        assert_refused(run, &cases);
    }
}
