//! `verify`

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use fpcache_datasets::count::human;
use fpcache_datasets::verify::verify;

use super::progress::Bar;
use super::{Failure, Outcome};

#[derive(Args)]
pub(super) struct Verify {
    /// SOSD files, plain or .zst.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Verify {
    /// Every file is looked at, whatever the others are.
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        let bar = Bar::default();
        let mut outcome = Outcome::from(String::new());
        for path in &self.paths {
            let shown = path.display();
            let verified = match verify(path, Some(&bar)) {
                Ok(verified) => verified,
                Err(error) => {
                    eprintln!("error: {error}");
                    outcome.success = false;
                    continue;
                }
            };
            let (keys, md5) = (human(verified.keys), &verified.md5);
            match verified.published {
                Some(file) if file.md5 == verified.md5 => {
                    writeln!(outcome.text, "{shown}: OK, {keys} keys, md5 {md5} is the published one")?;
                }
                Some(file) => {
                    eprintln!(
                        "error: {shown}: md5 {md5} is not the published {}, though the format is good; download it again \
                         with the command from `fpcache-datasets list`, or rename it if it is another file",
                        file.md5
                    );
                    outcome.success = false;
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
