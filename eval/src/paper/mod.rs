//! The FPCache paper's figures, beside what a model of network cards gives: `fpcache-workbench` at
//! the command line.

pub mod journal;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use fpcache_datasets::Bar;
use fpcache_datasets::count::human;
use fpcache_workbench::experiment::Parameters;
use fpcache_workbench::nic::NicSpec;
use fpcache_workbench::paper::{
    Bench, ClaimRow, Entries, Figure, Filtered, Hotspots, Says, Scale, check_memory, entries, filters, of,
    warm_up,
};
use serde::Serialize;

use self::journal::Journal;
use crate::counts::positive_count;
use crate::data::announce;
use crate::machine::free_memory;
use crate::run::report::{check_json, deliver, none};
use crate::table::new_table;
use crate::verdict::Verdict;

/// Ends the help of `paper`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval paper --figure 6
  fpcache-eval paper --table 2
  fpcache-eval paper --scale 4M --json paper.json

Each row is a statement of the paper as a ratio: what it says, what the systems give here with their published parameters, and with \
the best of those tried. The systems' index code runs over simulated memory, every answer is checked, requests and bytes are \
counted, and a model of network cards says how long they take (docs/nic-model.md). Budgets shrink with --scale: 100 MB are those of \
60 M keys. With --json FILE the same command and build goes on from FILE.runs where it was interrupted. Where a ratio differs from \
the paper's, the row says what binds here.

Exit code: 0 if every answer was right, 1 if one was wrong, 2 wrong usage or a failure.";

/// The options of `paper`.
#[derive(Args, Clone, Debug)]
pub struct PaperArgs {
    /// The paper
    #[arg(long, value_enum, default_value = "fpcache")]
    pub paper: Paper,

    /// One figure, by its number [default: all figures and tables]
    #[arg(long, conflicts_with = "table")]
    pub figure: Option<u32>,

    /// One table, by its number
    #[arg(long)]
    pub table: Option<u32>,

    /// Keys, up to the paper's 60M
    #[arg(long, default_value = "1M", value_parser = positive_count)]
    pub scale: u64,

    /// Cards and network: cx6-100g, cx5-100g, cx3-40g or tcp-25g
    #[arg(long, default_value = "cx6-100g", value_parser = nic)]
    pub nic: NicSpec,

    /// Seeds keys and requests
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Folder with published data sets
    #[arg(long = "datasets-dir", env = "FPCACHE_DATASETS", value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,

    /// Also write the figures as JSON, to a file or, with -, to standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// Jia and Cai, FPCache, Electronics 15, 2026, 2210
    Fpcache,
}

fn nic(text: &str) -> Result<NicSpec, String> {
    NicSpec::named(text).map_err(|unknown| unknown.to_string())
}

/// What is written as JSON: a statement, a row of Table 2, one of Figure 17's memory, or a series
/// of Figure 10.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Row {
    Claim(Box<Of<ClaimRow>>),
    Entries(Box<Of<Entries>>),
    Filtered(Box<Of<Filtered>>),
    Hotspots(Box<Of<Hotspots>>),
}

/// A row with the settings of all.
#[derive(Debug, Serialize)]
struct Of<T> {
    #[serde(flatten)]
    row: T,
    scale: u64,
    nic: &'static str,
    seed: u64,
}

impl PaperArgs {
    fn figure(&self) -> Option<Figure> {
        self.figure.map(Figure::Figure).or(self.table.map(Figure::Table))
    }

    /// What was finished before an interruption, where there is a file for figures.
    fn journal(&self) -> anyhow::Result<Option<Journal>> {
        let Some(json) = self.json.as_deref().filter(|json| *json != Path::new("-")) else { return Ok(None) };
        let program = journal::program().context("this program, by which finished runs are known")?;
        let of = format!(
            "paper: {} keys, {}, seed {}, data of {}, program {program:032x}",
            self.scale,
            self.nic.name,
            self.seed,
            self.data_dir.as_deref().map_or("no folder".into(), |folder| format!("{folder:?}"))
        );
        let journal = Journal::open(Journal::beside(json), &of)?;
        if journal.len() > 0 {
            eprintln!("{} runs were there already", journal.len());
        }
        Ok(Some(journal))
    }

