//! What an experiment takes.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use fpcache_client::{FingerprintWidth, PlanChoice, TableParameters, Url};
use fpcache_datasets::requests::Distribution;
use fpcache_datasets::{Duplicates, OpenOptions, Spec};
use fpcache_memserver::capacity;

use crate::cli::positive_count;
use crate::progress::Bar;
use crate::systems::SystemName;

const EXAMPLES: &str = "Examples:
  fpcache-eval run --dataset ipv4
  fpcache-eval run --dataset fb:16M --plan two-stage --fingerprint-bits 8 --epsilon 64
  fpcache-eval run --dataset uniform:50M --batch 32 --lookups 10M --json result.json
  fpcache-eval run --dataset wiki:4M --system fpcache --dist zipf:0.99 --negative 0.1 --json -
  fpcache-eval run --dataset ipv4 --system fpcache --url shm://fpcache

Data sets: fb, wiki, ipv4, uniform, lognormal, sequential, sosd:PATH; with a count, as in fb:16M.
fb and wiki are the published files where $FPCACHE_DATA holds them, else calibrated stand-ins.

Exit code: 0 if every answer was right, 1 if one was wrong, 2 if the experiment failed.";

/// The options of `run`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Data set, such as fb:16M, ipv4 or sosd:PATH
    #[arg(long)]
    pub dataset: Spec,

    /// Systems to measure, separated by commas
    #[arg(long = "system", value_enum, value_delimiter = ',', default_value = "fpcache,hashmap,btreemap")]
    pub systems: Vec<SystemName>,

    /// Lookups of every pass
    #[arg(long, default_value = "2M", value_parser = positive_count)]
    pub lookups: u64,

    /// Keys per call: 1 is a plain get, more a multi_get
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,

    /// Distribution of the lookups over the keys: uniform or zipf:THETA
    #[arg(long = "dist", value_name = "DISTRIBUTION", default_value = "uniform")]
    pub distribution: Distribution,

    /// Share of lookups for absent keys, from 0 to 1: half between neighbours, half outside the range
    #[arg(long, default_value = "0", value_parser = share)]
    pub negative: f64,

    /// Half-width of the models' windows, in slots
    #[arg(long, default_value_t = 32, conflicts_with = "url")]
    pub epsilon: u32,

    /// Bits of a fingerprint: 8, 16, 32 or 64
    #[arg(long, value_name = "BITS", default_value = "64", value_parser = width, conflicts_with = "url")]
    pub fingerprint_bits: FingerprintWidth,

    /// Share of slots that hold a record
    #[arg(long, default_value_t = 0.85, conflicts_with = "url")]
    pub fill: f64,

    /// How keys are read: auto, two-stage or range
    #[arg(long, default_value = "auto")]
    pub plan: PlanChoice,

    /// Where the memory node is: a second process, or this one
    #[arg(long, value_enum, default_value = "shm", conflicts_with = "url")]
    pub transport: Transport,

    /// Threads that look up at once
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,

    /// Seeds generators, samples and lookups
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Bytes of a value
    #[arg(long, default_value = "8", conflicts_with = "url",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(TableParameters::MAX_VALUE_BYTES)))]
    pub value_bytes: u32,

    /// What equal keys of the data set mean: first, last or sum of their positions is the value
    #[arg(long)]
    pub duplicates: Option<Duplicates>,

    /// Size of the memory node's region, such as 4GiB [default: estimated from the data]
    #[arg(long, value_name = "SIZE", value_parser = capacity::parse, conflicts_with = "url")]
    pub capacity: Option<u64>,

    /// A running memory node that holds the data set already: nothing is loaded
    #[arg(long)]
    pub url: Option<String>,

    /// Throughput passes per system, which take turns; the median counts
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Also write the figures as JSON, to a file or, with -, to standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Folder with published data sets
    #[arg(long, env = "FPCACHE_DATA", value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,

    /// Buffer for measuring the machine's memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = capacity::parse, hide = true)]
    pub calibration_buffer: u64,
}

/// Where the memory node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// A second process, over shared memory
    Shm,
    /// Inside this process
    Local,
}

impl Transport {
    /// As options and reports spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Local => "local",
        }
    }
}

