//! The `ping` command: whether memory nodes answer, and in what time.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use fpcache_client::{ClientError, TableName};
use serde_json::json;

use crate::output::{Outcome, Output};
use crate::table_arguments::TableArguments;
use crate::tables::none_failed;

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// Number of requests, one after the other
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    /// End with 1 if a memory node has a table that is closed: one that it could not open
    #[arg(long)]
    ready: bool,
}

impl Ping {
    /// Asks each of the memory nodes in the URL. Where some do not answer it shows the others, and
    /// then fails.
    pub(crate) fn run(&self, place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
        let places = place.each()?;
        let (mut failed, mut is_ready) = (Vec::new(), true);
        for place in &places {
            match self.ask(place) {
                Ok(answered) => {
                    is_ready &= answered.closed.is_empty();
                    answered.tell(self.ready, output)?;
                }
                Err(error) if places.len() == 1 => return Err(error.into()),
                Err(error) => failed.push(place.why(&error)),
            }
        }
        output.end_array()?;
        none_failed(&failed, places.len())?;
        Ok(if is_ready { Outcome::Done } else { Outcome::Wrong })
    }

    fn ask(&self, place: &TableArguments) -> Result<Answered, ClientError> {
        let started = Instant::now();
        let tables = place.tables()?;
        let connected = started.elapsed();
        let mut times = Vec::new();
        for i in 0..self.count {
            if i > 0 {
                sleep(PAUSE);
            }
            times.push(tables.ping()?);
        }
        times.sort_unstable();
        let list = if self.ready { tables.list()?.tables } else { Vec::new() };
        let closed = list.iter().filter(|table| table.is_closed()).map(|table| table.name).collect();
        Ok(Answered { url: tables.url().to_string(), connected, times, closed })
    }
}

/// A memory node that answered.
struct Answered {
    url: String,
    connected: Duration,
    /// In ascending order, one at least.
    times: Vec<Duration>,
    /// Its closed tables, if they were asked for.
    closed: Vec<TableName>,
}

impl Answered {
    fn tell(&self, with_closed: bool, output: &mut Output) -> io::Result<()> {
        let Self { url, connected, times, closed } = self;
        let (min, median, max) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        if output.is_json() {
            let mut told = json!({
                "url": url,
                "count": times.len(),
                "connect_us": us(*connected),
                "min_us": us(min),
                "median_us": us(median),
                "max_us": us(max),
            });
            if with_closed {
                told["closed"] = closed.iter().map(TableName::as_str).collect();
            }
            return output.element(&told);
        }
        output.row("address", url)?;
        let (least, most) = (us(min), us(max));
        let text =
            format_args!("{:.1} us (median of {}; {least:.1} to {most:.1} us)", us(median), times.len());
        output.row("round trip", text)?;
        match closed.as_slice() {
            [] => Ok(()),
            closed => {
                output.rows("closed", closed.iter().map(TableName::as_str).collect::<Vec<_>>().join("\n"))
            }
        }
    }
}
