//! The results of a sweep on disk, from which it continues after an interruption.
//!
//! Only `results.json` is read back: an array of rows as `run` writes them, each with a
//! [`PointTag`] that identifies experiment and point, and with its [provenance](crate::made).
//! `results.csv` and `plot.svg` are written from the same rows. Every file is replaced in one step,
//! so that an interruption leaves the old one or the new one. Files of other experiments are left
//! alone.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::fields::Fields;
use crate::machine::Machine;
use crate::made::{Made, Recorded};
use crate::plot::sheet::MARK;
use crate::run::replaced_file::{check_file, replace};
use crate::run::report::write_recorded;
use crate::run::row::Row;
use crate::run::setting::PointTag;
use crate::sweep::plot;

/// The results of an experiment.
#[derive(Debug)]
pub struct Store {
    json: PathBuf,
    folder: PathBuf,
    over: &'static str,
    experiment: String,
    rows: Vec<Recorded<Row>>,
}

impl Store {
    /// The results in `folder`, with the rows in `json`; none if there are none, or with `fresh`.
    ///
    /// # Errors
    /// If the folder cannot be had, or a file in a place of ours is another's.
    pub fn open(
        folder: &Path,
        json: Option<&Path>,
        over: &'static str,
        experiment: String,
        fresh: bool,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("--out {}: the folder cannot be made", folder.display()))?;
        let json = json.map_or_else(|| folder.join("results.json"), Path::to_owned);
        let mut store = Self { json, folder: folder.to_owned(), over, experiment, rows: Vec::new() };
        let found = store.read()?;
        if !fresh {
            store.refuse_others(&found)?;
            store.rows = found;
        }
        check_file("--out or --json", &store.json)?;
        store.refuse_foreign(&store.csv(), "sweep.experiment", (!fresh).then_some(&*store.experiment))?;
        store.refuse_foreign(&store.plot(), MARK, None)?;
        Ok(store)
    }

    /// The rows of a file that is there and was written by a sweep.
    fn read(&self) -> anyhow::Result<Vec<Recorded<Row>>> {
        let text = match fs::read_to_string(&self.json) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) if error.kind() == ErrorKind::InvalidData => String::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", self.json.display())),
        };
        let foreign = || {
            format!(
                "{} holds no results of a sweep of this release and is left as it is: move it away, or name another \
                 place with --out or --json",
                self.json.display()
            )
        };
        let rows: Vec<Recorded<Row>> = serde_json::from_str(&text).with_context(foreign)?;
        ensure!(rows.iter().all(|recorded| recorded.row.sweep.is_some()), foreign());
        Ok(rows)
    }

    fn refuse_others(&self, rows: &[Recorded<Row>]) -> anyhow::Result<()> {
        let tags = rows.iter().filter_map(|recorded| recorded.row.sweep.as_ref());
        for tag in tags {
            let (is, theirs) = match tag.over == self.over {
                true => (differences(&tag.experiment, &self.experiment), tag.experiment == self.experiment),
                false => (format!("it is over {}, this one over {}", tag.over, self.over), false),
            };
            ensure!(
                theirs,
                "{} holds another sweep ({is}) and is left as it is: name another place with --out, or start over with \
                 --fresh",
                self.json.display()
            );
        }
        Ok(())
    }

    /// Refuses a file without our `mark`, or without the text `with`.
    fn refuse_foreign(&self, path: &Path, mark: &str, with: Option<&str>) -> anyhow::Result<()> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let text = String::from_utf8_lossy(&bytes);
        if text.contains(mark) && with.is_none_or(|with| text.contains(with)) {
            return Ok(());
        }
        bail!(
            "{} was not written by this sweep and is left as it is: move it away, or name another folder with --out",
            path.display()
        )
    }

    /// Refuses rows of a data set that came from elsewhere: a stand-in beside a published file, or
    /// the other way round.
    ///
    /// # Errors
    /// Names both sources.
    pub fn refuse_other_source(&self, source: &str) -> anyhow::Result<()> {
        match self.rows.iter().map(|recorded| &recorded.row).find(|row| row.dataset_source != source) {
            Some(row) => bail!(
                "{} has points on the {} data set, and now there is the {source} one: use the same data folder, \
                 another --out, or --fresh",
                self.json.display(),
                row.dataset_source
            ),
            None => Ok(()),
        }
    }

    /// Refuses to add points of this build and machine to those of another.
    ///
    /// # Errors
    /// Names in what they differ.
    pub fn refuse_other_build(&self, ours: &Made) -> anyhow::Result<()> {
        let of_ours = traits(&ours.machine, ours.commit.as_deref(), &ours.version, Some(&ours.build));
        for Recorded { row, made } in &self.rows {
            let theirs = match made {
                Some(made) => traits(&made.machine, made.commit.as_deref(), &made.version, Some(&made.build)),
                // Of a release that did not say more.
                None => traits(&row.machine, row.commit.as_deref(), &row.version, None),
            };
            let pairs = theirs.iter().zip(&of_ours).filter(|((_, theirs), _)| theirs.is_some());
            let differing: Vec<String> = pairs
                .filter(|(theirs, ours)| theirs != ours)
                .map(|((name, theirs), (_, ours))| {
                    let said = |of: &Option<String>| of.clone().unwrap_or_else(|| "unknown".to_owned());
                    format!("{name} {}, not {}", said(theirs), said(ours))
                })
                .collect();
            ensure!(
                differing.is_empty(),
                "{} has points of another build or machine ({}), which do not compare with new ones: name another place \
                 with --out, or start over with --fresh",
                self.json.display(),
                differing.join("; ")
            );
        }
        Ok(())
    }

    /// Whether a point is there.
    pub fn has(&self, value: f64) -> bool {
        self.rows.iter().any(|recorded| value_of(&recorded.row) == Some(value))
    }

    /// The tag of a row at `value`.
    pub fn tag(&self, value: f64) -> PointTag {
        PointTag { over: self.over.to_owned(), value, experiment: self.experiment.clone() }
    }

    /// Adds a point's rows and writes everything.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn add(&mut self, rows: Vec<Row>) -> anyhow::Result<()> {
        self.rows.extend(Recorded::now(rows));
        let value = |recorded: &Recorded<Row>| value_of(&recorded.row).unwrap_or(0.0);
        self.rows.sort_by(|a, b| value(a).total_cmp(&value(b)));
        self.write()
    }

    /// Writes everything.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn write(&self) -> anyhow::Result<()> {
        write_recorded(&self.rows, &self.json)?;
        let rows = self.rows();
        // Rows of a release that did not say what made them have no such columns, and then none may
        // have them.
        let csv = match self.rows.iter().all(|recorded| recorded.made.is_some()) {
            true => csv(&self.rows)?,
            false => csv(&rows)?,
        };
        replace(&self.csv(), csv.as_bytes())?;
        replace(&self.plot(), plot::draw(&rows)?.as_bytes())
    }

    /// All rows, by ascending value.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.iter().map(|recorded| recorded.row.clone()).collect()
    }

    /// The same with what made each.
    pub fn recorded(&self) -> &[Recorded<Row>] {
        &self.rows
    }

    /// Where the rows are.
    pub fn json(&self) -> &Path {
        &self.json
    }

    /// Where the table is.
    pub fn csv(&self) -> PathBuf {
        self.folder.join("results.csv")
    }

    /// Where the plot is.
    pub fn plot(&self) -> PathBuf {
        self.folder.join("plot.svg")
    }
}

