//! The files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::kind::{KINDS, Kind};
use super::record::Record;
use super::section::Section;
use crate::fields::Fields;

/// A file of figures is smaller by far.
const MOST_BYTES: u64 = 64 << 20;

/// Sections, and the files, or rows of files, that are in none, each with the reason.
#[derive(Debug, Default)]
pub struct Found {
    /// Sections in the order of the files' names.
    pub sections: Vec<Section>,
    /// What was left out.
    pub left_out: Vec<(String, String)>,
}

impl Found {
    /// Adds a file's text.
    pub fn add(&mut self, name: &str, text: &str) {
        let rows = match rows_of(text) {
            Ok(rows) => rows,
            Err(why) => return self.left_out.push((name.to_owned(), why)),
        };
        let mut of_kind: Vec<Vec<Record>> = KINDS.iter().map(|_| Vec::new()).collect();
        let mut others: Vec<(usize, String)> = Vec::new();
        for (at, row) in rows.into_iter().enumerate() {
            let row = Record::new(row);
            match Kind::of(&row) {
                Ok(kind) => of_kind[kind].push(row),
                Err(why) => others.push((at, why)),
            }
        }
        if let Some((at, why)) = others.first() {
            let more = match others.len() {
                1 => String::new(),
                count => format!(", nor of {} other rows", count - 1),
            };
            self.left_out.push((name.to_owned(), format!("row {}{more}: {why}", at + 1)));
        }
        for (kind, rows) in of_kind.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            self.sections.push(Section::new(kind, name.to_owned(), rows));
        }
    }
}

fn rows_of(text: &str) -> Result<Vec<Fields>, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    match value.as_array() {
        None => return Err("it is no list of rows".to_owned()),
        Some(list) if list.is_empty() => return Err("it has no rows".to_owned()),
        Some(list) if !list.iter().all(serde_json::Value::is_object) => {
            return Err("its list is not one of rows".to_owned());
        }
        Some(_) => {}
    }
    serde_json::from_str(text).map_err(|error| format!("its rows cannot be read: {error}"))
}

/// The JSON files of a folder and of those right below it.
///
/// # Errors
/// If the folder cannot be read.
pub fn folder(folder: &Path) -> anyhow::Result<Found> {
    let (mut files, below) = entries(folder).with_context(|| {
        format!("{}: no folder that can be read: name one with JSON files", folder.display())
    })?;
    let mut found = Found::default();
    for below in below {
        match entries(&below) {
            Ok((inner, _)) => files.extend(inner),
            Err(error) => found.left_out.push((name_in(folder, &below), error.to_string())),
        }
    }
    for file in files {
        let name = name_in(folder, &file);
        match text_of(&file) {
            Ok(text) => found.add(&name, &text),
            Err(why) => found.left_out.push((name, why)),
        }
    }
    Ok(found)
}

/// The JSON files right in a folder, and the folders, each in the order of their names.
fn entries(folder: &Path) -> std::io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    folders.sort();
    Ok((files, folders))
}

fn name_in(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

fn text_of(path: &Path) -> Result<String, String> {
    let about = fs::metadata(path).map_err(|error| error.to_string())?;
    // To read a pipe would wait for its writer.
    if !about.is_file() {
        return Err("it is no ordinary file".to_owned());
    }
    if about.len() > MOST_BYTES {
        return Err(format!("it has {} bytes, and figures have {MOST_BYTES} at most", about.len()));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_named_with_the_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("[{\"half", "no JSON"),
            ("{\"mine\": 1}", "no list"),
            ("[]", "no rows"),
            ("[1, 2]", "not one of rows"),
            ("[{\"mine\": 1}]", "row 1: has the fields of no command"),
            ("[{\"a\": 1}, {\"a\": 2}, {\"a\": 3}]", "row 1, nor of 2 other rows"),
        ] {
            let mut found = Found::default();
            found.add("theirs.json", text);
            assert!(found.sections.is_empty());
            let (name, why) = &found.left_out[0];
            assert!(name == "theirs.json" && why.contains(reason), "{why}");
        }
    }

    #[test]
    fn rows_of_two_kinds_in_one_file_have_a_section_each() {
        let mut found = Found::default();
        let peer = r#"{"system": "redis", "operation": "GET", "keys_per_call": 1}"#;
        let size = r#"{"key_bytes": 8, "published": 1.0, "whole_keys": 2.0, "ours": 3.0}"#;
        found.add("both.json", &format!("[{peer}, {size}, {peer}, {{}}]"));
        let counts: Vec<usize> = found.sections.iter().map(|section| section.rows.len()).collect();
        assert_eq!((counts, found.left_out.len()), (vec![2, 1], 1));
    }
}
