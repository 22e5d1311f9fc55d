//! Rows as they are made: written after each one, merged over seeds, and kept for a command that is
//! interrupted.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fpcache_workbench::BuildError;
use fpcache_workbench::experiment::Run;
use fpcache_workbench::paper::Journal as _;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::row::{Row, table};
use crate::made::Recorded;
use crate::paper::journal::{self, Journal};
use crate::run::options::RunArgs;
use crate::run::replaced_file::replace;
use crate::run::report::{check_json, deliver, write_recorded};
use crate::sweep::store::csv;
use crate::verdict::Verdict;

/// The rows of a command so far.
pub struct Rows {
    json: Option<PathBuf>,
    csv: Option<PathBuf>,
    journal: Option<Journal>,
    /// Those of one system in one setting, a row for each seed.
    of: Vec<Vec<Row>>,
}

/// What may be where rows go.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Other figures, which the first row replaces, as without a model.
    Replaced,
    /// None but rows of the same command, which goes on with them, or with `--fresh` starts over;
    /// JSON and CSV are in the folder of `--out`, where there is one.
    Kept(Option<&'a Path>, bool),
}

impl Rows {
    /// None so far of a command with these options, which go to the file of `--json`, or to a
    /// folder.
    ///
    /// # Errors
    /// If they could not be written, or others are in their place.
    pub fn new(
        command: &str,
        arguments: &RunArgs,
        options: &impl Debug,
        place: Place<'_>,
    ) -> anyhow::Result<Self> {
        let (out, fresh) = match place {
            Place::Replaced => (None, false),
            Place::Kept(out, fresh) => (out, fresh),
        };
        if let Some(folder) = out {
            fs::create_dir_all(folder)
                .with_context(|| format!("--out {}: the folder cannot be made", folder.display()))?;
        }
        let json = arguments.json.clone().or_else(|| out.map(|folder| folder.join("results.json")));
        let csv = out.map(|folder| folder.join("results.csv"));
        check_json(json.as_deref())?;
        let journal = match json.as_deref().filter(|json| *json != Path::new("-")) {
            Some(json) => {
                let program = journal::program().context("this program, by which finished runs are known")?;
                let options = xxh3_128(format!("{options:?}").as_bytes());
                let of = format!("{command}: options {options:032x}, program {program:032x}");
                if fresh {
                    Journal::give_up(&Journal::beside(json))?;
                }
                Some(Journal::open(Journal::beside(json), &of)?)
            }
            None => None,
        };
        match journal.as_ref().map_or(0, Journal::len) {
            0 if fresh => {}
            0 => {
                let refused = json.iter().chain(&csv).try_for_each(|path| refuse_figures(path, place));
                if let Err(refusal) = refused {
                    // Of no run: it would be in the way of the next look.
                    journal.map_or(Ok(()), Journal::finish)?;
                    return Err(refusal);
                }
            }
            there => eprintln!("{there} runs were there already"),
        }
        Ok(Self { json, csv, journal, of: Vec::new() })
    }

    /// What a run of this name gave before an interruption, or what is made of it now.
    pub fn once(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Run, BuildError>,
    ) -> Result<Run, BuildError> {
        let made = self.journal.as_ref().and_then(|journal| journal.made(name));
        if let Some(run) = made.and_then(|mut runs| runs.pop()) {
            return run;
        }
        let run = make();
        if let Some(journal) = &self.journal {
            journal.keep(name, std::slice::from_ref(&run));
        }
        run
    }

    /// Adds a row, and writes all there are.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, row: Row) -> anyhow::Result<()> {
        match self.of.iter_mut().find(|rows| rows.first().is_some_and(|first| first.is_of(&row))) {
            Some(rows) => rows.push(row),
            None => self.of.push(vec![row]),
        }
        let rows = Recorded::now(self.merged());
        if let Some(json) = self.json.as_deref().filter(|json| *json != Path::new("-")) {
            write_recorded(&rows, json)?;
        }
        self.csv.as_deref().map_or(Ok(()), |path| replace(path, csv(&rows)?.as_bytes()))
    }

    fn merged(&self) -> Vec<Row> {
        self.of.iter().filter_map(|rows| Row::merged(rows)).collect()
    }

    /// Hands all of them over.
    ///
    /// # Errors
    /// If some have no figures; after that.
    pub fn end(self) -> anyhow::Result<Verdict> {
        let rows = self.merged();
        deliver(&table(&rows), &rows, self.json.as_deref())?;
        if let Some(csv) = &self.csv {
            eprintln!("and to {}", csv.display());
        }
        self.journal.map_or(Ok(()), Journal::finish)?;
        let failed: Vec<String> = rows.iter().filter_map(Row::failure).collect();
        if let Some(first) = failed.first() {
            bail!("{} of {} rows lack figures, the first: {first}", failed.len(), rows.len());
        }
        Ok(Verdict::of(self.of.iter().flatten().map(Row::wrong).sum()))
    }
}

/// Refuses a file with figures that are to be kept, and says of others that they go.
fn refuse_figures(path: &Path, place: Place<'_>) -> anyhow::Result<()> {
    if path == Path::new("-") || fs::metadata(path).is_ok_and(|file| !file.is_file() || file.len() == 0) {
        return Ok(());
    }
    match place {
        _ if !path.exists() => Ok(()),
        Place::Replaced => {
            eprintln!("note: {} has other figures, which the first row replaces", path.display());
            Ok(())
        }
        Place::Kept(..) if is_of_sweep(path) => bail!(
            "{} has the rows of a sweep in the model of network cards that came to its end, or had other options; no points are added \
             to them there: name another place with --out or --json, or start over with --fresh",
            path.display()
        ),
        Place::Kept(..) => bail!(
            "{} has other figures, which are no rows of such a sweep, and is left as it is: name another place with --out or --json, or \
             replace it with --fresh",
            path.display()
        ),
    }
}

/// Whether a file has the rows of a sweep in the model.
fn is_of_sweep(path: &Path) -> bool {
    let rows = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Vec<Value>>(&text).ok());
    let is_one = |row: &Value| row["over"].is_string() && row["card"].is_object();
    rows.is_some_and(|rows| rows.first().is_some_and(is_one))
}
