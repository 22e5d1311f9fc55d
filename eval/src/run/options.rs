//! Options of `run`.

mod checks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Command, FromArgMatches};
use fpcache_client::{
    ByteKeys, ClientConfig, GroupChoice, Plan, PlanChoice, RecordShape, TableParameters, WidthChoice,
};
use fpcache_datasets::requests::{Distribution, RequestOptions};
use fpcache_datasets::{Bar, Duplicates, KeySet, OpenOptions, Spec, Unsorted, time};
use fpcache_memserver::capacity;

use crate::counts::positive_count;
use crate::data::{DataKeys, KeyLengths, Stream, announce};
use crate::machine::{Calibration, Machine, calibrate};
use crate::node::{NodeOptions, capacity_for};
use crate::pages::MemoryPages;
use crate::run::cache::CacheArgs;
use crate::run::model::ModelArgs;
use crate::run::passes::{self, Passes};
use crate::run::setting::Setting;
use crate::run::store::StoreArgs;
use crate::run::transport::Transport;
use crate::run::values::ValueBytes;
use crate::run::workload::{Lookups, Workload};
use crate::systems::SystemName;

/// Ends the help of `run`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval run --dataset ipv4
  fpcache-eval run --dataset fb:16M --plan two-stage --fingerprint-bits 8 --epsilon 64
  fpcache-eval run --dataset uniform:20M --system fpcache,fpcache-client,hashmap
  fpcache-eval run --dataset uniform:50M --batch 32 --lookups 10M --json result.json
  fpcache-eval run --dataset wiki:4M --system fpcache --dist zipf:0.99 --negative 0.1 --json -
  fpcache-eval run --dataset fb:16M --system fpcache --dist zipf:0.99 --cache 8MiB
  fpcache-eval run --dataset fb:16M --system fpcache --dist zipf:0.99 --cache 8MiB --lookups 50M \\
      --shift-every 20M --timeline 500K
  fpcache-eval run --dataset ycsb:10M --key-bytes 24 --value-bytes vary:1024
  fpcache-eval run --dataset ycsb:1M --value-bytes vary:8192 --inline-bytes 256
  fpcache-eval run --dataset lines:/usr/share/dict/words --duplicates first
  fpcache-eval run --dataset ipv4 --system fpcache --url shm://fpcache
  fpcache-eval run --dataset fb:4M --dist zipf:0.99 --transport nic:cx6-100g --clients 384 --system fpcache,smart,chime

Data sets of integers: fb, wiki, osm, books, ipv4, uniform, normal, lognormal, sequential, sosd:PATH; of byte strings: \
words, domains, paths, ycsb, binary, prefixes, lines:PATH; with a count, as in fb:16M. fb, wiki, osm and books are the \
published files where $FPCACHE_DATASETS holds them, else calibrated stand-ins.

Exit code: 0 if every answer was right, 1 if one was wrong, 2 if the experiment failed.";