fn value_of(row: &Row) -> Option<f64> {
    row.sweep.as_ref().map(|tag| tag.value)
}

/// What figures must have in common to be compared; `None`: it is not known.
fn traits(
    machine: &Machine,
    commit: Option<&str>,
    version: &str,
    build: Option<&str>,
) -> [(&'static str, Option<String>); 7] {
    let text = |of: Option<&str>| of.map(str::to_owned);
    [
        ("commit", text(Some(commit.unwrap_or("unknown")))),
        ("version", text(Some(version))),
        ("build", text(build)),
        ("processor", machine.cpu.clone()),
        ("cores", machine.cores.map(|cores| cores.to_string())),
        ("bytes of memory", machine.memory_bytes.map(|bytes| bytes.to_string())),
        ("kernel", machine.kernel.clone()),
    ]
}

/// The first settings in which two experiments differ.
fn differences(theirs: &str, ours: &str) -> String {
    const SHOWN: usize = 3;
    let name = |setting: &str| setting.split('=').next().map(str::to_owned);
    let difference = |ours: &str| match theirs.split(' ').find(|theirs| name(theirs) == name(ours)) {
        Some(same) if same == ours => None,
        Some(other) => Some(format!("{other}, not {ours}")),
        // Another release's may know fewer settings.
        None => Some(format!("nothing said of {}, not {ours}", name(ours).unwrap_or_default())),
    };
    let words: Vec<String> = ours.split(' ').filter_map(difference).take(SHOWN).collect();
    words.join("; ")
}

/// The rows as a table with one column for each field that one of them has, those of inner objects
/// as `machine.cpu`; lists stand as JSON.
pub(crate) fn csv<T: Serialize>(rows: &[T]) -> anyhow::Result<String> {
    if rows.is_empty() {
        return Ok(String::new());
    }
    let (mut names, mut lines): (Vec<String>, Vec<Vec<(String, Value)>>) = (Vec::new(), Vec::new());
    for row in rows {
        let Fields(fields) = serde_json::from_str(&serde_json::to_string(row)?)?;
        let mut cells = Vec::new();
        for (name, value) in fields {
            match value {
                Value::Object(inner) => {
                    cells.extend(inner.into_iter().map(|(field, value)| (format!("{name}.{field}"), value)));
                }
                value => cells.push((name, value)),
            }
        }
        // Most rows have the same ones.
        for (at, (name, _)) in cells.iter().enumerate() {
            if names.get(at) != Some(name) && !names.contains(name) {
                names.push(name.clone());
            }
        }
        lines.push(cells);
    }
    let mut text = String::new();
    push_line(&mut text, names.iter().cloned());
    for cells in lines {
        let of = |(at, name): (usize, &String)| {
            let same = cells.get(at).filter(|(of, _)| of == name);
            same.or_else(|| cells.iter().find(|(of, _)| of == name))
                .map_or_else(String::new, |(_, value)| cell(value))
        };
        push_line(&mut text, names.iter().enumerate().map(of));
    }
    Ok(text)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A line as RFC 4180 has it, ended by a line feed.
fn push_line(text: &mut String, cells: impl Iterator<Item = String>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            text.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            text.push_str(&format!("\"{}\"", cell.replace('"', "\"\"")));
        } else {
            text.push_str(&cell);
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut text = String::new();
        push_line(&mut text, ["a", "b,c", "d \"e\"", ""].into_iter().map(str::to_owned));
        assert_eq!(text, "a,\"b,c\",\"d \"\"e\"\"\",\n");
    }

    #[test]
    fn differing_settings_are_named() {
        assert_eq!(differences("a=1 b=2 c=3", "a=1 b=9 c=3"), "b=2, not b=9");
        assert_eq!(differences("a=1 c=3", "a=1 b=9 c=3"), "nothing said of b, not b=9");
    }

    #[test]
    fn points_of_another_build_or_machine_are_refused_with_both_names() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Store::open(folder.path(), None, "cache", "a=1".to_owned(), false).unwrap();
        let mut store = open();
        let row = Row { sweep: Some(store.tag(1.0)), ..Row::default() };
        store.add(vec![row]).unwrap();
        let now = Made::now();
        open().refuse_other_build(&now).unwrap();
        let machine = Machine { cpu: Some("another processor".into()), ..now.machine.clone() };
        for (other, named) in [
            (Made { commit: Some("0123".into()), ..now.clone() }, "not 0123"),
            (Made { version: "9.9".into(), ..now.clone() }, "not 9.9"),
            (Made { build: "sideways".into(), ..now.clone() }, "not sideways"),
            (Made { machine, ..now.clone() }, "not another processor"),
        ] {
            let error = open().refuse_other_build(&other).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("--fresh"), "{error}");
        }
        // Of a release that wrote less of itself its rows tell the commit and the machine.
        let mut old = open();
        let row = Row { commit: Some("0123".into()), version: now.version.clone(), ..Row::default() };
        old.rows = vec![Recorded { row, made: None }];
        assert!(old.refuse_other_build(&now).unwrap_err().to_string().contains("commit 0123"));
    }

    #[test]
    fn a_half_written_file_beside_the_results_is_of_no_account() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("results.json.tmp"), "[{\"half").unwrap();
        let open = || Store::open(folder.path(), None, "cache", "a=1".to_owned(), false);
        assert!(open().unwrap().rows().is_empty());
        replace(&folder.path().join("results.json"), b"[]\n").unwrap();
        assert!(open().unwrap().rows().is_empty());
    }

    #[test]
    fn files_of_others_are_refused_and_left() {
        for (name, content) in [
            ("results.json", "{\"mine\": 1}"),
            ("results.json", "[{\"half"),
            ("results.json", "\u{fffd}"),
            ("results.csv", "a,b\n1,2\n"),
            ("plot.svg", "<svg/>"),
        ] {
            for fresh in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join(name);
                fs::write(&path, content).unwrap();
                let error = Store::open(folder.path(), None, "cache", "a=1".to_owned(), fresh).unwrap_err();
                let error = format!("{error:#}");
                assert!(error.contains("--out") && error.contains(name), "{error}");
                assert_eq!(fs::read_to_string(&path).unwrap(), content);
            }
        }
    }
}
