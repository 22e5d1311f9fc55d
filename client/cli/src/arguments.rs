//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use fpcache_client::TableName;
use fpcache_datasets::time;

use crate::change::{Delete, RecordArguments, Update};
use crate::count::Count;
use crate::create::Create;
use crate::export::Export;
use crate::get::Get;
use crate::import::Import;
use crate::load::Load;
use crate::metrics::MetricsCommand;
use crate::nearest::{Nearest, NearestFormats};
use crate::ping::Ping;
use crate::scan::Scan;
use crate::tables::DropTable;
use crate::token::TokenCommand;
use crate::verify::Verify;

/// The release, and the commit it was built from.
const VERSION: &str = env!("FPCACHE_VERSION");

/// What the help puts the options under that all commands have, after those of the command itself.
const EVERYWHERE: &str = "Options of every command";

/// Loads, reads, changes and checks a memory node of FPCache.
#[derive(Debug, Parser)]
#[command(name = "fpcache-cli", version = VERSION, after_help = EXAMPLES, next_help_heading = EVERYWHERE)]
pub(crate) struct Arguments {
    /// The memory node: shm://NAME, tcp://HOST:PORT, tcps://HOST:PORT[?ca=FILE], tcp+unix:///PATH
    /// or rdma://HOST:PORT
    #[arg(long, global = true, value_name = "URL", default_value = "shm://fpcache", env = "FPCACHE_URL")]
    pub(crate) url: String,

    /// The table
    #[arg(long, global = true, value_name = "NAME", default_value_t, env = "FPCACHE_TABLE")]
    pub(crate) table: TableName,

    /// Time limit for one request, such as 5s, 100ms or 2m
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", value_parser = time::parse_positive)]
    pub(crate) deadline: Duration,

    /// Time to wait for a memory node that does not listen or answer yet, such as 10s
    #[arg(long, global = true, value_name = "TIME", value_parser = time::parse_positive)]
    pub(crate) wait: Option<Duration>,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print JSON with keys and values as strings, for parsers that cannot represent integers above
    /// 2^53
    #[arg(long, global = true)]
    pub(crate) json_strings: bool,