    fn with<T>(&self, row: T) -> Box<Of<T>> {
        Box::new(Of { row, scale: self.scale, nic: self.nic.name, seed: self.seed })
    }
}

/// The paper has no more; below, its budgets hold no table's models.
const SCALES: std::ops::RangeInclusive<u64> = 20_000..=60_000_000;

/// Measures the paper's statements and reports them.
///
/// # Errors
/// If there is no such figure, or no memory for the scale.
pub fn paper(arguments: &PaperArgs) -> anyhow::Result<Verdict> {
    let Paper::Fpcache = arguments.paper;
    ensure!(SCALES.contains(&arguments.scale), "--scale {}: use 20K to 60M", arguments.scale);
    let figure = arguments.figure();
    let claims = of(figure)?;
    let scale = Scale { keys: arguments.scale, nic: arguments.nic, seed: arguments.seed };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = check_memory(figure, &claims, &scale, free_memory()?, threads)?;
    check_json(arguments.json.as_deref())?;
    let journal = arguments.journal()?;
    let bar = Bar::default();
    let mut bench = Bench::new(scale, threads, Some(&bar))
        .with_data_dir(arguments.data_dir.clone())
        .with_journal(journal.as_ref().map(|journal| journal as &dyn fpcache_workbench::paper::Journal));
    let has = |other| figure.is_none_or(|figure| figure == other);
    announce(&bench.open(&claims)?);
    let rows = bench.measure(&claims)?;
    let entries = if has(Figure::Table(2)) { entries().context("Table 2")? } else { Vec::new() };
    let filters = if has(Figure::Figure(17)) { filters() } else { Vec::new() };
    let hotspots = if has(Figure::Figure(10)) { bench.hotspots()? } else { Vec::new() };
    // Of scales too small for a system; the figures of the others are there.
    let built = |row: Result<Hotspots, _>| row.inspect_err(|why| eprintln!("note: figure 10: {why}")).ok();
    let hotspots: Vec<Hotspots> = hotspots.into_iter().filter_map(built).collect();
    let tables = [
        table(arguments, &rows),
        table_of_hotspots(&hotspots),
        table_of_entries(&entries),
        table_of_filters(&filters),
    ];
    let wrong = rows.iter().map(ClaimRow::wrong).chain(hotspots.iter().map(|row| row.wrong)).sum();
    let rows = rows.into_iter().map(|row| Row::Claim(arguments.with(row)));
    let rows = rows.chain(entries.into_iter().map(|row| Row::Entries(arguments.with(row))));
    let rows = rows.chain(filters.into_iter().map(|row| Row::Filtered(arguments.with(row))));
    let rows: Vec<Row> =
        rows.chain(hotspots.into_iter().map(|row| Row::Hotspots(arguments.with(row)))).collect();
    deliver(&tables.concat(), &rows, arguments.json.as_deref())?;
    journal.map_or(Ok(()), Journal::finish)?;
    Ok(Verdict::of(wrong))
}

