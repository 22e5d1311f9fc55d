//! How few bytes of a compute node's memory let one READ find a key, or tell that it is absent.
//!
//! The segments of a data set are cut and their keys put into groups (`fpcache_index::groups`), in this process and without a
//! memory node; then every key is looked for where its table leads, and keys that are none between them.

mod measure;
mod row;

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use fpcache_datasets::{KeyKind, OpenOptions, Spec};
use fpcache_index::groups::Form;

use crate::Verdict;
use crate::cli::positive_count;
use crate::progress::Bar;
use crate::run::report::{check_json, deliver};
use measure::{Setting, measure};

/// Ends the help of `density`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval density
  fpcache-eval density --dataset fb:16M --epsilon 64,128,256 --json fb.json
  fpcache-eval density --dataset ipv4 --form plain,seeded --fill 0.8

Each row cuts a data set's keys into segments, puts these into groups, and looks for every key, and as many that are absent, where \
the table of its segment leads. `one READ` is the share of keys that the first READ settles; `B/key` counts all that a compute node \
keeps to know where to READ: the directory with its models and separators, as it lies in memory, the table, and eight bytes a \
segment for the table's place.

Forms: line (no table: as many slots as a plain group, about the prediction), plain (groups of nine slots, of which ten are READ), \
seeded (six groups of ten share a separator and a seed), pilots (a table that names the slot; for long slots).

Exit code: 0 if every key was where it should be, 1 if one was not, 2 wrong usage or a failure.";

/// The options of `density`.
#[derive(Args, Clone, Debug)]
pub struct DensityArgs {
    /// Data sets of integers, separated by commas
    #[arg(
        long = "dataset",
        value_name = "DATASET",
        value_delimiter = ',',
        default_value = "fb:4M,wiki:4M,osm:4M,uniform:4M,ipv4"
    )]
    pub datasets: Vec<Spec>,

    /// Forms of tables, separated by commas
    #[arg(long = "form", value_enum, value_delimiter = ',', default_value = "line,plain,seeded,pilots")]
    pub forms: Vec<FormName>,

    /// Error bounds of the models, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "64,128", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub epsilon: Vec<u32>,

    /// Share of a segment's slots that hold keys
    #[arg(long, default_value_t = 0.85)]
    pub fill: f64,

    /// Bytes of a slot; 24 hold a word, a key and a value of eight bytes each
    #[arg(long, default_value = "24", value_parser = positive_count)]
    pub slot_bytes: u64,

    /// Seeds generated data sets and the absent keys
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Folder of published data sets [default: $FPCACHE_DATA]
    #[arg(long = "datasets-dir", value_name = "FOLDER", env = "FPCACHE_DATA")]
    pub data_dir: Option<PathBuf>,

    /// Write the figures to this file, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A form of tables, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormName {
    /// No table: slots about the prediction
    Line,
    /// Groups of neighbours, each with a separator
    Plain,
    /// Groups that hashes choose within a block
    Seeded,
    /// The very slot, by pilots
    Pilots,
}

impl FormName {
    /// Of the table, if there is one.
    pub fn form(self) -> Option<Form> {
        match self {
            Self::Line => None,
            Self::Plain => Some(Form::PLAIN),
            Self::Seeded => Some(Form::SEEDED),
            Self::Pilots => Some(Form::PILOTS),
        }
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Plain => "plain",
            Self::Seeded => "seeded",
            Self::Pilots => "pilots",
        }
    }
}

impl DensityArgs {
    fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            self.fill > 0.0 && self.fill <= 1.0,
            "--fill {}: write a share above 0, at most 1",
            self.fill
        );
        for spec in &self.datasets {
            ensure!(
                spec.key_kind() == KeyKind::U64,
                "--dataset {spec}: has byte strings, and tables are measured for integers, such as fb:4M or ipv4"
            );
        }
        Ok(())
    }
}

/// Measures every setting and reports them.
///
/// # Errors
/// If the options make no sense, or a data set cannot be had.
pub fn density(arguments: &DensityArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    check_json(arguments.json.as_deref())?;
    let bar = Bar::default();
    let mut rows = Vec::new();
    for spec in &arguments.datasets {
        let options = OpenOptions {
            seed: arguments.seed,
            data_dir: arguments.data_dir.clone(),
            progress: Some(&bar),
            ..OpenOptions::default()
        };
        let dataset = spec.open(&options)?;
        for epsilon in &arguments.epsilon {
            for form in &arguments.forms {
                let setting = Setting {
                    form: *form,
                    epsilon: *epsilon,
                    fill: arguments.fill,
                    slot_bytes: arguments.slot_bytes,
                    seed: arguments.seed,
                };
                let phase = format!("{spec}, {}, epsilon {epsilon}", form.name());
                let figures = bar.during(&phase, 1, || measure(dataset.keys(), &setting))?;
                rows.push(row::DensityRow::new(&dataset, &setting, &figures));
            }
        }
    }
    deliver(&row::table(&rows), &rows, arguments.json.as_deref())?;
    Ok(Verdict::of(rows.iter().map(|row| row.misplaced).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(options: &str) -> Result<DensityArgs, String> {
        let words = ["fpcache-eval", "density"].into_iter().chain(options.split_whitespace());
        match Cli::of(words).map_err(|error| error.to_string())?.command {
            Some(Command::Density(arguments)) => {
                arguments.validate().map_err(|error| error.to_string()).map(|()| *arguments)
            }
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn options_are_lists_and_mistakes_are_told_with_what_would_do() {
        let arguments = parse("--dataset ipv4,uniform:1M --form plain --epsilon 8,16").expect("good options");
        assert_eq!((arguments.datasets.len(), arguments.epsilon), (2, vec![8, 16]));
        for (options, remedy) in [
            ("--dataset words", "integers"),
            ("--fill 0", "share"),
            ("--form tree", "plain"),
            ("--epsilon 0", "1..=4096"),
        ] {
            let error = parse(options).expect_err(options);
            assert!(error.contains(remedy), "{options}: {error}");
        }
    }
}
