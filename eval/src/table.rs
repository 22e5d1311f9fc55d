//! Tables of figures, which fit the terminal they are read in.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::io::stdout;

use comfy_table::{CellAlignment, presets};
use rustix::termios::tcgetwinsize;

/// A table with right-aligned figures after a first column of names.
///
/// Where it is wider than the terminal, it is printed as several: each with the columns that name a
/// row, and as many of the others as there is room for. So figures of one kind stay below each
/// other, where wrapped lines would mix them. What goes to a file is in one piece, unless the
/// variable `COLUMNS` says how wide it may be.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    names: usize,
    texts: Vec<usize>,
}

/// An empty table with columns of these names, which ` | ` separates; the first column names rows.
pub fn new_table(columns: &str) -> Table {
    let header = columns.split(" | ").map(str::to_owned).collect();
    Table { header, rows: Vec::new(), names: 1, texts: vec![0] }
}

impl Table {
    /// Says that it takes the first `columns` columns to name a row.
    pub fn named_by(mut self, columns: usize) -> Self {
        self.names = columns;
        self
    }

    /// Says that a column has text, which is aligned to the left.
    pub fn with_text(mut self, column: usize) -> Self {
        self.texts.push(column);
        self
    }

    /// Adds a row.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table within `width` columns of a terminal, as far as any figure has room beside its
    /// row's name.
    fn within(&self, width: Option<usize>) -> String {
        let all: Vec<usize> = (0..self.header.len()).collect();
        let parts = match width {
            Some(width) => parts(&self.widths(), self.names, width),
            None => vec![all],
        };
        let parts: Vec<String> = parts.iter().map(|columns| self.of(columns).to_string()).collect();
        parts.join("\n")
    }

    /// These columns of it.
    fn of(&self, columns: &[usize]) -> comfy_table::Table {
        let pick = |cells: &[String]| -> Vec<String> {
            columns.iter().map(|column| cells.get(*column).cloned().unwrap_or_default()).collect()
        };
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(pick(&self.header));
        for row in &self.rows {
            table.add_row(pick(row));
        }
        for (column, of) in table.column_iter_mut().zip(columns) {
            let is_text = self.texts.contains(of);
            column.set_cell_alignment(if is_text { CellAlignment::Left } else { CellAlignment::Right });
        }
        table
    }

    /// What each column takes.
    fn widths(&self) -> Vec<usize> {
        /// A space on either side, and one or a border before the next.
        const PADDING: usize = 3;
        let all: Vec<usize> = (0..self.header.len()).collect();
        self.of(&all).column_max_content_widths().iter().map(|width| usize::from(*width) + PADDING).collect()
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.within(width()))
    }
}

/// A report whose notes fit the terminal that it is read in, as its tables do.
pub fn with_notes_wrapped(report: &str) -> String {
    match width() {
        Some(width) => notes_within(report, width),
        None => report.to_owned(),
    }
}

/// A report whose notes are broken between words, after at most `most` columns.
fn notes_within(report: &str, most: usize) -> String {
    let options = textwrap::Options::new(most).subsequent_indent("      ").break_words(false);
    let lines = report.split_inclusive('\n').map(|line| match line.starts_with("note: ") {
        true => Cow::Owned(textwrap::fill(line, &options)),
        false => Cow::Borrowed(line),
    });
    lines.collect()
}

/// Columns of each of the tables that a table with columns of such widths is printed as, of which
/// the first few name a row.
fn parts(widths: &[usize], names: usize, most: usize) -> Vec<Vec<usize>> {
    const BORDER: usize = 1;
    let of = |columns: &[usize]| BORDER + columns.iter().map(|column| widths[*column]).sum::<usize>();
    let named: Vec<usize> = (0..names.min(widths.len())).collect();
    let mut parts = vec![named.clone()];
    for (column, width) in widths.iter().enumerate().skip(named.len()) {
        let Some(last) = parts.last_mut() else { break };
        if last.len() > named.len() && of(last) + width > most {
            parts.push([named.as_slice(), &[column]].concat());
        } else {
            last.push(column);
        }
    }
    parts
}

/// Columns of the terminal that standard output is, or those that the variable `COLUMNS` tells;
/// `None` of files and pipes.
fn width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let terminal = || tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col));
    told.or_else(terminal).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = new_table("system | plan | lookups/s | p50 | why").named_by(2).with_text(4);
        table.add_row(["fpcache", "range", "3.49 M", "12.3 µs", "chosen"].map(str::to_owned));
        table.add_row(["hashmap", "–", "175 M", "9 ns", "1.00× the time"].map(str::to_owned));
        table
    }

    #[test]
    fn a_table_that_has_room_is_in_one_piece() {
        let whole = example().within(None);
        let width = whole.lines().map(|line| line.chars().count()).max();
        assert_eq!(whole.matches("system").count(), 1);
        assert_eq!(example().within(width), whole);
        assert_ne!(example().within(width.map(|width| width - 1)), whole);
    }

    #[test]
    fn a_wider_one_is_several_each_with_the_names_of_rows() {
        let text = example().within(Some(45));
        assert!(text.lines().all(|line| line.chars().count() <= 45), "{text}");
        assert_eq!((text.matches("system").count(), text.matches("plan").count()), (2, 2), "{text}");
        assert_eq!(text.matches("fpcache").count(), 2, "{text}");
        for once in ["lookups/s", "3.49 M", "12.3 µs", "1.00× the time"] {
            assert_eq!(text.matches(once).count(), 1, "{text}");
        }
    }

    /// One that names many systems was a line of 600 characters.
    #[test]
    fn notes_are_broken_between_words_and_nothing_else_is() {
        let report = "a line that is longer\nnote: one of many words (2.12×), and\nnote: short\nend";
        let notes = "note: one of many\n      words\n      (2.12×), and\nnote: short\n";
        let told = format!("a line that is longer\n{notes}end");
        assert_eq!(notes_within(report, 18), told);
        assert_eq!(notes_within(report, 100), report);
    }

    #[test]
    fn no_column_is_lost_where_nothing_has_room() {
        assert_eq!(parts(&[10, 5, 5, 5], 1, 3), [[0, 1], [0, 2], [0, 3]]);
        assert_eq!(parts(&[10], 2, 3), [[0]]);
        assert_eq!(parts(&[10, 5, 5, 9], 1, 21), [vec![0, 1, 2], vec![0, 3]]);
    }
}