/// The options of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Data set, such as fb:16M, ipv4, sosd:PATH, words, paths:1M or lines:PATH
    #[arg(long, visible_alias = "data")]
    pub dataset: Spec,

    /// Bytes of every key of ycsb and binary data sets, and with nic:… of integers, which then
    /// stand for longer keys [default: their own length]
    #[arg(long, value_name = "BYTES", value_parser = key_bytes)]
    pub key_bytes: Option<usize>,

    /// Systems to measure, separated by commas
    #[arg(long = "system", value_enum, value_delimiter = ',', default_value = "fpcache,hashmap,btreemap")]
    pub systems: Vec<SystemName>,

    /// Lookups of every pass
    #[arg(long, default_value = "2M", value_parser = positive_count)]
    pub lookups: u64,

    /// Keys per call: 1 is a plain get, more a multi_get
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,

    /// Distribution of the lookups over the keys: uniform, sosd, zipf:THETA, ycsb-zipf:THETA,
    /// latest:THETA, hotspot:SHARE:PROBABILITY (neighbouring keys) or hotset:SHARE:PROBABILITY
    /// (scattered ones)
    #[arg(long = "dist", value_name = "DISTRIBUTION", default_value = "uniform")]
    pub distribution: Distribution,

    /// Lookups after which other keys become popular, such as 10M [default: never]
    #[arg(long, value_name = "LOOKUPS", value_parser = positive_count)]
    pub shift_every: Option<u64>,

    /// Record throughput in an additional pass, once per this many lookups, such as 100K
    #[arg(long, value_name = "LOOKUPS", value_parser = positive_count)]
    pub timeline: Option<u64>,

    /// Share of lookups for absent keys, from 0 to 1: half between neighbours, half outside the
    /// range
    #[arg(long, default_value = "0", value_parser = share)]
    pub negative: f64,

    /// Half-width of the models' windows, in slots
    #[arg(long, default_value_t = Self::EPSILON, conflicts_with = "url")]
    pub epsilon: u32,

    /// Bits of a fingerprint: 8, 16, 32 or 64, auto for the fewest that suit epsilon and records,
    /// or none, where slots alone are READ
    #[arg(long, value_name = "BITS|auto|none", default_value_t, conflicts_with = "url")]
    pub fingerprint_bits: WidthChoice,

    /// Share of slots that hold a record [default: 0.85, with groups 0.8]
    #[arg(long, value_name = "SHARE", conflicts_with = "url")]
    pub fill: Option<f64>,

    /// Store records in groups, with 0.25 to 0.35 bytes per key on the compute node, as --plan
    /// groups does: plain ones for slots of up to 64 bytes, or --groups=seeded, with half of the
    /// bytes; pilots for longer slots, and pilots:16 in shorter blocks than the usual 32 slots, for
    /// scans [possible values: auto, plain, seeded, pilots, pilots:SLOTS]
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        conflicts_with = "url"
    )]
    pub groups: Option<GroupChoice>,

    /// Plan for reading keys: auto, two-stage, range, speculative, groups or, over sockets, at-node
    #[arg(long, default_value = "auto")]
    pub plan: PlanChoice,

    /// Transport: a memory node in a second process over shared memory or sockets, in this process,
    /// or a model of network cards, in which all compared systems can be run (feature `workbench`)
    #[arg(long, value_enum, default_value = "shm", conflicts_with = "url")]
    pub transport: Transport,

    /// Memory nodes over which fpcache's table is partitioned, each in its own process; with nic:…
    /// those of every system
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64), conflicts_with = "url")]
    pub nodes: u32,

    /// Over sockets: how long clients and memory nodes spin before they sleep, such as 0s [default:
    /// 50us]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub spin: Option<Duration>,

    /// Threads that look up concurrently
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,

    /// With nic:…: clients, one thread each, on six compute nodes [default: 384]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=24_576))]
    pub clients: Option<u32>,

    /// Pages of memory, for all systems alike
    #[arg(long, value_enum, default_value_t)]
    pub pages: MemoryPages,

    /// Seed of generators, samples and lookups
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Bytes of a value: a number, or vary:64 for 1 to 64 bytes
    #[arg(long, value_name = "BYTES", default_value = "8", conflicts_with = "url")]
    pub value_bytes: ValueBytes,

    /// If values vary: bytes of the longest that are stored in slots, all of which have this room;
    /// longer ones are external and cost one more round trip [default: those of the longest value,
    /// at most 65536]
    #[arg(long, value_name = "BYTES", conflicts_with = "url", value_parser = clap::value_parser!(u32).range(16..=65536))]
    pub inline_bytes: Option<u32>,

    /// Value of equal keys of the data set: the first, last or sum of their positions
    #[arg(long)]
    pub duplicates: Option<Duplicates>,

    /// What to do with unsorted lines in lines:PATH: sort or refuse
    #[arg(long, default_value_t = Unsorted::Sort)]
    pub unsorted: Unsorted,

    /// Size of the memory node's region, such as 4GiB [default: estimated]
    #[arg(long, value_name = "SIZE", value_parser = capacity::parse, conflicts_with = "url")]
    pub capacity: Option<u64>,

    /// A running memory node that already has the data set, so that nothing is loaded
    #[arg(long, conflicts_with = "store_dir")]
    pub url: Option<String>,

    /// Where the memory node keeps its data, if it is durable.
    #[command(flatten)]
    pub store: StoreArgs,

    /// The budget of this compute node.
    #[command(flatten)]
    pub cache: CacheArgs,

    /// What is of modelled network cards alone.
    #[command(flatten)]
    pub model: ModelArgs,

    /// Throughput passes per system, interleaved; the median counts
    #[arg(long, default_value_t = Self::ROUNDS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Also write the results as JSON, to a file or, with -, to standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Folder with published data sets
    #[arg(long = "datasets-dir", env = "FPCACHE_DATASETS", value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,

    /// Buffer for measuring the latency of the machine's memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = capacity::parse, hide = true)]
    pub calibration_buffer: u64,
}

