//! A section of the page.

use super::kind::KINDS;
use super::record::Record;
use crate::plot::figure::Figure;

/// Rows of one kind, and what is drawn of them.
#[derive(Debug)]
pub struct Section {
    /// The number of their kind.
    pub kind: usize,
    /// The section's title, where it is not the kind's.
    pub title: Option<String>,
    /// The files they are from.
    pub files: Vec<String>,
    /// The rows.
    pub rows: Vec<Record>,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Section {
    /// The rows of a file.
    pub fn new(kind: usize, file: String, rows: Vec<Record>) -> Self {
        let figures = (KINDS[kind].figures)(&rows);
        Self { kind, title: None, files: vec![file], rows, figures }
    }
}
