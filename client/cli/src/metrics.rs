//! The `metrics` command: the counters of memory nodes and of all their tables, for Prometheus.

use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail, ensure};
use clap::Args;
use fpcache_datasets::OutputFile;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::exposition::{Metric, Number};
use crate::http::{self, Answer};
use crate::output::{Outcome, Output};
use crate::scrape::{Scraper, SharedScraper};
use crate::table_arguments::TableArguments;
use crate::tables::none_failed;

/// Tables of all memory nodes whose clients are kept between two scrapes: each has a connection.
const KEPT_CLIENTS: usize = 256;

/// What Prometheus takes its text format by.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Args)]
pub(crate) struct MetricsCommand {
    /// Serve the metrics to Prometheus until SIGTERM or Ctrl-C, at /metrics of this address, such
    /// as 127.0.0.1:9476, and at /healthz whether all memory nodes answer. Whoever reaches the
    /// address can read them
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,

    /// Write the metrics to this file, which appears or is replaced once it is complete, and not to
    /// standard output
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    output: Option<PathBuf>,
}

impl MetricsCommand {
    pub(crate) fn run(&self, place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
        match &self.listen {
            Some(address) => serve(address, place, output),
            None => self.print(place, output),
        }
    }

    fn print(&self, place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
        ensure!(
            self.output.is_none() || !output.is_json(),
            "--output writes the text format of Prometheus: leave --json away"
        );
        let mut scraper = Scraper::of(place, 0)?;
        let scrape = scraper.scrape();
        match &self.output {
            Some(path) => {
                write(&scrape.metrics, path).with_context(|| format!("writing {}", path.display()))?;
            }
            None => print(&scrape.metrics, output)?,
        }
        // The metrics have it, too, so that it is no failure of theirs.
        scrape.failed_tables.iter().for_each(|why| eprintln!("warning: {why}"));
        if let ([why], 1) = (scrape.failed_nodes.as_slice(), scraper.nodes()) {
            bail!("{why}");
        }
        none_failed(&scrape.failed_nodes, scraper.nodes())?;
        Ok(Outcome::Done)
    }
}

/// Puts the metrics into a file, whole or not at all.
fn write(metrics: &[Metric], path: &Path) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    metrics.iter().try_for_each(|metric| write!(file, "{metric}"))?;
    file.finish(true)
}

fn print(metrics: &[Metric], output: &mut Output) -> io::Result<()> {
    for metric in metrics {
        match output.is_json() {
            true => output.element(&document(metric))?,
            false => output.bytes(metric.to_string().as_bytes())?,
        }
    }
    output.end_array()
}

fn serve(address: &str, place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
    ensure!(!output.is_json(), "--listen serves the text format of Prometheus: leave --json away");
    // A check of health has connections of its own, on which no scrape is under way.
    let (scraper, pinger) =
        (SharedScraper::of(Scraper::of(place, KEPT_CLIENTS)?), SharedScraper::of(Scraper::of(place, 0)?));
    let (stop, stopping) = UnixStream::pair().context("making a pair of sockets")?;
    let is_told = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // The second signal ends the process at once, whatever the first waits for.
        let told = flag::register_conditional_default(signal, Arc::clone(&is_told))
            .and_then(|_| flag::register(signal, Arc::clone(&is_told)))
            .and_then(|_| pipe::register(signal, stopping.try_clone()?));
        told.context("installing signal handlers")?;
    }
    let listening = || format!("listening at {address}: give --listen the HOST:PORT of a free port");
    let listener = TcpListener::bind(address).with_context(listening)?;
    output.line(format_args!("serving http://{}/metrics", listener.local_addr().with_context(listening)?))?;
    output.finish()?;
    let failed = Mutex::new(Vec::new());
    let scrape = |scraper: &mut Scraper| {
        let scrape = scraper.scrape();
        let failing = [scrape.failed_nodes, scrape.failed_tables].concat();
        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
        // Told when it begins, and not at every scrape.
        failing.iter().filter(|why| !failed.contains(*why)).for_each(|why| eprintln!("warning: {why}"));
        *failed = failing;
        scrape.metrics.iter().map(ToString::to_string).collect()
    };
    let served = http::serve(&listener, &stop, |path| match path {
        "/metrics" => Some(Answer { is_well: true, content_type: EXPOSITION, body: scraper.ask(scrape) }),
        "/healthz" => {
            let unanswered: Vec<String> = pinger.ask(Scraper::unanswered);
            let body = if unanswered.is_empty() { "ok".to_owned() } else { unanswered.join("\n") };
            let content_type = "text/plain; charset=utf-8";
            Some(Answer { is_well: unanswered.is_empty(), content_type, body: body + "\n" })
        }
        _ => None,
    });
    served.context("serving metrics")?;
    Ok(Outcome::Done)
}

fn document(metric: &Metric) -> Value {
    let samples = metric.samples.iter().map(|(labels, number)| {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
        let value: Value = match number {
            Number::Whole(number) => (*number).into(),
            Number::Seconds(number) => (*number).into(),
        };
        json!({ "labels": Value::Object(labels), "value": value })
    });
    json!({
        "name": metric.name,
        "help": metric.help,
        "type": metric.kind.name(),
        "samples": samples.collect::<Vec<_>>(),
    })
}
