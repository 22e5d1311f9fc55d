//! `report`: a page of figures from the JSON files that other commands wrote to a folder.

pub mod html;
pub mod kind;
pub mod read;
pub mod record;
pub mod section;
pub mod views;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::run::report::say;
use crate::verdict::Verdict;
use kind::{KINDS, readable};
use read::Found;
use record::Record;
use section::Section;

/// Ends the help of `report`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval run --dataset ipv4 --system fpcache,hashmap --json results/run.json
  fpcache-eval sweep --over cache --values 4MiB,8MiB --dataset fb:4M --dist zipf:0.99 --out results/cache
  fpcache-eval report results
  fpcache-eval report results --out figures.html

Reads the .json files of the folder and of those right below it. The page is one file: it needs no network and no script, and can be \
printed. Each figure has the command, the machine and the commit that its rows tell of. Files that no command of this program \
wrote are named, with the reason.

Exit codes: 0 the page is written, 2 there is nothing to write or no place for it.";

/// The options of `report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Folder with JSON files of other commands
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The page; with -, standard output [default: DIR/report.html]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Writes the page.
///
/// # Errors
/// If there is no such folder, nothing in it that can be read, or no place for the page.
pub fn report(arguments: &ReportArgs) -> anyhow::Result<Verdict> {
    let folder = &arguments.folder;
    let out = arguments.out.clone().unwrap_or_else(|| folder.join("report.html"));
    let found = read::folder(folder)?;
    for (name, why) in &found.left_out {
        eprintln!("note: {name} is left out: {why}");
    }
    ensure!(
        !found.sections.is_empty(),
        "{} has no file with figures of this program: write one by one of these, then repeat\n{}",
        folder.display(),
        readable()
    );
    let rows: usize = found.sections.iter().map(|section| section.rows.len()).sum();
    // Of `.`, too, the name says more than the path.
    let name = fs::canonicalize(folder).ok().and_then(|whole| Some(whole.file_name()?.to_owned()));
    let name = name.unwrap_or_else(|| folder.as_os_str().to_owned());
    let html = page(&format!("FPCache: figures of {}", name.to_string_lossy()), found)?;
    if out == Path::new("-") {
        say(html.trim_end())?;
        return Ok(Verdict::AllRight);
    }
    write(&out, &html)?;
    say(&format!("{rows} rows; page: {}", out.display()))?;
    Ok(Verdict::AllRight)
}

/// The page of what was found.
///
/// # Errors
/// If the drawing library fails.
pub fn page(title: &str, found: Found) -> anyhow::Result<String> {
    let mut sections = found.sections;
    sections.extend(over_load(&sections));
    html::page(title, &sections, &found.left_out)
}

/// Latency over load, of all files whose operations were due at some rate.
fn over_load(sections: &[Section]) -> Option<Section> {
    let of_rates = |section: &&Section| section.rows.iter().any(|row| row.number("rate").is_some());
    let of_workloads = |section: &&Section| KINDS[section.kind].name() == "ycsb";
    let paced: Vec<&Section> = sections.iter().filter(of_workloads).filter(of_rates).collect();
    let rows: Vec<Record> = paced.iter().flat_map(|section| section.rows.iter().cloned()).collect();
    let figures = views::writes::over_load(&rows);
    (!figures.is_empty()).then(|| Section {
        kind: paced[0].kind,
        title: Some("Latency over load".to_owned()),
        files: paced.iter().flat_map(|section| section.files.clone()).collect(),
        rows,
        figures,
    })
}

/// Puts the page into its place in one step. What is there stays if it is not such a page.
///
/// # Errors
/// If it cannot be written, or something else is there.
pub fn write(path: &Path, html: &str) -> anyhow::Result<()> {
    match fs::read(path) {
        Ok(there) if !String::from_utf8_lossy(&there).contains(html::MARK) => bail!(
            "{} is there, was not written by `report` and is left as it is: name another file with --out",
            path.display()
        ),
        _ => {}
    }
    let mut name =
        path.file_name().with_context(|| format!("--out {}: names no file", path.display()))?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let written = fs::write(&beside, html).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // Whatever was written says nothing; the first error does.
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| format!("{} cannot be written: name another file with --out", path.display()))
}