    /// File with the token for connecting over TCP, readable by this user only [default:
    /// FPCACHE_TOKEN, or the file named by FPCACHE_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "Examples:
  fpcache-cli load ipv4
  fpcache-cli get 16777216
  fpcache-cli put 16777216 42
  fpcache-cli floor 0x01010101
  fpcache-cli scan 0x08000000 --limit 5
  fpcache-cli load words --table words
  fpcache-cli get zebra --table words
  fpcache-cli scan --prefix zeb --table words
  fpcache-cli import cities.tsv --table cities --keys bytes
  fpcache-cli export --table cities --output copy.tsv
  fpcache-cli tables
  fpcache-cli drop words --yes
  fpcache-cli ping
  fpcache-cli --url shm://second --json stats
  fpcache-cli --url tcp://127.0.0.1:7400 --wait 10s tables
  fpcache-cli verify ipv4

Keys are u64s, in decimal or as in 0x2a, or byte strings, as text with \\xNN for any byte, \\n, \\t, \\r, \\0 and \\\\; --hex \
reads and prints hexadecimal digits instead. A memory node can have tables of both kinds. Commands use the table `default` unless \
--table names another; create, load and import create it if it does not exist.

Exit codes: 0 success; 1 a key is absent, exists already or has changed, an answer is wrong, or a table is closed (ping --ready); \
2 usage error or failure.";

const IMPORT: &str = "Examples:
  fpcache-cli import cities.tsv --table cities --keys bytes
  fpcache-cli import numbers.csv --table numbers --separator , --format int
  fpcache-cli import users.jsonl.gz --table users --keys bytes --from jsonl --duplicates last
  xz -dc users.tsv.xz | fpcache-cli import - --table users --keys bytes --tune auto --tune-for rdma
  fpcache-cli scan --limit 1000 --json | fpcache-cli import - --table copy --from jsonl --format int

A line of text is a key, the separator and a value, which is all that follows the first separator. Keys and values are written \
as for put: keys of byte strings with \\xNN for any byte, \\t, \\n and \\\\; texts as they are. A line of JSON is an object with \
`key` and `value`, as in {\"key\":\"zebra\",\"value\":\"striped\"}; other fields are ignored.

Keys may come in any order: they are sorted in memory first, up to --sort-memory. A table that does not exist is created, with \
integers for keys unless --keys says otherwise, and values that are texts of any length; with --format int they are integers of 8 \
bytes, and with --value-bytes N all have N bytes. In a table that has records, those of the file replace others of their keys. A \
line that is no record ends the import with the number of the line: nothing is loaded into a new table then, and into one with \
records nothing if all of the file fits --sort-memory.";

const EXPORT: &str = "Examples:
  fpcache-cli export > records.tsv
  fpcache-cli export --table cities --output cities.tsv
  fpcache-cli export --table users --as jsonl | gzip > users.jsonl.gz
  fpcache-cli export --from 0x08000000 --to 0x09000000 --separator ,
  fpcache-cli export --table paths --prefix /usr/share/ --format hex

Records come in key order, one per line: key, separator and value, or JSON. A value that text has no form for, because it has a \
line break or another control character or is not UTF-8, ends the export with what to use instead: --as jsonl or --format hex. \
With --output the command that imports the file is shown.

An export is not a snapshot: each record is current as of some instant during it.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an empty table
    #[command(after_help = "Examples:
  fpcache-cli create
  fpcache-cli create orders --region-bytes 256MiB
  fpcache-cli create --value-bytes 100 --epsilon 16
  fpcache-cli create --tune auto --tune-for rdma --tune-budget 64MiB --like fb:1M
  fpcache-cli create --table users --keys bytes --value-bytes vary --slot-bytes 200
  fpcache-cli create --table ids --key-bytes 16
  fpcache-cli create --table ids --nodes tcp://127.0.0.1:7400,tcp://127.0.0.1:7401 --split-at 1000000")]
    Create(Create),
    /// Set the value of a key, new or existing
    #[command(after_help = "Examples:
  fpcache-cli put 16777216 42
  fpcache-cli put 0x1000000 hello123 --format text
  fpcache-cli put user42 7
  fpcache-cli put 00ff10 7 --hex")]
    Put(RecordArguments),
    /// Add a new key
    #[command(after_help = "Examples:
  fpcache-cli insert 7 42
  fpcache-cli insert 7 2a00000000000000 --format hex
  fpcache-cli insert 'two\\x20words\\n' 42")]
    Insert(RecordArguments),
    /// Replace the value of an existing key, or compare-and-set it by --if-token
    #[command(after_help = "Examples:
  fpcache-cli update 7 43
  fpcache-cli update 7 44 --if-token 0x1c0ffee00000001")]
    Update(Update),
    /// Remove keys
    #[command(
        visible_alias = "delete",
        after_help = "Examples:
  fpcache-cli del 7
  fpcache-cli del 7 8 0x2a --json"
    )]
    Del(Delete),
    /// Load a data set: in bulk into a new table, key by key into one that has records or was made
    /// by `create`
    #[command(after_help = "Examples:
  fpcache-cli load ipv4
  fpcache-cli load fb:16M --epsilon 64 --fingerprint-bits 8
  fpcache-cli load fb:16M --groups=seeded --epsilon 256
  fpcache-cli load fb:16M --tune auto --tune-for rdma --tune-budget 8MiB
  fpcache-cli load fb:1M --table fb --nodes tcp://127.0.0.1:7400,tcp://127.0.0.1:7401
  fpcache-cli load sosd:books_200M_uint32.zst:1M --duplicates first --value-bytes 100
  fpcache-cli load ycsb:1M --table ycsb --key-bytes 128 --value-bytes 100
  fpcache-cli load lines:urls.txt.gz --duplicates first --slot-bytes 300")]
    Load(Load),
    /// Put the records of a file into a table: in bulk into an empty table, in groups into one with
    /// records
    #[command(after_help = IMPORT)]
    Import(Box<Import>),
    /// Look up keys
    #[command(after_help = "Examples:
  fpcache-cli get 16777216
  fpcache-cli get 0x1000000 135630592 --format hex
  fpcache-cli get zebra zoo
  fpcache-cli --json get 16777216 1")]
    Get(Get),
    /// List keys and values in key order
    #[command(after_help = "Examples:
  fpcache-cli scan 0 --limit 5
  fpcache-cli scan 0x08000000 --limit 1000 --json
  fpcache-cli scan --from ape --to bee
  fpcache-cli scan --prefix /usr/share/ --limit 100
  fpcache-cli scan --reverse --limit 3
  fpcache-cli scan 0x08000000 --reverse
  fpcache-cli scan --prefix /usr/share/ --reverse

A scan is not a snapshot: each record is current as of some instant during it.")]
    Scan(Scan),
    /// Write all records, or those of a range, in the form that import reads
    #[command(after_help = EXPORT)]
    Export(Export),
    /// Find the record with the greatest key not above a key
    #[command(after_help = "Examples:
  fpcache-cli floor 0x01010101
  fpcache-cli floor 16777217 134744072 --json
  fpcache-cli floor zebrx --table words

The keys of `load ipv4` are the first addresses of IPv4 ranges, so floor finds the range that contains an address. 0x01010101 \
is 1.1.1.1.

It takes one round trip to read the slots of the key's window, and a second one if these were written to since they were loaded. \
Several keys share their round trips. Each line has the record's key and value; with several keys, the requested key comes \
first.")]
    Floor(Nearest),
    /// Find the record with the least key not below a key
    #[command(after_help = "Examples:
  fpcache-cli ceiling 0x01010101
  fpcache-cli ceiling zebrx zo --table words --json

