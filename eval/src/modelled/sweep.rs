//! `sweep` in the model: lookups of every system at several values of one setting.

use anyhow::{Context, bail, ensure};
use fpcache_datasets::Bar;
use fpcache_workbench::nic::NicSpec;

use super::options::systems;
use super::row::Tag;
use super::rows::{Place, Rows};
use super::{Modelled, seeded};
use crate::run::options::RunArgs;
use crate::sweep::options::SweepArgs;
use crate::sweep::points::Over;
use crate::systems::SystemName;
use crate::verdict::Verdict;

/// The card of a sweep without `--transport`.
const CARD: NicSpec = NicSpec::CX6_100G;

/// Runs a sweep over modelled cards and reports it.
///
/// # Errors
/// If options contradict each other or the model, or there is no memory for the keys.
pub fn sweep(arguments: &SweepArgs) -> anyhow::Result<Verdict> {
    let others = [
        ("--threads", arguments.over == Over::Threads, "sweep over clients"),
        ("--plans", !arguments.plans.is_empty(), "FPCache has one line there: use --plan"),
        ("--variants", !arguments.variants.is_empty(), "FPCache has one line there: use --variant"),
        ("--policies", !arguments.policies.is_empty(), "the hot cache goes by heat"),
    ];
    for (option, is_given, because) in others {
        ensure!(!is_given, "{option}: not in the model of network cards: {because}");
    }
    let is_of_fpcache = matches!(arguments.over, Over::Fill | Over::FingerprintBits);
    ensure!(
        !is_of_fpcache || systems(&arguments.run)?.contains(&SystemName::Fpcache),
        "a sweep over {} needs fpcache among the systems, whose alone it is: add it with --system",
        arguments.over.name()
    );
    let points = points(arguments)?;
    // All of them are looked at before the first is measured.
    for point in &points {
        point.modelled(&point.run)?;
    }
    let mut rows = rows_of(arguments)?;
    let bar = Bar::default();
    for seeded in seeded(&arguments.run) {
        let with_seed = |point: &Point| RunArgs { seed: seeded.seed, ..point.run.clone() };
        let Some(first) = points.first() else { bail!("--values: write one") };
        let (keys, source) = first.modelled(&with_seed(first))?.keys(&bar)?;
        for point in &points {
            point.modelled(&point.run)?.check_memory(keys.len() as u64)?;
        }
        for (at, point) in points.iter().enumerate() {
            eprintln!("point {} of {}: {} {}", at + 1, points.len(), arguments.over.name(), point.value);
            let swept = Some((arguments.over.name(), point.value.clone()));
            let tag = Tag { source: source.clone(), swept, workload: None };
            let run = with_seed(point);
            let looked = point.modelled(&run)?.look_up(&keys, &tag, (&mut rows, &bar));
            looked.with_context(|| format!("--values {}", point.value))?;
        }
    }
    rows.end()
}

/// The rows of this sweep so far, whether it is to start over or not.
fn rows_of(arguments: &SweepArgs) -> anyhow::Result<Rows> {
    let options = SweepArgs { fresh: false, ..arguments.clone() };
    Rows::new("sweep", &arguments.run, &options, Place::Kept(arguments.out.as_deref(), arguments.fresh))
}

/// One value, as it was written.
struct Point {
    value: String,
    run: RunArgs,
    over: Over,
}

impl Point {
    fn modelled<'r>(&self, run: &'r RunArgs) -> anyhow::Result<Modelled<'r>> {
        let nic = match (self.over, run.transport.card()) {
            (Over::Nic, _) => NicSpec::named(&self.value)?,
            (_, Some(card)) => NicSpec::named(card)?,
            (_, None) => CARD,
        };
        let modelled = Modelled::new(run, nic, Some(self.over));
        let modelled = modelled.with_context(|| format!("--values {}", self.value))?;
        modelled
            .check_length("--lookups", run.lookups)
            .with_context(|| format!("--values {}", self.value))?;
        Ok(modelled)
    }
}

