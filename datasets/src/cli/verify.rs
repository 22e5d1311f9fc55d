//! The `verify` command.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use fpcache_datasets::count::human;
use fpcache_datasets::verify::verify;
use fpcache_datasets::{Bar, DatasetError, ErrorKind, bytes};

use super::outcome::{End, Failure, Outcome};

#[derive(Args)]
pub(super) struct Verify {
    /// SOSD files, plain or .zst, or lines:PATH, plain, .gz or .zst.
    #[arg(required = true, value_name = "PATH|lines:PATH")]
    paths: Vec<PathBuf>,
}

impl Verify {
    /// Checks every file, even if others are wrong.
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        let bar = Bar::of_keys();
        let mut outcome = Outcome::from(String::new());
        for path in &self.paths {
            if let Some(path) = path.to_str().and_then(|path| path.strip_prefix("lines:")) {
                verify_lines(path.as_ref(), &bar, &mut outcome)?;
                continue;
            }
            let shown = path.display();
            let verified = match verify(path, Some(&bar)) {
                Ok(verified) => verified,
                Err(error) => {
                    outcome.fail(&error, end_by(&error));
                    continue;
                }
            };
            let (keys, md5) = (human(verified.keys), &verified.md5);
            match verified.published {
                Some(file) if file.md5 == verified.md5 => {
                    writeln!(outcome.text, "{shown}: OK, {keys} keys, md5 {md5} is the published one")?;
                }
                Some(file) => {
                    let why = format!(
                        "{shown}: md5 {md5} is not the published {}, though the format is good; download it again \
                         with the command from `fpcache-datasets list`, or rename it if it is another file",
                        file.md5
                    );
                    outcome.fail(why, End::Wrong);
                }
                None => {
                    writeln!(
                        outcome.text,
                        "{shown}: format OK, {keys} keys, md5 {md5} (no published file of this name)"
                    )?;
                }
            }
        }
        Ok(outcome)
    }
}

/// Whether the error is of the file, or of something that kept it from being checked.
fn end_by(error: &DatasetError) -> End {
    let has_no_width = matches!(error, DatasetError::UnknownWidth { .. });
    if error.kind() == ErrorKind::BadFile && !has_no_width { End::Wrong } else { End::Failed }
}

fn verify_lines(path: &Path, bar: &Bar, outcome: &mut Outcome) -> Result<(), Failure> {
    let found = match bytes::verify(path, Some(bar)) {
        Ok(found) => found,
        Err(error) => {
            outcome.fail(&error, end_by(&error));
            return Ok(());
        }
    };
    let (shown, keys, md5) = (path.display(), human(found.keys), &found.md5);
    let (shortest, longest) = found.lengths;
    let order = match (found.unsorted, found.duplicates) {
        (0, 0) => "sorted, each once".to_owned(),
        (0, equal) => format!("sorted, {equal} equal to the line before"),
        (below, equal) => format!("{below} below the line before, {equal} equal to it"),
    };
    writeln!(
        outcome.text,
        "{shown}: format OK, {keys} lines of {shortest} to {longest} bytes, {order}, md5 {md5}"
    )?;
    Ok(())
}
