//! Errors of requests to measure the paper.

use fpcache_datasets::{DatasetError, ParseSpecError};

use super::claims::{Figure, all};

/// Why the paper cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// No such figure.
    #[error("the FPCache paper has no {0} that is measured here: there are {list}", list = known())]
    Unknown(Figure),
    /// The keys cannot be had.
    #[error(transparent)]
    Keys(#[from] DatasetError),
    /// Nor named.
    #[error(transparent)]
    Spec(#[from] ParseSpecError),
    /// Too large.
    #[error(
        "{system} over {keys} keys takes about {needs} MiB of this machine, which has {has} MiB free: use --scale {fits}"
    )]
    Memory {
        /// What needs most.
        system: &'static str,
        /// Keys.
        keys: u64,
        /// MiB it takes.
        needs: u64,
        /// MiB there are.
        has: u64,
        /// Keys for which there is room.
        fits: u64,
    },
}

/// Those that are made of more than two runs, or of none.
pub(super) const ELSEWHERE: [Figure; 2] = [Figure::Figure(10), Figure::Table(2)];

/// Figures and tables that are measured here.
fn known() -> String {
    let mut known: Vec<String> = Vec::new();
    for figure in all().iter().map(|claim| claim.figure).chain(ELSEWHERE) {
        let name = figure.to_string();
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known.join(", ")
}
