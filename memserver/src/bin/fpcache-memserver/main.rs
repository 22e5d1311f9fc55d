//! `fpcache-memserver`: a memory node as a daemon.

mod log;
mod notify;
mod sockets;

use std::io::{self, Write};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use fpcache::TableName;
use fpcache::fingerprint::WidthChoice;
use fpcache::key_space::{BuildKeys, ByteKeys, KeyKind, U64Keys};
use fpcache::layout::{GroupChoice, RecordShape, TableParameters};
use fpcache_datasets::arguments::{refuse_apart, without_empty_variables};
use fpcache_datasets::{Duplicates, OpenOptions, Spec, causes, write_value};
use fpcache_fabric::HugePages;
use fpcache_memserver::daemon::{log_to_stderr_as, raise_descriptor_limit};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{
    Daemon, DaemonConfig, DaemonError, DurableConfig, FirstTable, ListenAddress, MemoryNode, capacity,
};
use tracing::info;

use log::{LogForm, LogLevel};
use sockets::SocketArguments;

/// How long a reader of standard output that does not read may hold up the daemon.
const PATIENCE: Duration = Duration::from_secs(1);

/// A memory node of FPCache: serves tables from memory that clients read directly.
#[derive(Debug, Parser)]
#[command(
    version = env!("FPCACHE_VERSION"),
    after_help = "Examples:\n  \
        fpcache-memserver                               a quarter of the machine's memory, at shm://fpcache\n  \
        fpcache-memserver --capacity 4GiB --load fb:16M\n  \
        fpcache-memserver --keys bytes                  byte strings as keys of the table `default`\n  \
        fpcache-memserver --load words --table words    loads into another table\n  \
        fpcache-memserver --load ycsb:1M --key-bytes 128 --value-bytes 100\n  \
        fpcache-memserver --data-dir /var/lib/fpcache --fsync always\n  \
        fpcache-memserver --listen shm://second --allow-user 1001\n  \
        fpcache-memserver --listen shm://fpcache --listen tcp://127.0.0.1:7400\n  \
        fpcache-memserver --listen tcps://0.0.0.0:7400 --tls-cert node.pem --tls-key node.key --token-file tokens\n\n\
        Tables are created, listed and dropped while it runs: fpcache-cli create --table NAME, tables, drop NAME. They share the \
        capacity, each taking what it uses. If there is no table, `default` is created.\n\n\
        Without --data-dir the data are lost when the process ends. With it, a memory node that is killed and restarted with the \
        same folder keeps everything that it acknowledged: it resumes with its region, which is still in memory or, after a \
        restart of the machine, loads the newest snapshot and replays the log. The files of a table are in \
        DATA_DIR/tables/NAME. The size of a region is fixed.\n\n\
        Clients and tables need open files: a client one, a table with --data-dir eight. The daemon raises its soft limit \
        (ulimit -n) to the hard one and prints how many clients and tables that allows.\n\n\
        SIGTERM and Ctrl-C stop it cleanly, with its log on the disk; a second one stops it at once, even during a load.\n\n\
        Exit codes: 0 stopped as requested, 2 usage error or failure, also if the disk did not take all of the log."
)]
struct Arguments {
    /// Address to listen at: shm://NAME for clients that map its memory (at most one),
    /// tcp://HOST:PORT, tcp+unix:///PATH, tcps://HOST:PORT if built with TLS, or
    /// rdma://HOST:PORT?dev=NAME&gid=INDEX&port=NUMBER if built with RDMA. All users of this
    /// machine can connect to tcp://127.0.0.1:PORT; addresses that other machines can reach need
    /// --token-file. May be repeated
    #[arg(
        long,
        value_name = "URL",
        default_value = "shm://fpcache",
        env = "FPCACHE_LISTEN",
        value_delimiter = ','
    )]
    listen: Vec<ListenAddress>,

    /// Memory for all tables together, such as 4GiB [default: a quarter of the memory this process
    /// may use]
    #[arg(long, value_name = "SIZE", value_parser = capacity::parse, env = "FPCACHE_CAPACITY")]
    capacity: Option<u64>,

    /// Lowest level of messages written to standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info", env = "FPCACHE_LOG")]
    log: LogLevel,

    /// Format of these messages, one per line
    #[arg(long, value_enum, value_name = "FORM", default_value = "plain", env = "FPCACHE_LOG_FORMAT")]
    log_format: LogForm,

    /// Whether regions use huge pages. With `if-available` or `required`, a region takes all its
    /// memory when its table is created: the whole capacity, unless the table is created with
    /// --region-bytes
    #[arg(long, value_enum, default_value = "merged", env = "FPCACHE_HUGE_PAGES")]
    huge_pages: HugePagesArgument,

    /// Numeric id of another user who may connect, to shm://NAME@UID with the id of the user that
    /// runs this memory node. May be repeated
    #[arg(long = "allow-user", value_name = "UID", value_parser = user, env = "FPCACHE_ALLOW_USER", value_delimiter = ',')]
    allowed_users: Vec<u32>,

    /// Keys of the first table: u64, or bytes for byte strings of 1 B to 4 KiB [default: those of
    /// the data set to load, else u64; a table found in --data-dir keeps its own]
    #[arg(long, value_enum, value_name = "KIND")]
    keys: Option<KeysArgument>,

    /// Table to load into, and to create if there are no tables
    #[arg(long, value_name = "NAME", default_value_t)]
    table: TableName,

    /// Data set to load before serving, unless the table has keys already, such as ipv4, fb:16M,
    /// sosd:PATH, words, ycsb:1M or lines:PATH
    #[arg(long, value_name = "DATASET")]
    load: Option<Spec>,

    /// With --load: half-width of the models' windows, in slots
    #[arg(long, default_value_t = 32, requires = "load")]
    epsilon: u32,

    /// With --load: bits of a fingerprint: 8, 16, 32 or 64, auto for the fewest with which lookups
    /// rarely read the wrong record, or none, where slots alone are READ
    #[arg(long, value_name = "BITS|auto|none", default_value_t, requires = "load")]
    fingerprint_bits: WidthChoice,

    /// With --load: share of slots that hold a record [default: 0.85, with --groups 0.8]
    #[arg(long, value_name = "SHARE", requires = "load")]
    fill: Option<f64>,

    /// With --load: store records in groups. With 0.25 to 0.35 bytes per key on the compute node,
    /// nearly every lookup is then one READ. Over shared memory it saves nothing. For slots of up
    /// to 64 bytes plain groups, or --groups=seeded, which takes half of the bytes, but after
    /// inserts more lookups need a second READ; for longer slots pilots, which lead to the very
    /// record. auto is plain or pilots. pilots:16 has blocks of 16 slots instead of 32: scans READ
    /// fewer slots beyond what they want, for 0.08 bytes more per key [possible values: auto,
    /// plain, seeded, pilots, pilots:SLOTS]
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        requires = "load"
    )]
    groups: Option<GroupChoice>,

    /// With --load: bytes of a value
    #[arg(long, default_value_t = 8, requires = "load")]
    value_bytes: u32,

    /// With --load of ycsb or binary: bytes of every key
    #[arg(long, value_name = "BYTES", requires = "load")]
    key_bytes: Option<usize>,

    /// With --load of byte strings: bytes of a slot for key and value together, for keys of any
    /// length [default: those of the longest record; if all keys have one length, later ones must
    /// have it too]
    #[arg(long, value_name = "BYTES", requires = "load")]
    slot_bytes: Option<u32>,

    /// With --load: value of a key that occurs twice: refuse, first, last or sum [default: refuse;
    /// first for wiki]
    #[arg(long, value_name = "POLICY", requires = "load")]
    duplicates: Option<Duplicates>,

    /// Folder with published data sets, for --load
    #[arg(long, value_name = "FOLDER", env = "FPCACHE_DATASETS")]
    datasets_dir: Option<PathBuf>,

    /// Folder to keep the data in, so that they survive the process and, depending on --fsync, a
    /// crash of the machine. For one memory node at a time. It must belong to this user or root,
    /// and not be writable by others
    #[arg(long, value_name = "FOLDER", env = "FPCACHE_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// With --data-dir: folder for the regions of this memory node, on tmpfs or hugetlbfs if the
    /// disk is slow or small [default: the same folder]
    #[arg(long, value_name = "FOLDER", requires = "data_dir", env = "FPCACHE_REGION_DIR")]
    region_dir: Option<PathBuf>,

    /// With --data-dir: when writes are synced to the disk: always (before they are acknowledged),
    /// at an interval such as 10ms, or never (left to the operating system)
    #[arg(long, value_name = "WHEN", default_value = "10ms", requires = "data_dir", env = "FPCACHE_FSYNC")]
    fsync: SyncPolicy,

    /// Exit when the parent process does. A parent that may end while this process starts gives its
    /// PID: this process exits at once if its parent is another
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true)]
    exit_with_parent: Option<Option<u32>>,

    #[command(flatten)]
    sockets: SocketArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HugePagesArgument {
    /// Ordinary pages, merged into huge ones in the background as a table fills them; not in files
    /// of --data-dir
    Merged,
    /// Ordinary pages
    No,
    /// Huge pages if enough are free
    IfAvailable,
    /// Huge pages or an error
    Required,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeysArgument {
    /// Integers
    U64,
    /// Byte strings
    Bytes,
}

impl From<KeysArgument> for KeyKind {
    fn from(keys: KeysArgument) -> Self {
        match keys {
            KeysArgument::U64 => Self::U64,
            KeysArgument::Bytes => Self::Bytes,
        }
    }
}

fn main() -> ExitCode {
    let parent = parent_id();
    let (mut command, words) = (Arguments::command(), Vec::from_iter(std::env::args_os()));
    let is_form = |word: &str| word.parse::<GroupChoice>().is_ok();
    refuse_apart(&mut command, &words, "--groups", is_form).unwrap_or_else(|error| error.exit());
    let matches = without_empty_variables(command).get_matches_from(words);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // Dropped last: also after what a panic unwinds.
    let log = log_to_stderr_as(arguments.log.into(), arguments.log_format.into());
    log.take_panics();
    match run(arguments, parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.line(format_args!("error: {}", causes::in_one_line(error.chain())));
            // As for wrong usage, and as the other programs have it.
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments, parent: u32) -> anyhow::Result<()> {
    raise_descriptor_limit();
    let at = DaemonConfig::at_all(arguments.listen.clone())?;
    let config = DaemonConfig {
        serving: arguments.sockets.serving(&at.sockets)?,
        tokens: arguments.sockets.tokens(),
        card_lease: arguments.sockets.card_lease(&at.sockets)?.unwrap_or(at.card_lease),
        capacity: arguments.capacity.unwrap_or_else(capacity::default_capacity),
        huge_pages: match arguments.huge_pages {
            HugePagesArgument::Merged => HugePages::Merged,
            HugePagesArgument::No => HugePages::No,
            HugePagesArgument::IfAvailable => HugePages::IfAvailable,
            HugePagesArgument::Required => HugePages::Required,
        },
        allowed_users: arguments.allowed_users.clone(),
        exit_with_parent: arguments.exit_with_parent.map(|named| named.unwrap_or(parent)),
        durable: arguments.data_dir.clone().map(|data| DurableConfig {
            folders: Folders { region: arguments.region_dir.clone().unwrap_or_else(|| data.clone()), data },
            sync: arguments.fsync,
        }),
        first: first_table(&arguments),
        ..at
    };
    let mut daemon = Daemon::open(&config)?;
    let name = arguments.table;
    if let (Some(found), Some(asked)) = (daemon.tables().kind_of(&name), arguments.keys.map(KeyKind::from))
        && found != asked
    {
        return Err(DaemonError::OtherKeys { name, found, asked }.into());
    }
    if let Some(spec) = &arguments.load {
        match kind_of(spec) {
            KeyKind::U64 => load::<U64Keys>(&mut daemon, spec, &arguments)?,
            KeyKind::Bytes => load::<ByteKeys>(&mut daemon, spec, &arguments)?,
        }
    }
    greet(daemon.greeting().to_string());
    let (stop, tables) = (daemon.stop_handle(), daemon.tables());
    let _stopping = notify::ready(tables.tables().count(), tables.closed().count(), stop);
    Ok(daemon.serve()?)
}

/// Writes the greeting, which nobody need read for the tables to be served.
fn greet(greeting: String) {
    let (written, is_written) = mpsc::channel();
    let greeting: Arc<str> = greeting.into();
    // A closed standard output does not stop the server.
    let write = |greeting: &str| drop(writeln!(io::stdout(), "{greeting}"));
    let here = Arc::clone(&greeting);
    let write_there = move || {
        write(&greeting);
        let _ = written.send(());
    };
    // Ended by the process, if it still waits for a reader then.
    match thread::Builder::new().name("fpcache-greeting".into()).spawn(write_there) {
        Ok(_) => drop(is_written.recv_timeout(PATIENCE)),
        Err(_) => write(&here),
    }
}

/// Reads the numeric id of a user.
fn user(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "it is no number: `id -u NAME` prints that of a user".to_owned())
}

/// The table to make if there is none, whose keys are those that were asked for or those of the
/// data set to load.
fn first_table(arguments: &Arguments) -> FirstTable {
    let (asked, of_load) = (arguments.keys.map(KeyKind::from), arguments.load.as_ref().map(kind_of));
    FirstTable { name: arguments.table, keys: asked.or(of_load).unwrap_or(KeyKind::U64) }
}

/// What the keys of a data set are.
fn kind_of(spec: &Spec) -> KeyKind {
    match spec.key_kind() {
        fpcache_datasets::KeyKind::U64 => KeyKind::U64,
        fpcache_datasets::KeyKind::Bytes => KeyKind::Bytes,
    }
}

/// Loads a data set into the table that was named, unless that holds one already.
fn load<K: LoadKeys>(daemon: &mut Daemon, spec: &Spec, arguments: &Arguments) -> anyhow::Result<()> {
    let name = arguments.table;
    if let Some(there) = daemon.tables().tables().find(|table| table.name == name && table.keys > 0) {
        let keys = there.keys;
        info!("skipping --load {spec}: the table `{name}` exists already, with {keys} keys");
        return Ok(());
    }
    if let Some(asked) = arguments.keys.map(KeyKind::from) {
        let of_load = kind_of(spec);
        ensure!(
            asked == of_load,
            "--load {spec} has keys of the kind {of_load}, not {asked}: leave --keys away"
        );
    }
    let node = daemon.table::<K>(&name)?;
    let options = OpenOptions {
        duplicates: arguments.duplicates,
        key_bytes: arguments.key_bytes,
        data_dir: arguments.datasets_dir.clone(),
        ..Default::default()
    };
    K::load(node, spec, &options, arguments).with_context(|| format!("loading {spec}"))
}

/// Keys of which there are data sets.
trait LoadKeys: BuildKeys {
    fn load(
        node: &mut MemoryNode<Self>,
        spec: &Spec,
        options: &OpenOptions<'_>,
        arguments: &Arguments,
    ) -> anyhow::Result<()>;
}

impl LoadKeys for U64Keys {
    fn load(
        node: &mut MemoryNode<Self>,
        spec: &Spec,
        options: &OpenOptions<'_>,
        arguments: &Arguments,
    ) -> anyhow::Result<()> {
        let unwanted = arguments.key_bytes.is_some() || arguments.slot_bytes.is_some();
        ensure!(
            !unwanted,
            "its keys are u64s, whose records all have one length: leave --key-bytes and --slot-bytes away"
        );
        let parameters = parameters::<Self>(arguments, RecordShape::fixed(8, arguments.value_bytes))?;
        let dataset = spec.open(options)?;
        dataset.notes().iter().for_each(|text| info!("{text}"));
        let value = |i: usize, out: &mut [u8]| write_value(dataset.value(i), out);
        node.load(parameters, dataset.keys().iter().copied(), value)?;
        Ok(())
    }
}

impl LoadKeys for ByteKeys {
    fn load(
        node: &mut MemoryNode<Self>,
        spec: &Spec,
        options: &OpenOptions<'_>,
        arguments: &Arguments,
    ) -> anyhow::Result<()> {
        /// Keys that the coordinates are fitted to.
        const SAMPLE: usize = 50_000;
        // What cannot be need not be generated first.
        parameters::<Self>(arguments, RecordShape::fixed(1, arguments.value_bytes))?;
        let dataset = spec.open_bytes(options)?;
        dataset.notes().iter().for_each(|text| info!("{text}"));
        let (keys, value_bytes) = (dataset.keys(), arguments.value_bytes);
        // Keys have at most 4 KiB.
        let longest = keys.longest() as u32;
        let shape = match (keys.every_length(), arguments.slot_bytes) {
            (Some(len), None) => RecordShape::fixed(len as u16, value_bytes),
            (_, room) => {
                let room = room.unwrap_or(longest + value_bytes);
                ensure!(
                    room >= longest + value_bytes,
                    "keys of {longest} bytes and values of {value_bytes} do not fit --slot-bytes {room}: allow at least {}",
                    longest + value_bytes
                );
                RecordShape { key_bytes: None, value_bytes: Some(value_bytes), room }
            }
        };
        let parameters = parameters::<Self>(arguments, shape)?;
        let key = |i: usize| keys.get(i, &mut Vec::new()).to_vec();
        let sample: Vec<Vec<u8>> = (0..keys.len()).step_by((keys.len() / SAMPLE).max(1)).map(key).collect();
        let encoders = Self::train(sample.iter().map(Vec::as_slice), dataset.len() as u64);
        let records = (0..keys.len()).map(|i| {
            let mut value = vec![0; value_bytes as usize];
            write_value(dataset.value(i), &mut value);
            (key(i), value)
        });
        node.load_records(parameters, encoders, records)?;
        Ok(())
    }
}

/// What the table is built with, whose records have this shape.
fn parameters<K: BuildKeys>(arguments: &Arguments, shape: RecordShape) -> anyhow::Result<TableParameters> {
    let default = TableParameters::default();
    let fill = arguments.fill.unwrap_or(default.fill);
    let parameters = TableParameters { shape, epsilon: arguments.epsilon, fill, ..default };
    parameters.validate::<K>()?;
    let parameters = parameters.with_width(arguments.fingerprint_bits);
    let grouped = arguments.groups.map_or(parameters, |choice| parameters.with_groups(choice));
    let slot_bytes = parameters.geometry().slot_bytes;
    anyhow::ensure!(
        arguments.groups.is_none() || grouped.groups.is_some(),
        "--groups={} is for slots of up to 64 bytes, and these have {slot_bytes}: choose --groups=pilots",
        arguments.groups.unwrap_or_default()
    );
    Ok(TableParameters { fill: arguments.fill.unwrap_or(grouped.fill), ..grouped })
}
