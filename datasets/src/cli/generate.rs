//! The `generate` command.

use std::path::PathBuf;

use clap::Args;
use fpcache_datasets::bytes::LinesWriter;
use fpcache_datasets::count::{human, human_bytes};
use fpcache_datasets::published::by_name;
use fpcache_datasets::sosd::{HEADER_BYTES, SosdWriter, Width, content_name};
use fpcache_datasets::{
    Bar, ByteKeys, DatasetError, Duplicates, KeyKind, KeyStream, OpenOptions, Progress, Spec,
};

use super::outcome::{Failure, Outcome, announce};
use super::source::SourceArgs;

/// Keys generated between two writes.
const STEP: usize = 1 << 18;

#[derive(Args)]
pub(super) struct Generate {
    /// The data set, such as fb:16M. Duplicate integers are kept, duplicate lines written once.
    #[arg(value_name = "DATASET")]
    spec: Spec,
    /// The file to write; for integers, a name that ends in _uint32 or _uint64 sets their width.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it exists; allow the name of a published file.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    source: SourceArgs,
}

impl Generate {
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        if self.output.as_os_str() == "-" {
            return Err(
                "-o -: data sets are written to files, not to standard output: name one, or ./-".into()
            );
        }
        match self.spec.key_kind() {
            KeyKind::U64 => self.sosd(),
            KeyKind::Bytes => self.lines(),
        }
    }

    fn lines(&self) -> Result<Outcome, Failure> {
        let bar = Bar::of_keys();
        // First the target: what cannot be written need not be generated.
        let writer = LinesWriter::create(&self.output, self.force)?;
        let duplicates = Some(Duplicates::First);
        let dataset = self.spec.open_bytes(&OpenOptions { duplicates, ..self.source.options(&bar) })?;
        announce(dataset.notes());
        bar.begin("writing", dataset.len() as u64);
        let written = write_lines(dataset.keys(), writer, &bar);
        bar.end();
        let (keys, bytes) = written?;
        let (path, source) = (self.output.display(), dataset.source());
        Ok(format!("{path}: {} lines, {} ({source})\n", human(keys), human_bytes(bytes)).into())
    }

    fn sosd(&self) -> Result<Outcome, Failure> {
        let bar = Bar::of_keys();
        let name = content_name(&self.output);
        if by_name(&name).is_some() && !self.force {
            // Under $FPCACHE_DATASETS it would pass for the published file in every table of
            // results.
            let path = self.output.display();
            return Err(format!(
                "{path}: {name} is the name of a published file; to avoid confusion, choose another name \
                 or give --force"
            )
            .into());
        }
        // First the target: what cannot be written need not be generated.
        let writer = SosdWriter::create(&self.output, self.force)?;
        let mut stream = self.spec.stream(&self.source.options(&bar))?;
        announce(stream.notes());
        bar.begin("writing", stream.total());
        let written = copy(&mut stream, writer, &bar);
        bar.end();
        let keys = written?;
        let bytes = HEADER_BYTES + keys * Width::of_file(&self.output)?.bytes() as u64;
        let (path, source) = (self.output.display(), stream.source().as_str());
        Ok(format!("{path}: {} keys, {} ({source})\n", human(keys), human_bytes(bytes)).into())
    }
}

fn copy(stream: &mut KeyStream, mut writer: SosdWriter, bar: &Bar) -> Result<u64, DatasetError> {
    let mut chunk = Vec::new();
    let mut done = 0;
    while stream.fill(&mut chunk, STEP)? > 0 {
        writer.push(&chunk)?;
        done += chunk.len() as u64;
        bar.advance(done);
        chunk.clear();
    }
    writer.finish()
}

fn write_lines(keys: &ByteKeys, mut writer: LinesWriter, bar: &Bar) -> Result<(u64, u64), DatasetError> {
    let mut cursor = keys.cursor();
    while let Some(key) = cursor.next_key() {
        writer.push(key)?;
        if cursor.left().is_multiple_of(STEP) {
            bar.advance((keys.len() - cursor.left()) as u64);
        }
    }
    writer.finish()
}