impl RunArgs {
    /// Checks what a single option cannot know, before any work is done.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.table().validate()?;
        if let Some(url) = &self.url {
            let _: Url = url.parse()?;
            ensure!(
                self.systems.contains(&SystemName::Fpcache),
                "--url names a memory node, but fpcache is not among the systems: add it with --system"
            );
        }
        ensure!(
            u64::from(self.batch) <= self.lookups,
            "a batch of {} keys exceeds the {} lookups: use more lookups or a smaller batch",
            self.batch,
            self.lookups
        );
        Ok(())
    }

    /// The table's parameters, where it is loaded here.
    pub fn table(&self) -> TableParameters {
        TableParameters {
            width: self.fingerprint_bits,
            value_bytes: self.value_bytes,
            epsilon: self.epsilon,
            fill: self.fill,
            ..TableParameters::default()
        }
    }

    /// The systems, each once, in the order asked for.
    pub fn distinct_systems(&self) -> Vec<SystemName> {
        let mut systems = Vec::new();
        for &system in &self.systems {
            if !systems.contains(&system) {
                systems.push(system);
            }
        }
        systems
    }

    /// How the data set is opened.
    pub fn open_options<'a>(&self, bar: &'a Bar) -> OpenOptions<'a> {
        OpenOptions {
            seed: self.seed,
            duplicates: self.duplicates,
            data_dir: self.data_dir.clone(),
            progress: Some(bar),
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to 1, such as 0.1".to_owned())
}

fn width(text: &str) -> Result<FingerprintWidth, String> {
    let bits = text.parse().map_err(|_| "write 8, 16, 32 or 64".to_owned())?;
    FingerprintWidth::from_bits(bits).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse(options: &str) -> Result<RunArgs, String> {
        let words = ["fpcache-eval", "run"].into_iter().chain(options.split_whitespace());
        match Cli::try_parse_from(words).map_err(|e| e.to_string())?.command {
            Some(Command::Run(arguments)) => {
                arguments.validate().map_err(|e| e.to_string())?;
                Ok(*arguments)
            }
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn defaults_measure_all_systems() {
        let arguments = parse("--dataset ipv4").unwrap();
        assert_eq!(
            arguments.distinct_systems(),
            [SystemName::Fpcache, SystemName::Hashmap, SystemName::Btreemap]
        );
        assert_eq!((arguments.lookups, arguments.batch, arguments.threads), (2_000_000, 1, 1));
        assert_eq!(arguments.table(), TableParameters::default());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        for (options, remedy) in [
            ("", "--dataset"),
            ("--dataset facebook", "fb:16M"),
            ("--dataset ipv4 --system redis", "hashmap"),
            ("--dataset ipv4 --plan three-stage", "two-stage"),
            ("--dataset ipv4 --dist pareto", "zipf:0.99"),
            ("--dataset ipv4 --negative 1.5", "0 to 1"),
            ("--dataset ipv4 --negative=-0.1", "0 to 1"),
            ("--dataset ipv4 --negative nan", "0 to 1"),
            ("--dataset ipv4 --lookups 0", "above 0"),
            ("--dataset ipv4 --batch 0", "1..=65536"),
            ("--dataset ipv4 --threads 0", "1..=1024"),
            ("--dataset ipv4 --value-bytes 0", "1..=65536"),
            ("--dataset ipv4 --value-bytes 65537", "1..=65536"),
            ("--dataset ipv4 --fill 1.01", "0.85"),
            ("--dataset ipv4 --fill 0", "0.85"),
            ("--dataset ipv4 --epsilon 5000", "4096"),
            ("--dataset ipv4 --fingerprint-bits 12", "8, 16, 32 or 64"),
            ("--dataset ipv4 --transport rdma", "local"),
            ("--dataset ipv4 --duplicates some", "first"),
            ("--dataset ipv4 --capacity much", "4GiB"),
            ("--dataset ipv4 --lookups 10 --batch 32", "smaller batch"),
            ("--dataset ipv4 --url shm://x --epsilon 8", "--url"),
            ("--dataset ipv4 --url x", "shm://"),
            ("--dataset ipv4 --url shm://x --system hashmap", "--system"),
        ] {
            let error = parse(options).unwrap_err();
            assert!(error.contains(remedy), "{options}: {error}");
        }
    }

    #[test]
    fn a_system_named_twice_is_measured_once() {
        let arguments = parse("--dataset ipv4 --system hashmap,fpcache,hashmap").unwrap();
        assert_eq!(arguments.distinct_systems(), [SystemName::Hashmap, SystemName::Fpcache]);
    }
}