See floor.")]
    Ceiling(Nearest),
    /// Show the record with the least key
    #[command(after_help = "Examples:\n  fpcache-cli first\n  fpcache-cli first --table words --json")]
    First(NearestFormats),
    /// Show the record with the greatest key
    #[command(after_help = "Examples:\n  fpcache-cli last\n  fpcache-cli last --table words --json")]
    Last(NearestFormats),
    /// Count the keys of a range
    #[command(after_help = "Examples:
  fpcache-cli count
  fpcache-cli count --from 0x08000000 --to 0x09000000
  fpcache-cli count --prefix zeb --table words --json

The count is exact, with each key counted as of some instant during the call. It costs as much as a scan of the range without \
external values: every slot is read, 256 KiB per round trip; 29 bytes per key with values of 8 bytes.")]
    Count(Count),
    /// Show a table and its counters
    #[command(after_help = "Examples:\n  fpcache-cli stats\n  fpcache-cli stats --table words --json")]
    Stats,
    /// List all tables, or the one named by --table
    #[command(after_help = "Examples:
  fpcache-cli tables
  fpcache-cli tables --table words
  fpcache-cli tables --json

Each memory node of several URLs is asked; of a table over several memory nodes the ranges that lie there are listed. Ends with 2 \
if one does not answer, after those that do. --json prints an array with an object for each memory node.")]
    Tables,
    /// Ask memory nodes for an answer, and show the time that it takes
    #[command(after_help = "Examples:
  fpcache-cli ping
  fpcache-cli ping --count 100 --json
  fpcache-cli --url tcp://node-1:7400 --deadline 200ms ping
  fpcache-cli ping --ready
  fpcache-cli --table orders ping

Each memory node of several URLs is asked. Ends with 2 if one is not there or does not answer in time, after those that do; with \
--table also if that table is closed or missing, or one that has a range of it does not answer. With --ready, ends with 1 if a table is \
closed, which is listed. --json prints an array with an object for each memory node. FPCACHE_TABLE names no table for this command.")]
    Ping(Ping),
    /// Print the counters of the memory node and all its tables in the format of Prometheus
    #[command(after_help = "Examples:
  fpcache-cli metrics
  fpcache-cli metrics --output /var/lib/node_exporter/fpcache.prom
  fpcache-cli metrics --json
  fpcache-cli --url tcp://node-1:7400 --deadline 1s metrics --listen 127.0.0.1:9476

Where one table or, of several URLs, one memory node does not tell its counters, the others are shown; fpcache_table_scrape_ok and \
fpcache_up are 0 then, and standard error has the reason. Ends with 2 if a memory node does not answer; --output has replaced the file \
then all the same.

With --listen, it serves them until SIGTERM or Ctrl-C, with exit code 0: GET /metrics asks the memory nodes anew, over connections \
that are kept, and is answered also if none answers; GET /healthz is answered with 200 if all do, or else with 503.")]
    Metrics(MetricsCommand),
    /// List the RDMA devices of this machine, for addresses
    /// rdma://HOST:PORT?dev=NAME&gid=INDEX&port=NUMBER
    #[command(after_help = "Examples:\n  fpcache-cli devices\n  fpcache-cli devices --json")]
    Devices,
    /// Print what makes a shell complete commands and options
    #[command(after_help = "Examples:
  fpcache-cli completions bash > ~/.local/share/bash-completion/completions/fpcache-cli
  fpcache-cli completions zsh > ~/.zfunc/_fpcache-cli
  fpcache-cli completions fish > ~/.config/fish/completions/fpcache-cli.fish")]
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Remove tables and all their records
    #[command(
        after_help = "Examples:\n  fpcache-cli drop words --yes\n  fpcache-cli drop --table words --yes\n  fpcache-cli drop words numbers --yes --json"
    )]
    Drop(DropTable),
    /// Look up every key of a data set and count wrong answers
    #[command(after_help = "Examples:
  fpcache-cli verify ipv4
  fpcache-cli verify fb:16M --seed 7 --json
  fpcache-cli verify ycsb:1M --key-bytes 128")]
    Verify(Verify),
    /// Create a token, with which clients authenticate to a memory node over TCP
    #[command(after_help = "Examples:
  (umask 077; echo \"write $(fpcache-cli token new)\" >> tokens)
  fpcache-memserver --listen tcp://0.0.0.0:7400 --token-file tokens
  (umask 077; sed -n 's/^write //p' tokens | head -n 1 > token)
  fpcache-cli --url tcp://node-1:7400 --token-file token tables
  fpcache-cli token new --json

The memory node's file has one line per token, `write TOKEN` or `read TOKEN`. A client has its token in a file, named by \
--token-file or FPCACHE_TOKEN_FILE, or in FPCACHE_TOKEN; the word before it is optional there.")]
    Token(TokenCommand),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
