//! Results for one way of using one system.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::WaitingName;
use crate::run::measure::{Pass, median};
use crate::run::report::{Doubts, duration, least_to_most, none, rate, ratio_of};
use crate::table::{Table, new_table};

/// Figures of one way to ask one system; or why there are none.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PeerRow {
    /// The system.
    pub system: String,
    /// Its version; null for what is part of this program.
    pub version: Option<String>,
    /// How it is reached: unix, tcp, shm, or null within this process.
    pub transport: Option<String>,
    /// What is called.
    pub operation: String,
    /// Keys of a call, which is one request or one pipeline of requests.
    pub keys_per_call: u64,
    /// Keys of what latencies are of: a call, or the one key that each of many tasks waits for.
    pub keys_per_latency: u64,
    /// Why there are no figures, and how to have some.
    pub not_measured: Option<String>,
    /// Figures, if it was measured.
    #[serde(flatten)]
    pub figures: Option<Figures>,
}

/// A row with what was asked for, as it is written.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// The row.
    #[serde(flatten)]
    pub row: PeerRow,
    /// Keys loaded.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Passes of each.
    pub rounds: u32,
    /// Seconds of each pass.
    pub seconds: f64,
    /// How sockets were waited for.
    pub waiting: WaitingName,
}

/// Figures of all passes.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Lookups of each pass.
    pub lookups: u64,
    /// Keys looked up per second: the median pass.
    pub keys_per_s: f64,
    /// The slowest pass.
    pub keys_per_s_min: f64,
    /// The fastest pass.
    pub keys_per_s_max: f64,
    /// Median time of a call, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Processor seconds of this process per million keys, in the median pass.
    pub client_cpu_s_per_million: f64,
    /// The same of the server's process; null where there is none.
    pub server_cpu_s_per_million: Option<f64>,
    /// Wrong answers among those that were compared.
    pub mismatches: u64,
}

impl Figures {
    /// From the passes over `lookups` lookups each.
    pub fn new(lookups: usize, passes: &[Pass], latency: &Histogram<u64>, mismatches: u64) -> Option<Self> {
        let middle = median(passes)?;
        let rates = || passes.iter().map(|pass| pass.ops_per_s(lookups));
        let per_million = |time: std::time::Duration| time.as_secs_f64() * 1e6 / lookups.max(1) as f64;
        Some(Self {
            lookups: lookups as u64,
            keys_per_s: middle.ops_per_s(lookups),
            keys_per_s_min: rates().fold(f64::INFINITY, f64::min),
            keys_per_s_max: rates().fold(0.0, f64::max),
            p50_ns: latency.value_at_quantile(0.5),
            p99_ns: latency.value_at_quantile(0.99),
            client_cpu_s_per_million: per_million(middle.client_cpu),
            server_cpu_s_per_million: middle.server_cpu.map(per_million),
            mismatches,
        })
    }
}

/// The rows as a table. Ratios are to `reference`, which is one of them if it was measured.
pub fn table(rows: &[PeerRow], reference: Option<&PeerRow>) -> Table {
    let mut table =
        new_table("system | asked by | keys/s | least to most | ratio | p50 | p99 | client CPU | server CPU")
            .named_by(2);
    let base = reference.and_then(|row| Some(row.figures.as_ref()?.keys_per_s));
    for row in rows {
        let Some(figures) = &row.figures else { continue };
        let seconds = |seconds: f64| format!("{seconds:.2} s/M");
        table.add_row([
            row.named(),
            row.operation.clone(),
            rate(figures.keys_per_s),
            least_to_most(figures.keys_per_s_min, figures.keys_per_s_max),
            base.map_or_else(none, |base| ratio_of(figures.keys_per_s / base)),
            duration(figures.p50_ns),
            duration(figures.p99_ns),
            seconds(figures.client_cpu_s_per_million),
            figures.server_cpu_s_per_million.map_or_else(none, seconds),
        ]);
    }
    table
}

impl PeerRow {
    /// What its figures may say against themselves. Tasks wait side by side, so that the mean of
    /// each is this or more.
    pub fn doubts(&self) -> Option<Doubts> {
        let figures = self.figures.as_ref()?;
        Some(Doubts {
            of: format!("{} {}", self.named(), self.operation),
            passes: (figures.keys_per_s_min, figures.keys_per_s_max),
            mean_ns: 1e9 * self.keys_per_latency as f64 / figures.keys_per_s,
            p99_ns: figures.p99_ns,
        })
    }

    /// Whether others are compared with it: another system's answer to one key, over a unix socket.
    pub fn is_reference(&self) -> bool {
        self.transport.as_deref() == Some("unix") && self.keys_per_call == 1 && self.system != "fpcache"
    }

    /// The system and how it is reached.
    pub fn named(&self) -> String {
        match &self.transport {
            Some(transport) => format!("{} {transport}", self.system),
            None => self.system.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::report::doubts;

    fn row(system: &str, transport: Option<&str>, keys_per_call: u64) -> PeerRow {
        PeerRow {
            system: system.to_owned(),
            transport: transport.map(str::to_owned),
            operation: "get".to_owned(),
            keys_per_call,
            keys_per_latency: keys_per_call,
            ..PeerRow::default()
        }
    }

    #[test]
    fn a_rate_has_its_spread_beside_it_and_a_note_if_that_is_wide() {
        let figures = |least, most| Figures {
            lookups: 1_000_000,
            keys_per_s: 3.49e6,
            keys_per_s_min: least,
            keys_per_s_max: most,
            p50_ns: 300,
            p99_ns: 900,
            client_cpu_s_per_million: 0.3,
            server_cpu_s_per_million: None,
            mismatches: 0,
        };
        let with = |system, rates: (f64, f64)| PeerRow {
            figures: Some(figures(rates.0, rates.1)),
            ..row(system, Some("shm"), 1)
        };
        let wide = with("fpcache", (829e3, 8.07e6));
        let text = table(std::slice::from_ref(&wide), None).to_string();
        assert!(text.contains("829 K to 8.07 M"), "{text}");
        let told = |row: PeerRow| doubts(row.doubts().into_iter());
        assert!(told(wide).ends_with("fpcache shm get (9.73×)\n"));
        assert_eq!(told(with("fpcache", (3.4e6, 3.6e6))), "");
        // A call of 64 keys takes 18 µs, and one by 64 tasks is timed key by key.
        let together = PeerRow { keys_per_latency: 64, ..with("fpcache", (3.4e6, 3.6e6)) };
        assert!(told(together).ends_with("fpcache shm get (18.3 µs, 900 ns)\n"));
    }

    #[test]
    fn others_are_compared_with_another_systems_single_keys_over_a_unix_socket() {
        assert!(row("redis", Some("unix"), 1).is_reference());
        for other in [
            row("fpcache", Some("unix"), 1),
            row("redis", Some("tcp"), 1),
            row("redis", Some("unix"), 64),
            row("hashmap", None, 1),
        ] {
            assert!(!other.is_reference(), "{other:?}");
        }
    }
}
