//! Rows of a command that measures one after the other: none is lost when a later one fails.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::run::report::{check_json, deliver, write_json};

/// The rows so far. A file of `--json` has each as soon as it is there.
#[derive(Debug)]
pub struct Collected<T> {
    rows: Vec<T>,
    json: Option<PathBuf>,
}

impl<T: Serialize> Collected<T> {
    /// None yet, of a command with this `--json`.
    ///
    /// # Errors
    /// If the file could not be written.
    pub fn new(json: Option<&Path>) -> anyhow::Result<Self> {
        check_json(json)?;
        Ok(Self { rows: Vec::new(), json: json.map(Path::to_owned) })
    }

    /// Adds rows, and writes all there are.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, rows: impl IntoIterator<Item = T>) -> anyhow::Result<()> {
        self.rows.extend(rows);
        match self.json.as_deref().filter(|json| *json != Path::new("-")) {
            Some(json) => write_json(&self.rows, json),
            None => Ok(()),
        }
    }

    /// Those that there are.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Hands over the rows there are, also if a later one failed; then says so.
    ///
    /// # Errors
    /// How the measuring ended, or that the rows cannot be written.
    pub fn deliver(
        &self,
        table: impl FnOnce(&[T]) -> String,
        measured: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Err(error) = measured else {
            return deliver(&table(&self.rows), &self.rows, self.json.as_deref());
        };
        if !self.rows.is_empty()
            && let Err(other) = deliver(&table(&self.rows), &self.rows, self.json.as_deref())
        {
            eprintln!("note: {other:#}");
        }
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_every_row_once_it_is_there_and_keeps_them_when_a_later_one_fails() {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("rows.json");
        let mut rows = Collected::new(Some(&json)).unwrap();
        assert!(!json.exists(), "without rows there is no file");
        #[derive(Serialize)]
        struct Row {
            at: u64,
        }
        let found = || {
            let rows: Vec<serde_json::Value> =
                serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
            rows.iter().filter_map(|row| row["at"].as_u64()).collect::<Vec<_>>()
        };
        for at in 1..3 {
            rows.add([Row { at }]).unwrap();
            assert_eq!(found(), (1..=at).collect::<Vec<_>>());
        }
        let error = rows.deliver(|_| String::new(), Err(anyhow::anyhow!("the third"))).unwrap_err();
        assert_eq!((error.to_string(), found()), ("the third".to_owned(), vec![1, 2]));
    }
}
