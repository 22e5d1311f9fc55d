//! Named workloads from papers.

use std::fmt;
use std::str::FromStr;

use super::{Distribution, Mix, OperationKind};

/// A mix of operations, and how they are spread over the keys unless asked for otherwise.
///
/// | name | mix | distribution | from |
/// |---|---|---|---|
/// | `A` | 50 % reads, 50 % updates | zipf | YCSB |
/// | `B` | 95 % reads, 5 % updates | zipf | YCSB |
/// | `C` | reads | zipf | YCSB |
/// | `D` | 95 % reads, 5 % inserts | latest | YCSB |
/// | `E` | 95 % scans, 5 % inserts | zipf | YCSB |
/// | `F` | 50 % reads, 50 % read-modify-writes | zipf | YCSB |
/// | `paper-d` | 95 % reads, 5 % inserts | zipf | FPCache, table 3 |
/// | `paper-e` | 95 % scans, 5 % updates | zipf | FPCache, table 3 |
/// | `xstore-b` | 90 % reads, 10 % updates | zipf | XStore, table 1 |
/// | `xstore-d` | 95 % reads, 5 % inserts | uniform | XStore, §7.1 |
/// | `xstore-prod1` | 57 % updates, 41 % reads, 2 % scans | uniform | XStore, §7.1 |
/// | `xstore-prod2` | the same | zipf | XStore, §7.1 |
///
/// YCSB's are the core workloads of Cooper et al., *Benchmarking Cloud Serving Systems with YCSB*
/// (SoCC 2010, table 2); FPCache's B and C are YCSB's. XStore is Wei et al., *Fast RDMA-based
/// Ordered Key-Value Store using Remote Learned Cache* (OSDI 2020); its paper calls the production
/// workloads' changes writes, here they are updates. Zipf is the exact one with θ 0.99; scans ask
/// for 1 to 100 records, uniformly.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Shares of operations.
    pub mix: Mix,
    /// How they are spread over the keys.
    pub distribution: Distribution,
    /// Most records a scan asks for; the least is 1.
    pub scan_up_to: u8,
}

/// A text that names no workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a workload: write one of {}", NAMES.join(", "))]
pub struct ParseWorkloadError {
    text: String,
}

const NAMES: [&str; 12] = [
    "A",
    "B",
    "C",
    "D",
    "E",
    "F",
    "paper-d",
    "paper-e",
    "xstore-b",
    "xstore-d",
    "xstore-prod1",
    "xstore-prod2",
];
const THETA: f64 = 0.99;
const SCAN_UP_TO: u8 = 100;

impl Workload {
    /// The names that are known.
    pub const NAMES: [&str; 12] = NAMES;

    /// The workload of this name, whatever the case of its letters.
    pub fn named(name: &str) -> Option<Self> {
        use OperationKind::{Insert, Read, ReadModifyWrite, Scan, Update};
        let (zipf, latest) = (Distribution::Zipf { theta: THETA }, Distribution::Latest { theta: THETA });
        let name = NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
        let production = [(Update, 0.57), (Read, 0.41), (Scan, 0.02)];
        let (mix, distribution): (&[_], _) = match name {
            "A" => (&[(Read, 0.5), (Update, 0.5)], zipf),
            "B" => (&[(Read, 0.95), (Update, 0.05)], zipf),
            "D" => (&[(Read, 0.95), (Insert, 0.05)], latest),
            "E" => (&[(Scan, 0.95), (Insert, 0.05)], zipf),
            "F" => (&[(Read, 0.5), (ReadModifyWrite, 0.5)], zipf),
            "paper-d" => (&[(Read, 0.95), (Insert, 0.05)], zipf),
            "paper-e" => (&[(Scan, 0.95), (Update, 0.05)], zipf),
            "xstore-b" => (&[(Read, 0.9), (Update, 0.1)], zipf),
            "xstore-d" => (&[(Read, 0.95), (Insert, 0.05)], Distribution::Uniform),
            "xstore-prod1" => (&production, Distribution::Uniform),
            "xstore-prod2" => (&production, zipf),
            _ => (&[(Read, 1.0)], zipf),
        };
        Some(Self { name: name.to_owned(), mix: Mix::new(mix), distribution, scan_up_to: SCAN_UP_TO })
    }

    /// A workload of this mix, called `custom`, with YCSB's zipf and scans.
    pub fn custom(mix: Mix) -> Self {
        Self {
            name: "custom".to_owned(),
            mix,
            distribution: Distribution::Zipf { theta: THETA },
            scan_up_to: SCAN_UP_TO,
        }
    }
}

impl FromStr for Workload {
    type Err = ParseWorkloadError;

    fn from_str(text: &str) -> Result<Self, ParseWorkloadError> {
        Self::named(text).ok_or_else(|| ParseWorkloadError { text: text.to_owned() })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_in_any_case_and_no_other() {
        for name in NAMES {
            let workload: Workload = name.to_lowercase().parse().unwrap();
            assert_eq!(workload.to_string(), name);
        }
        let error = "G".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("`G`") && error.contains("xstore-prod1"), "{error}");
    }

    #[test]
    fn proportions_are_those_of_the_papers() {
        for (name, mix, distribution) in [
            ("A", "read=0.5,update=0.5", "zipf:0.99"),
            ("B", "read=0.95,update=0.05", "zipf:0.99"),
            ("C", "read=1", "zipf:0.99"),
            ("D", "read=0.95,insert=0.05", "latest:0.99"),
            ("E", "insert=0.05,scan=0.95", "zipf:0.99"),
            ("F", "read=0.5,read-modify-write=0.5", "zipf:0.99"),
            ("paper-e", "update=0.05,scan=0.95", "zipf:0.99"),
            ("xstore-prod1", "read=0.41,update=0.57,scan=0.02", "uniform"),
        ] {
            let workload = Workload::named(name).unwrap();
            assert_eq!(
                (workload.mix.to_string(), workload.distribution.to_string()),
                (mix.into(), distribution.into())
            );
        }
    }
}
