//! `ping`: whether a memory node answers, and in what time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::output::{Outcome, Output};
use crate::place::Place;

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// Number of requests, one after the other
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
}

impl Ping {
    pub(crate) fn run(&self, place: &Place, output: &mut Output) -> anyhow::Result<Outcome> {
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
        // There is one at least.
        let (min, median, max) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        if output.is_json() {
            output.document(&json!({
                "url": tables.url().to_string(),
                "count": times.len(),
                "connect_us": us(connected),
                "min_us": us(min),
                "median_us": us(median),
                "max_us": us(max),
            }))?;
        } else {
            output.row("address", tables.url())?;
            output.row(
                "round trip",
                format_args!(
                    "{:.1} us (median of {}; {:.1} to {:.1} us)",
                    us(median),
                    times.len(),
                    us(min),
                    us(max)
                ),
            )?;
        }
        Ok(Outcome::Done)
    }
}