/// The values in the order in which they were given, each once.
fn points(arguments: &SweepArgs) -> anyhow::Result<Vec<Point>> {
    let option = arguments.over.option();
    ensure!(
        !arguments.given_too,
        "--{} is what is swept: leave it away, --values has its values",
        option.name
    );
    let mut points: Vec<Point> = Vec::new();
    for text in &arguments.values {
        let mut run = arguments.run.clone();
        if arguments.over != Over::Nic {
            arguments.over.set(&mut run, text).with_context(|| format!("--values {text}"))?;
        }
        if points.iter().all(|point| point.value != *text) {
            points.push(Point { value: text.clone(), run, over: arguments.over });
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};
    use crate::modelled::testing::rows_in;

    fn parse(options: &str) -> SweepArgs {
        let Command::Sweep(arguments) = command("sweep", options).expect("options") else {
            panic!("no `sweep`")
        };
        *arguments
    }

    fn rows(options: &str) -> Vec<serde_json::Value> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rows.json");
        let options =
            format!("--dataset uniform:20K --lookups 6K --cache 400KB {options} --json {}", file.display());
        // What is swept is not given as well.
        let options = match options.contains("--over cache") {
            true => options.replace("--cache 400KB", ""),
            false => options,
        };
        assert_eq!(crate::sweep::sweep(&parse(&options)).expect("figures"), Verdict::AllRight);
        rows_in(&file)
    }

    #[test]
    fn every_axis_of_the_model_changes_what_it_says() {
        let of = |row: &serde_json::Value, field: &str| row[field].as_f64().expect("a number");
        let by_key = rows(
            "--transport nic:cx6-100g --over key-bytes --values 8,128 --system fpcache,rolex --clients 48",
        );
        assert_eq!(by_key.len(), 4);
        assert!(
            of(&by_key[3], "bytes_per_operation") > 5.0 * of(&by_key[1], "bytes_per_operation"),
            "{by_key:?}"
        );
        let by_card = rows("--over nic --values cx6-100g,cx3-40g --system smart --clients 384");
        assert!(of(&by_card[0], "per_second") > 2.0 * of(&by_card[1], "per_second"), "{by_card:?}");
        assert_eq!(
            (&by_card[1]["value"], &by_card[1]["transport"]),
            (&"cx3-40g".into(), &"nic:cx3-40g".into())
        );
        let by_clients =
            rows("--transport nic:cx6-100g --over clients --values 6,48 --system fpcache,sherman");
        assert!(of(&by_clients[2], "per_second") > 4.0 * of(&by_clients[0], "per_second"), "{by_clients:?}");
        let by_nodes = rows("--transport nic:cx6-100g --over memory-nodes --values 1,2 --system sherman");
        assert!(of(&by_nodes[1], "per_second") > 1.5 * of(&by_nodes[0], "per_second"), "{by_nodes:?}");
        let by_bound =
            rows("--transport nic:cx6-100g --over epsilon --values 8,64 --system rolex,fpcache --clients 48");
        assert!(
            of(&by_bound[2], "bytes_per_operation") > 2.0 * of(&by_bound[0], "bytes_per_operation"),
            "{by_bound:?}"
        );
        let by_budget =
            rows("--transport nic:cx6-100g --over cache --values 20KB,1MB --system smart --clients 48");
        assert!(
            of(&by_budget[1], "round_trips_per_operation") < of(&by_budget[0], "round_trips_per_operation")
        );
    }

    /// Two budgets that hold all that is looked up looked as if caches had no effect.
    #[test]
    fn hot_caches_tell_their_hits_and_whether_they_were_full() {
        let rows = rows(
            "--transport nic:cx6-100g --over cache --values 12KB,10MB --system fpcache,smart --clients 48 --dist zipf:0.9 \
             --warm-up 60K",
        );
        let of = |row: &serde_json::Value, field: &str| row["hot_cache"][field].as_u64().expect("a number");
        let (small, large) = (&rows[0], &rows[2]);
        for row in [small, large] {
            let (hits, misses) = (of(row, "hits") as f64, of(row, "misses") as f64);
            assert_eq!(row["hit_rate"].as_f64(), Some(hits / (hits + misses)), "{row}");
        }
        assert!(large["hit_rate"].as_f64() > small["hit_rate"].as_f64(), "{small} {large}");
        assert!(of(small, "entries") * 10 >= of(small, "capacity") * 9, "{small}");
        assert!(of(large, "entries") * 10 < of(large, "capacity") * 9, "{large}");
        assert!(rows[1]["hit_rate"].is_null() && rows[1].get("hot_cache").is_none(), "{}", rows[1]);
    }

    #[test]
    fn one_seed_gives_the_same_rows_twice_and_another_does_not() {
        let of = |seed: u64| {
            rows(&format!(
                "--transport nic:cx6-100g --over clients --values 6,48 --system fpcache,rolex,chime --seed {seed}"
            ))
        };
        let first = of(1);
        assert_eq!(first, of(1));
        assert_ne!(first, of(2));
    }

    #[test]
    fn contradictions_are_refused_with_what_there_is() {
        let run = |options: &str| {
            let arguments = parse(&format!("--dataset uniform:10K {options}"));
            crate::sweep::sweep(&arguments).map_err(|error| format!("{error:#}"))
        };
        let cases = [
            ("--over nic --values cx9", "cx6-100g"),
            ("--over nic --values cx6-100g --transport nic:cx5-100g", "is what is swept"),
            ("--over clients --values 48", "nic:cx6-100g"),
            ("--over clients --values 100 --transport nic:cx6-100g", "102"),
            ("--over clients --values x --transport nic:cx6-100g", "--values x"),
            ("--over clients --values 6,384 --lookups 1K --transport nic:cx6-100g", "use 3840"),
            ("--over key-bytes --values 4 --transport nic:cx6-100g", "8 or more"),
            ("--over memory-nodes --values 65 --transport nic:cx6-100g", "1 to 64"),
            ("--over threads --values 2 --transport nic:cx6-100g", "clients"),
            ("--over epsilon --values 8 --plans auto --transport nic:cx6-100g", "--plan"),
            ("--over fill --values 0.5,0.9 --system smart,chime --transport nic:cx6-100g", "needs fpcache"),
            ("--over fingerprint-bits --values 8 --system smart --transport nic:cx6-100g", "needs fpcache"),
            ("--over fill --values 0.5 --parameters best --transport nic:cx6-100g", "--fill is a parameter"),
        ];
        assert_refused(run, &cases);
    }

    #[test]
    fn a_point_that_fails_has_rows_and_the_others_are_written_as_json_and_csv() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = format!(
            "--dataset uniform:20K --lookups 6K --clients 48 --system fpcache,sherman --transport nic:cx6-100g --over cache \
             --values 1KiB,400KB --out {}",
            folder.path().display()
        );
        let error = format!("{:#}", crate::sweep::sweep(&parse(&options)).expect_err("no room for models"));
        assert!(error.contains("1 of 4") && error.contains("fpcache 1KiB"), "{error}");
        let rows = rows_in(&folder.path().join("results.json"));
        assert_eq!(rows.iter().filter(|row| row["per_second"].is_number()).count(), 3, "{rows:?}");
        let csv = std::fs::read_to_string(folder.path().join("results.csv")).expect("CSV");
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 5, "{csv}");
        let columns = |line: &str| line.split(',').count();
        assert!(lines[0].contains("per_second") && lines[0].contains("error"), "{}", lines[0]);
        assert_eq!(columns(lines[2]), columns(lines[4]), "{csv}");
    }

    #[test]
    fn figures_of_others_are_left_and_a_fresh_sweep_takes_nothing_of_an_interrupted_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = format!(
            "--dataset uniform:20K --lookups 6K --clients 48 --system smart --transport nic:cx6-100g --over theta \
             --values 0.5 --out {}",
            folder.path().display()
        );
        for name in ["results.json", "results.csv"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "mine").expect("written");
            let error = format!("{:#}", crate::sweep::sweep(&parse(&options)).expect_err("not ours"));
            assert!(error.contains(name) && error.contains("--out"), "{error}");
            assert!(error.contains("no rows of such a sweep"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), "mine");
            std::fs::remove_file(&path).expect("gone");
        }
        let rows = rows_of(&parse(&options)).expect("rows");
        let name = "smart Some(\"0.5\") None seed 42, generated keys";
        rows.once(name, || Err(fpcache_workbench::BuildError("as it was".into()))).expect_err("kept");
        drop(rows);
        let fresh = parse(&format!("{options} --fresh"));
        assert_eq!(crate::sweep::sweep(&fresh).expect("made anew"), Verdict::AllRight);
    }

    #[test]
    fn an_interrupted_command_makes_what_it_had_made_no_second_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rows.json");
        let options = format!(
            "--dataset uniform:20K --lookups 6K --clients 48 --system smart --transport nic:cx6-100g --over theta \
             --values 0.5,0.9 --json {}",
            file.display()
        );
        let arguments = parse(&options);
        let rows = rows_of(&arguments).expect("rows");
        let name = "smart Some(\"0.5\") None seed 42, generated keys";
        let made = rows.once(name, || Err(fpcache_workbench::BuildError("as it was".into())));
        drop(rows);
        assert!(made.is_err());
        let error = format!("{:#}", crate::sweep::sweep(&arguments).expect_err("kept"));
        assert!(error.contains("as it was"), "{error}");
        // It is the end of that, and its rows are no longer those of an interruption.
        let text = || std::fs::read_to_string(&file).expect("JSON");
        let before = text();
        let error = format!("{:#}", crate::sweep::sweep(&arguments).expect_err("there are others"));
        assert!(error.contains("rows.json") && error.contains("--fresh") && text() == before, "{error}");
        // It said of finished sweeps and of all other figures the same.
        assert!(error.contains("came to its end") && error.contains("no points are added"), "{error}");
        let fresh = SweepArgs { fresh: true, ..arguments };
        assert_eq!(crate::sweep::sweep(&fresh).expect("figures"), Verdict::AllRight);
        assert_ne!(text(), before);
    }
}
