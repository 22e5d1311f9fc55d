//! `fpcache-memserver`: a memory node as a daemon.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::TableParameters;
use fpcache_datasets::{Duplicates, OpenOptions, Spec, write_value};
use fpcache_fabric::HugePages;
use fpcache_fabric::shm::ShmAddress;
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::store::Folders;
use fpcache_memserver::{Daemon, DaemonConfig, DurableConfig, capacity};

/// A memory node of FPCache: holds a data set in shared memory and lets clients look keys up in it without taking part.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        fpcache-memserver                               a quarter of the memory, at shm://fpcache\n  \
        fpcache-memserver --capacity 4GiB --load fb:16M\n  \
        fpcache-memserver --data-dir /var/lib/fpcache --fsync always\n  \
        fpcache-memserver --listen shm://second --allow-user 1001\n\n\
        Without --data-dir the data end with the process. With it, a memory node that was killed and is started again with\n\
        the same folder has all that it had acknowledged: it goes on with the region it left in memory, and after a restart\n\
        of the machine, or without the region's file, with the newest snapshot and the log. A region keeps its size.\n\n\
        Ends cleanly on SIGTERM and Ctrl-C, its log on the disk; a second one ends it at once, also in the midst of a load."
)]
struct Arguments {
    /// Address to listen at
    #[arg(long, value_name = "URL", default_value = "shm://fpcache", env = "FPCACHE_LISTEN")]
    listen: ShmAddress,

    /// Size of the region, such as 4GiB; one that --data-dir finds keeps its size [default: a quarter of the memory this
    /// process may use]
    #[arg(long, value_name = "SIZE", value_parser = capacity::parse, env = "FPCACHE_CAPACITY")]
    capacity: Option<u64>,

    /// Whether the region lies in huge pages
    #[arg(long, value_enum, default_value = "no")]
    huge_pages: HugePagesArgument,

    /// Numeric id of another user to let in (may be given several times)
    #[arg(long = "allow-user", value_name = "UID")]
    allowed_users: Vec<u32>,

    /// Data set to load before serving, such as ipv4, fb:16M or sosd:PATH
    #[arg(long, value_name = "DATASET")]
    load: Option<Spec>,

    /// With --load: half-width of the models' windows, in slots
    #[arg(long, default_value_t = 32, requires = "load")]
    epsilon: u32,

    /// With --load: bits of a fingerprint: 8, 16, 32 or 64
    #[arg(long, default_value_t = 64, requires = "load")]
    fingerprint_bits: u32,

    /// With --load: share of slots that hold a record
    #[arg(long, default_value_t = 0.85, requires = "load")]
    fill: f64,

    /// With --load: bytes of a value
    #[arg(long, default_value_t = 8, requires = "load")]
    value_bytes: u32,

    /// With --load: what a key that occurs twice is worth: refuse, first, last or sum [default: refuse; first for wiki]
    #[arg(long, value_name = "POLICY", requires = "load")]
    duplicates: Option<Duplicates>,

    /// The folder with published data sets, for --load
    #[arg(long, value_name = "FOLDER", env = "FPCACHE_DATA")]
    datasets_dir: Option<PathBuf>,

    /// Keep the data in this folder: they outlive the process, and a crash of the machine as --fsync says. One memory node
    /// at a time
    #[arg(long, value_name = "FOLDER", env = "FPCACHE_STORE")]
    data_dir: Option<PathBuf>,

    /// With --data-dir: the folder for the region, of this memory node alone, on tmpfs or hugetlbfs if the disk is slow or
    /// small [default: the same]
    #[arg(long, value_name = "FOLDER", requires = "data_dir")]
    region_dir: Option<PathBuf>,

    /// With --data-dir: when writes reach the disk: always (before they are acknowledged), an interval such as 10ms, or never
    /// (when the operating system likes)
    #[arg(long, value_name = "WHEN", default_value = "10ms", requires = "data_dir")]
    fsync: SyncPolicy,

    /// End when the process that started this one does
    #[arg(long)]
    exit_with_parent: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HugePagesArgument {
    /// Ordinary pages
    No,
    /// Huge pages if the machine has them free
    IfAvailable,
    /// Huge pages or an error
    Required,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let config = DaemonConfig {
        capacity: arguments.capacity.unwrap_or_else(capacity::default_capacity),
        huge_pages: match arguments.huge_pages {
            HugePagesArgument::No => HugePages::No,
            HugePagesArgument::IfAvailable => HugePages::IfAvailable,
            HugePagesArgument::Required => HugePages::Required,
        },
        allowed_users: arguments.allowed_users.clone(),
        exit_with_parent: arguments.exit_with_parent,
        durable: arguments.data_dir.clone().map(|data| DurableConfig {
            folders: Folders { region: arguments.region_dir.clone().unwrap_or_else(|| data.clone()), data },
            sync: arguments.fsync,
        }),
        ..DaemonConfig::at(arguments.listen.clone())
    };
    let mut daemon = Daemon::start(&config)?;
    if let Some(spec) = &arguments.load {
        let found = daemon.node().stats();
        if found.segments == 0 {
            load(&mut daemon, spec, &arguments).with_context(|| format!("loading {spec}"))?;
        } else {
            eprintln!(
                "note: --load {spec} is left out: the store is there already, with {} keys",
                found.keys
            );
        }
    }
    println!("{}", daemon.greeting());
    Ok(daemon.serve()?)
}

fn load(daemon: &mut Daemon, spec: &Spec, arguments: &Arguments) -> anyhow::Result<()> {
    let parameters = TableParameters {
        width: FingerprintWidth::from_bits(arguments.fingerprint_bits)?,
        value_bytes: arguments.value_bytes,
        epsilon: arguments.epsilon,
        fill: arguments.fill,
        ..TableParameters::default()
    };
    parameters.validate()?;
    let dataset = spec.open(&OpenOptions {
        duplicates: arguments.duplicates,
        data_dir: arguments.datasets_dir.clone(),
        ..Default::default()
    })?;
    dataset.notes().iter().for_each(|note| eprintln!("note: {note}"));
    let value = |i: usize, out: &mut [u8]| write_value(dataset.value(i), out);
    daemon.node().load(parameters, dataset.keys().iter().copied(), value)?;
    Ok(())
}
