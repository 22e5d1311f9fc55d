//! The `export` command: records into a file that `import` reads.

use std::io::Write;
use std::ops::Bound;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use fpcache_client::{ClientError, KeyKind, OpenError, TableClient, TableParameters};
use fpcache_datasets::OutputFile;
use serde_json::{Value, json};

use crate::keys::{KeyFormat, Keys};
use crate::output::{Outcome, Output, counted};
use crate::parameters::Parameters;
use crate::record_lines::Form;
use crate::scan::RangeArguments;
use crate::separator::Separator;
use crate::table_arguments::TableArguments;
use crate::value::{Format, TableFormat};
use crate::walk::{KeyBounds, walk};

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    range: RangeArguments,

    /// Write the records to this file, which appears once it is complete, or to - for standard
    /// output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Form of the lines [default: text, or jsonl with --json to standard output]
    #[arg(long = "as", value_enum, value_name = "FORM")]
    form: Option<Form>,

    /// What is written between key and value [default: a tab]
    #[arg(long, value_name = "TEXT")]
    separator: Option<Separator>,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

/// How lines are written.
pub(crate) struct Writing {
    pub(crate) form: Form,
    pub(crate) separator: Separator,
    pub(crate) key_format: KeyFormat,
    pub(crate) format: TableFormat,
}

impl Export {
    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        place: &TableArguments,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (from, to) = self.range.bounds::<K>(self.key_format)?;
        let span = KeyBounds {
            from: from.unwrap_or_else(|| K::lowest().to_owned()),
            to: to.map_or(Bound::Unbounded, Bound::Excluded),
        };
        let to_stdout = self.output.as_os_str() == "-";
        let by_default = if to_stdout && output.is_json() { Form::Jsonl } else { Form::Text };
        let creation = client.creation();
        let shape = client.shape()?;
        let writing = Writing {
            form: self.form.unwrap_or(by_default),
            separator: self.separator.clone().unwrap_or_default(),
            key_format: self.key_format,
            format: self.format.of(shape.value_bytes.map(|bytes| bytes as usize)),
        };
        if to_stdout {
            walk(client, span, false, u64::MAX, |key, value| {
                output.bytes(writing.line::<K>(key, value, output)?.as_bytes())?;
                Ok(!output.is_closed())
            })?;
            same_table(client, creation)?;
            return Ok(Outcome::Done);
        }
        let parameters = match client.table() {
            Ok(table) => Some(table.record.parameters),
            // It has no records either, until a write sets some.
            Err(ClientError::Open(OpenError::Empty)) => None,
            Err(error) => return Err(error.into()),
        };
        let path = &self.output;
        let failed = || format!("writing {}", path.display());
        let (mut file, mut records) = (OutputFile::create(path).with_context(failed)?, 0);
        walk(client, span, false, u64::MAX, |key, value| {
            records += 1;
            let line = writing.line::<K>(key, value, output)?;
            file.write_all(line.as_bytes()).with_context(failed)?;
            Ok(true)
        })?;
        same_table(client, creation)?;
        file.finish(true).with_context(failed)?;
        self.say::<K>(place, records, parameters.as_ref(), output)?;
        Ok(Outcome::Done)
    }

    /// Tells what was written, and what reads it.
    fn say<K: Keys>(
        &self,
        place: &TableArguments,
        records: u64,
        table: Option<&TableParameters>,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let (file, import) = (self.output.display().to_string(), self.import::<K>(place, table));
        if output.is_json() {
            output.document(&json!({
                "table": place.table.as_str(),
                "records": records,
                "file": file,
                "import": import,
            }))?;
            return Ok(());
        }
        output.row("exported", format_args!("{} to {file}", counted(records, "record")))?;
        output.row("to import", import)?;
        Ok(())
    }

    /// The command that makes the same table of the file.
    fn import<K: Keys>(&self, place: &TableArguments, table: Option<&TableParameters>) -> String {
        let mut words = vec!["fpcache-cli import".to_owned(), quoted(&self.output.display().to_string())];
        words.extend(place.is_url_explicit.then(|| format!("--url {}", quoted(&place.url))));
        words.push(format!("--table {}", place.table));
        if KeyKind::Bytes.is::<K>() {
            let bytes =
                table.and_then(|table| table.shape.key_bytes).map(|bytes| format!("--key-bytes {bytes}"));
            words.push(bytes.unwrap_or_else(|| "--keys bytes".to_owned()));
        }
        let are_integers = self.format.is_int();
        words.extend(table.into_iter().flat_map(|table| Parameters::options_for(table, are_integers)));
        words.extend(self.format.argument());
        words.extend(self.key_format.is_hex.then(|| "--hex".to_owned()));
        match (self.form, &self.separator) {
            (Some(Form::Jsonl), _) => words.push("--from jsonl".to_owned()),
            (_, Some(separator)) => words.push(format!("--separator {}", quoted(&separator.shown()))),
            (_, None) => {}
        }
        words.join(" ")
    }
}

impl Writing {
    /// The line of a record, which `import` reads back.
    pub(crate) fn line<K: Keys>(
        &self,
        key: &K::Key,
        value: &[u8],
        output: &Output,
    ) -> anyhow::Result<String> {
        let unfit = |why: String| anyhow!("the value of key {} {why}", K::short(key, self.key_format));
        Ok(match self.form {
            Form::Text => {
                let value = self.format.exact(value).map_err(unfit)?;
                let key = self.separator.guard(K::text(key, self.key_format));
                format!("{key}{}{value}\n", self.separator.as_str())
            }
            Form::Jsonl => {
                let value: Value = self.format.exact_json(value).map_err(unfit)?;
                let record = json!({ "key": K::json(key, self.key_format), "value": value });
                format!("{}\n", output.as_asked(&record))
            }
        })
    }
}

/// An error if the records are of two tables.
fn same_table<K: Keys>(client: &TableClient<K>, creation: u64) -> anyhow::Result<()> {
    match client.creation() == creation {
        true => Ok(()),
        false => bail!("the table was dropped and made anew during the export: export it again"),
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    match word.chars().all(|c| c.is_ascii_alphanumeric() || "._-/=:@%+,".contains(c)) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them_otherwise() {
        for (word, shown) in [
            ("cities.tsv", "cities.tsv"),
            ("a b", "'a b'"),
            ("\\t", "'\\t'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }
}