impl RunArgs {
    /// Passes without `--rounds`.
    pub const ROUNDS: u32 = 3;
    /// Half-width without `--epsilon`.
    pub const EPSILON: u32 = 32;

    /// The options that these words give, as they would stand after `run` on a command line.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("fpcache-eval run").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    /// Options of the stream of lookups, with `parts` parts of a pass each.
    ///
    /// # Errors
    /// If there are more than the machine can count.
    pub fn request_options(&self, parts: usize) -> anyhow::Result<RequestOptions> {
        let lookups = usize::try_from(self.lookups).ok().and_then(|lookups| lookups.checked_mul(parts));
        Ok(RequestOptions {
            lookups: lookups.context("--lookups exceeds this machine's memory")?,
            distribution: self.distribution,
            negative: self.negative,
            seed: self.seed,
            shift_every: self.shift_every,
        })
    }

    /// The settings of a client of the memory node.
    pub fn client_config(&self) -> ClientConfig {
        let config = ClientConfig::default().with_plan(self.plan).with_cache(self.cache.config());
        match self.spin {
            Some(spin) => config.with_spin(spin),
            None => config,
        }
    }

    /// The options of a memory node of this experiment.
    pub fn node(&self, capacity: u64, ordinal: u32) -> NodeOptions<'_> {
        NodeOptions { capacity, ordinal, store: &self.store, spin: self.spin, pages: self.pages }
    }

    /// What all systems of an experiment share.
    pub fn setting(&self, machine: &Machine, calibration: Calibration) -> Setting {
        Setting {
            distribution: self.distribution.to_string(),
            shift_every: self.shift_every,
            negative: self.negative,
            seed: self.seed,
            transport: self.transport_in_words(),
            memory_nodes: self.url.is_none().then_some(self.nodes),
            spin: self.spins(),
            inline_bytes: self.value_bytes.fixed().is_none().then(|| self.inline_bytes()),
            pages: self.pages,
            fsync: self.store.reported(),
            machine: machine.clone(),
            calibration,
            sweep: None,
        }
    }

    /// Where the memory node is: the transport, or that of its URL.
    pub fn transport_in_words(&self) -> String {
        let scheme = self.url.as_deref().and_then(|url| url.split_once("://")).map(|(scheme, _)| scheme);
        match scheme {
            Some("tcp+unix") => Transport::Unix.as_str(),
            Some(scheme) => scheme,
            None => self.transport.as_str(),
        }
        .to_owned()
    }

    /// How long clients look at sockets before they sleep, if they use any.
    pub fn spins(&self) -> Option<Duration> {
        let is_mapped = matches!(&*self.transport_in_words(), "shm" | "local");
        (!is_mapped).then(|| self.client_config().spin)
    }

    /// The passes over a stream that was made by [`request_options`](Self::request_options) with as
    /// many parts.
    pub fn passes<'a, 'k, K: DataKeys>(
        &self,
        dataset: &'a K::Set,
        requests: &'a Stream<'k, K>,
        values: ValueBytes,
    ) -> Passes<'a, 'k, K> {
        /// Stretches per stay of the popular keys: threads are apart by less than that.
        const STRETCHES: usize = 16;
        let batch = self.batch as usize;
        let stretch = self.shift_every.map(|every| (every as usize / STRETCHES).max(batch));
        Passes {
            workload: Workload {
                dataset,
                lookups: Lookups::all(requests),
                values,
                batch,
                threads: self.threads as usize,
                stretch,
                warm_up: None,
                cold: self.cache.cold,
            },
            requests,
            parts: self.parts(),
            rounds: self.rounds as usize,
            timeline: self.timeline.map(|every| every as usize),
        }
    }

    /// Parts of a pass each that the stream has.
    pub fn parts(&self) -> usize {
        let lookups = usize::try_from(self.lookups).unwrap_or(usize::MAX);
        passes::parts(self.cache.budget().is_some(), self.rounds as usize, lookups)
    }

    /// The parameters of a table with keys of these lengths, if it is loaded here.
    pub fn table(&self, keys: &KeyLengths) -> TableParameters {
        // Keys have at most 4,096 bytes.
        let key_bytes = keys.fixed().map(|bytes| bytes as u16);
        let room = keys.most as u32 + self.inline_bytes();
        let parameters = TableParameters {
            shape: RecordShape { key_bytes, value_bytes: self.value_bytes.fixed(), room },
            epsilon: self.epsilon,
            ..TableParameters::default()
        };
        let parameters = parameters.with_width(self.fingerprint_bits);
        let parameters = self.groups().map_or(parameters, |choice| parameters.with_groups(choice));
        TableParameters { fill: self.fill.unwrap_or(parameters.fill), ..parameters }
    }

    /// The form of groups that records are stored in.
    pub fn groups(&self) -> Option<GroupChoice> {
        let by_plan = || (self.plan == PlanChoice::Fixed(Plan::Groups)).then_some(GroupChoice::Auto);
        self.groups.or_else(by_plan)
    }

    /// Share of slots that hold a record, if they are short enough for groups.
    pub fn fill(&self) -> f64 {
        let default = TableParameters::default().fill;
        self.fill.unwrap_or(self.groups().map_or(default, |_| TableParameters::FILL_OF_GROUPS))
    }

    /// Bytes of the longest values that are stored in slots.
    fn inline_bytes(&self) -> u32 {
        match self.value_bytes {
            ValueBytes::Fixed(bytes) => bytes,
            ValueBytes::UpTo(most) => self.inline_bytes.unwrap_or(TableParameters::MAX_VALUE_BYTES).min(most),
        }
    }

    /// Bytes of a region for a table with this many keys of these lengths, unless given.
    pub fn region_bytes<K: DataKeys>(&self, keys: &KeyLengths, count: u64) -> u64 {
        self.capacity.unwrap_or_else(|| {
            let outside = self.value_bytes.mean_beyond(self.inline_bytes()) * count as f64;
            capacity_for::<K>(&self.table(keys), count) + (outside * 1.25) as u64
        })
    }

    /// The systems, each once, in the given order.
    pub fn distinct_systems(&self) -> Vec<SystemName> {
        let mut systems = Vec::new();
        for &system in &self.systems {
            if !systems.contains(&system) {
                systems.push(system);
            }
        }
        systems
    }

    /// Reads or generates the data set, and prints the notes on it.
    ///
    /// # Errors
    /// As for [`DataKeys::open`].
    pub fn open<K: DataKeys>(&self, bar: &Bar) -> anyhow::Result<K::Set> {
        let dataset = K::open(&self.dataset, &self.open_options(bar))?;
        announce(dataset.notes());
        Ok(dataset)
    }

    /// Measures this machine.
    pub fn calibrate(&self, bar: &Bar) -> Calibration {
        bar.during("measuring this machine", 1, || calibrate(self.calibration_buffer, self.pages))
    }

    /// How the data set is opened.
    pub fn open_options<'a>(&self, bar: &'a Bar) -> OpenOptions<'a> {
        OpenOptions {
            seed: self.seed,
            duplicates: self.duplicates,
            unsorted: self.unsorted,
            key_bytes: self.key_bytes,
            data_dir: self.data_dir.clone(),
            progress: Some(bar),
        }
    }
}

fn key_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| (1..=ByteKeys::MAX_KEY_BYTES).contains(bytes));
    bytes.ok_or_else(|| format!("write a whole number in 1..={}", ByteKeys::MAX_KEY_BYTES))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to 1, such as 0.1".to_owned())
}

#[cfg(test)]
mod tests;
