//! Latencies as rows of figures have them.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies of one kind of operation, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// How many were timed.
    pub operations: u64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

impl Latency {
    /// Of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            operations: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p95_ns: histogram.value_at_quantile(0.95),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            p9999_ns: histogram.value_at_quantile(0.9999),
            max_ns: histogram.max(),
        }
    }
}