fn table(arguments: &PaperArgs, rows: &[ClaimRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = new_table("figure | this | over that | in | paper | here | at best | what binds here")
        .named_by(4)
        .with_text(7);
    let warm = warm_up(arguments.scale as usize);
    let ratio = |ratio: Option<f64>| ratio.map_or_else(none, |ratio| format!("{ratio:.2}"));
    for row in rows {
        table.add_row([
            row.figure.clone(),
            row.this.clone(),
            row.that.clone(),
            row.measure.to_owned(),
            match row.says {
                Says::About => format!("{:.2}", row.published),
                Says::Below => format!("below {}", row.published),
                Says::Above => format!("above {}", row.published),
            },
            ratio(row.ours),
            ratio(row.ours_best),
            row.note.clone(),
        ]);
    }
    format!(
        "the FPCache paper over {} keys, {}, 6 compute nodes of 64 threads, one memory node; before what is measured {} operations fill \
         caches, {:.2} per key, of scans up to 500K\n{table}\n",
        human(arguments.scale),
        arguments.nic.name,
        human(warm as u64),
        warm as f64 / arguments.scale as f64
    )
}

fn table_of_hotspots(rows: &[Hotspots]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table =
        new_table("system | parameters | before | slowest, paper | here | 95 % after, paper | here");
    let share = |share: f64| format!("{:.0} %", 100.0 * share);
    let seconds = |seconds: f64| format!("{seconds:.1} s");
    for row in rows {
        table.add_row([
            row.system.to_owned(),
            match row.parameters {
                Parameters::Published => row.described.clone(),
                Parameters::Best => format!("at best: {}", row.described),
            },
            format!("{:.2} Mops/s", row.before / 1e6),
            row.published_slowest.map_or_else(none, share),
            share(row.slowest),
            row.published_recovers_in.map_or_else(none, seconds),
            row.recovers_in.map_or_else(|| "not in time".to_owned(), seconds),
        ]);
    }
    format!(
        "figure 10: other keys become popular, workload C, 128/128 B, 100 MB, over at most a million keys; seconds are those of a \
         table of 60 M keys: what a cache has to learn grows with the keys\n{table}\n"
    )
}

fn table_of_entries(rows: &[Entries]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table =
        new_table("key | entries in the paper | 100 MiB / (key + 8) | fingerprint and offset here");
    for row in rows {
        let million = |count: f64| format!("{:.2} M", count / 1e6);
        table.add_row([
            format!("{} B", row.key_bytes),
            million(row.published),
            million(row.whole_keys),
            million(row.ours),
        ]);
    }
    format!(
        "table 2: entries in a cache of 100 MiB. The paper's are those of whole keys with addresses of 8 bytes; its own entries have \
         neither\n{table}\n"
    )
}

fn table_of_filters(rows: &[Filtered]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table =
        new_table("of | kept by | paper, B/key | here, B/key | others pass | why").named_by(2).with_text(5);
    for row in rows {
        table.add_row([
            row.of.to_owned(),
            row.kept_by.to_owned(),
            format!("{:.2}", row.published),
            format!("{:.2}", row.ours),
            format!("{:.2} %", 100.0 * row.passes),
            row.note.to_owned(),
        ]);
    }
    format!("figure 17: memory of fingerprints and of filters\n{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};
    use crate::modelled::testing::rows_in;
    use fpcache_workbench::BuildError;
    use fpcache_workbench::experiment::Run;
    use fpcache_workbench::paper::{Claim, Keys};

    fn parse(options: &str) -> Result<PaperArgs, String> {
        let Command::Paper(arguments) = command("paper", options)? else { panic!("no `paper`") };
        Ok(*arguments)
    }

    #[test]
    fn one_seed_gives_the_same_json_twice_and_another_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let json = |name: &str, options: &str| {
            let file = folder.path().join(name);
            let options = format!("{options} --scale 20K --json {}", file.display());
            paper(&parse(&options).expect("options")).expect("figures");
            format!("{:?}", rows_in(&file))
        };
        let first = json("first", "--figure 11 --seed 1");
        assert!(first.contains("tally"), "{first}");
        assert!(first == json("second", "--figure 11 --seed 1"), "there are no host timings in it");
        assert!(first != json("third", "--figure 11 --seed 2"));
    }

    #[test]
    fn an_interrupted_run_goes_on_where_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("figures");
        let arguments =
            parse(&format!("--figure 11 --scale 20K --json {}", file.display())).expect("options");
        let figures = || {
            paper(&arguments).expect("figures");
            rows_in(&file)
        };
        let whole = figures();
        let runs = Journal::beside(&file);
        assert!(!runs.exists(), "the figures are there");
        // As an interruption leaves it: one run, and half of another.
        let journal = arguments.journal().expect("a file").expect("there is one");
        let scale = Scale { keys: arguments.scale, nic: arguments.nic, seed: arguments.seed };
        let claims = of(arguments.figure()).expect("figure 11");
        Bench::new(scale, 1, None).with_journal(Some(&journal)).measure(&claims).expect("rows");
        drop(journal);
        let kept = std::fs::read_to_string(&runs).expect("runs");
        let lines: Vec<&str> = kept.lines().collect();
        assert!(lines.len() > 2, "{kept}");
        let cut = |first: &str| format!("{}\n{first}\n{}", lines[0], &lines[2][..lines[2].len() / 2]);
        std::fs::write(&runs, cut(lines[1])).expect("written");
        assert_eq!(figures(), whole, "to the last digit");
        // The run that was there was not made again: its figures are those of the file.
        let marked = lines[1].replace("\"parameters\":\"", "\"parameters\":\"kept, ");
        std::fs::write(&runs, cut(&marked)).expect("written");
        let with_mark = figures();
        assert!(format!("{with_mark:?}").contains("kept, ") && with_mark != whole && !runs.exists());
    }

    #[test]
    fn published_data_sets_are_taken_from_their_folder_and_rows_say_where_keys_come_from() {
        let scale = Scale { keys: 20_000, nic: NicSpec::CX6_100G, seed: 1 };
        let of_fb = |claim: &Claim| claim.this.1.keys == Keys::Fb;
        let claims: Vec<Claim> =
            of(Some(Figure::Figure(8))).expect("figure 8").into_iter().filter(of_fb).take(1).collect();
        let measured = |folder: Option<&Path>| {
            let mut bench = Bench::new(scale, 2, None).with_data_dir(folder.map(Into::into));
            let notes = bench.open(&claims).expect("keys").join("; ");
            (notes, bench.measure(&claims).expect("rows").swap_remove(0).dataset_source)
        };
        let (notes, source) = measured(None);
        assert!(
            notes.contains("a stand-in for fb_200M_uint64") && source.contains("stand-in"),
            "{notes}: {source}"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let words = [scale.keys].into_iter().chain((1..=scale.keys).map(|key| key * 7));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        std::fs::write(folder.path().join("fb_200M_uint64"), bytes).expect("written");
        let (notes, source) = measured(Some(folder.path()));
        assert!(
            notes.contains("the published one 200000000") && source.contains("file"),
            "{notes}: {source}"
        );
    }

    #[test]
    fn runs_over_a_stand_in_are_made_again_when_the_folder_has_the_file() {
        /// Names of runs that were asked for; none was made.
        struct Asked(std::sync::Mutex<Vec<String>>);
        impl fpcache_workbench::paper::Journal for Asked {
            fn made(&self, name: &str) -> Option<Vec<Result<Run, BuildError>>> {
                self.0.lock().expect("names").push(name.to_owned());
                Some(vec![Err(BuildError("as it was".into())), Err(BuildError("as it was".into()))])
            }
            fn keep(&self, _: &str, _: &[Result<Run, BuildError>]) {}
        }
        let scale = Scale { keys: 20_000, nic: NicSpec::CX6_100G, seed: 1 };
        let claims = &of(Some(Figure::Figure(8))).expect("figure 8")[..1];
        let folder = tempfile::tempdir().expect("a folder");
        let names = || {
            let asked = Asked(Default::default());
            let bench = Bench::new(scale, 1, None).with_data_dir(Some(folder.path().into()));
            bench.with_journal(Some(&asked)).measure(claims).expect("rows");
            asked.0.into_inner().expect("names")
        };
        let of_stand_in = names();
        let words = [scale.keys].into_iter().chain((1..=scale.keys).map(|key| key * 7));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        std::fs::write(folder.path().join("fb_200M_uint64"), bytes).expect("written");
        let of_file = names();
        assert!(of_file.iter().all(|name| !of_stand_in.contains(name)), "{of_file:?} {of_stand_in:?}");
    }

    #[test]
    fn runs_over_the_data_of_another_folder_are_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("figures");
        let of = |at: &str| parse(&format!("--json {} --datasets-dir {at}", file.display())).expect("fit");
        let journal = |data: &str| of(data).journal().map(|journal| journal.expect("there is a file"));
        let kept = journal("/data/one").expect("ours");
        fpcache_workbench::paper::Journal::keep(&kept, "a run", &[]);
        drop(kept);
        assert_eq!(journal("/data/one").expect("ours").len(), 1);
        journal("/data/other").expect_err("of another folder");
    }

    #[test]
    fn mistakes_are_told_with_what_there_is() {
        let cases = [
            ("--figure 6 --table 2", "--table"),
            ("--nic cx9", "cx6-100g"),
            ("--paper other", "fpcache"),
            ("--scale 0", "2M"),
        ];
        assert_refused(parse, &cases);
        let run = |options: &str| paper(&parse(options)?).map_err(|error| error.to_string());
        let cases = [("--figure 99", "figure 6"), ("--table 7", "table 2"), ("--scale 61M", "60M")];
        assert_refused(run, &cases);
    }
}
