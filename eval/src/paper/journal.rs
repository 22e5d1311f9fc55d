//! Runs that were finished before an interruption: a file beside that of `--json`, which goes when
//! the figures are there.
//!
//! The first line says what the runs are of, each other one is a run. A line that an interruption
//! has cut off is of no account.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use fpcache_workbench::BuildError;
use fpcache_workbench::experiment::Run;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// What a run gave, with published parameters and at its best.
type Runs = Vec<Result<Run, BuildError>>;

#[derive(Serialize, Deserialize)]
struct Line {
    name: String,
    runs: Runs,
}

/// Finished runs.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    made: HashMap<String, Runs>,
    file: Mutex<File>,
}

impl Journal {
    /// The file beside that of the figures.
    pub fn beside(json: &Path) -> PathBuf {
        let mut name = json.as_os_str().to_owned();
        name.push(".runs");
        name.into()
    }

    /// The runs in a file that are of this, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read or written, is none of these, or has runs of something else.
    pub fn open(path: PathBuf, of: &str) -> anyhow::Result<Self> {
        let (first, text) = (format!("{FIRST}{of}\n"), read(&path)?);
        let told = || told(&path);
        let mut made = HashMap::new();
        let mut whole = text.find('\n').map_or(text.len(), |end| end + 1);
        let is_ours = text[..whole] == first;
        for line in text[whole..].split_inclusive('\n') {
            let Some(parsed) =
                line.strip_suffix('\n').and_then(|line| serde_json::from_str::<Line>(line).ok())
            else {
                break;
            };
            made.insert(parsed.name, parsed.runs);
            whole += line.len();
        }
        anyhow::ensure!(
            is_ours || made.is_empty(),
            "{} has {} finished runs of a command with other options, or of another build of this program, which was interrupted: go on \
             with that one, or remove the file to give them up, or name another file with --json",
            path.display(),
            made.len()
        );
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(told)?;
        if !is_ours {
            file.set_len(0).with_context(told)?;
            file.write_all(first.as_bytes()).with_context(told)?;
            whole = first.len();
        }
        file.set_len(whole as u64).with_context(told)?;
        file.seek(std::io::SeekFrom::End(0)).with_context(told)?;
        Ok(Self { path, made, file: Mutex::new(file) })
    }

    /// Gives up the runs in a file, whatever they are of.
    ///
    /// # Errors
    /// If the file cannot be removed, or is none of these.
    pub fn give_up(path: &Path) -> anyhow::Result<()> {
        if read(path)?.is_empty() { Ok(()) } else { fs::remove_file(path).with_context(|| told(path)) }
    }

    /// How many runs there were.
    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// The figures are there: the file goes.
    ///
    /// # Errors
    /// If it does not.
    pub fn finish(self) -> anyhow::Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("removing {}", self.path.display()))
    }
}

fn told(path: &Path) -> String {
    format!("{}, which keeps finished runs", path.display())
}

/// The text of a file of finished runs; none if it is not there.
fn read(path: &Path) -> anyhow::Result<String> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| told(path)),
    };
    anyhow::ensure!(
        text.is_empty() || text.starts_with(FIRST) || FIRST.starts_with(&text),
        "{} is none of finished runs and is left as it is: move it away, or name another file with --json",
        path.display()
    );
    Ok(text)
}

/// What tells the running program from every other: a hash of it. What it was built from does not
/// say enough, which may have changes that are in no commit.
///
/// # Errors
/// If its file cannot be read.
pub fn program() -> std::io::Result<u128> {
    Ok(xxh3_128(&fs::read(std::env::current_exe()?)?))
}

/// Begins every such file.
const FIRST: &str = "runs of fpcache-eval ";

impl fpcache_workbench::paper::Journal for Journal {
    fn made(&self, name: &str) -> Option<Runs> {
        self.made.get(name).cloned()
    }

    fn keep(&self, name: &str, runs: &[Result<Run, BuildError>]) {
        let line = Line { name: name.to_owned(), runs: runs.to_vec() };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_string(&line).map_err(anyhow::Error::from);
        let written = written.and_then(|line| Ok(file.write_all(format!("{line}\n").as_bytes())?));
        if let Err(error) = written {
            eprintln!("note: {} does not keep a run: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_all_of_its_bytes() {
        let file = fs::read(std::env::current_exe().expect("a program")).expect("its bytes");
        assert_eq!(program().expect("a hash"), xxh3_128(&file));
        let mut other = file;
        *other.last_mut().expect("bytes") ^= 1;
        assert_ne!(program().expect("a hash"), xxh3_128(&other), "one that is built anew");
    }

    #[test]
    fn files_of_others_and_runs_of_another_scale_are_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("paper.json.runs");
        fs::write(&path, "mine").expect("a file");
        let error = format!("{:#}", Journal::open(path.clone(), "1").expect_err("not ours"));
        assert!(error.contains("--json") && fs::read_to_string(&path).expect("text") == "mine", "{error}");
        fs::remove_file(&path).expect("gone");
        let line = r#"{"name":"a","runs":[{"Err":"too small"}]}"#;
        fs::write(&path, format!("{FIRST}1\n{line}\n{}", &line[..20])).expect("a file");
        let journal = Journal::open(path.clone(), "1").expect("ours");
        assert_eq!((journal.len(), journal.made.contains_key("a")), (1, true));
        fpcache_workbench::paper::Journal::keep(&journal, "b", &[Err(BuildError("too small".into()))]);
        assert_eq!(Journal::open(path.clone(), "1").expect("ours").len(), 2, "what was cut off is gone");
        // They went without a word.
        let error = format!("{:#}", Journal::open(path.clone(), "2").expect_err("of another scale"));
        for part in ["paper.json.runs has 2 finished runs", "other options", "remove the file", "--json"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(Journal::open(path.clone(), "1").expect("ours").len(), 2);
        Journal::give_up(&path).expect("ours");
        Journal::give_up(&path).expect("nothing is there");
        assert_eq!(Journal::open(path.clone(), "2").expect("ours").len(), 0);
        // Of no run: nothing is lost.
        assert_eq!(Journal::open(path, "1").expect("ours").len(), 0);
    }
}
