//! Options of `ycsb`.

use std::time::Duration;

use anyhow::ensure;
use clap::{ArgMatches, Args, parser::ValueSource};
use fpcache_client::MAX_IN_FLIGHT;
use fpcache_datasets::requests::{InsertOrder, Mix, OperationKind, Workload};
use fpcache_datasets::{count, time};

use super::pass::{End, MOST_DUE, Timing, drawn_at};
use super::schedule::Arrivals;
use crate::counts::positive_count;
use crate::run::options::RunArgs;

/// Ends the help of `ycsb`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval ycsb --workload B,C --dataset fb:20M --threads 2
  fpcache-eval ycsb --workload A,B,C,D,E,F --dataset wiki:4M --json ycsb.json
  fpcache-eval ycsb --workload D --dataset fb:4M --insert-order append --duration 30s
  fpcache-eval ycsb --workload B --dataset fb:4M --rate 100k --arrivals poisson
  fpcache-eval ycsb --mix read=0.9,update=0.1 --dataset ipv4 --dist hotspot:0.01:0.9 --group 32
  fpcache-eval ycsb --workload B,E --transport nic:cx6-100g --clients 384 --dataset fb:1M --system fpcache,smart,rolex

Workloads: YCSB's A to F; paper-d and paper-e as FPCache's paper has them (E with updates); xstore-b, xstore-d, \
xstore-prod1 and xstore-prod2. Each has its own distribution unless --dist is given. Several workloads take turns on the \
same table, so that their ratios, which are of the median passes, are of one run.

With --duration operations are drawn before they are executed: 1 M, or --ops if that is more, then as many as the \
rest of the time needs, 16 M at most. While more are drawn the clock stands still, and the memory node may catch up with \
its rebuilds.

With --rate operations have instants at which they are due, and latencies count from those: what waits behind a slow \
operation shows in the percentiles.

A thread goes on reading while some of its writes are under way, and waits for those of a key that it reads. Latencies are \
measured in a pass of their own, in which each write is waited for.

Values tell whose they are: every answer is looked at, and in the end every record, which must hold a last write of it.

Exit code: 0 if every answer was right, 1 if one was wrong, 2 if the experiment failed.";

/// What `--url` is here.
pub const URL_HELP: &str =
    "A running memory node that holds nothing yet: the data set is loaded into it, and stays there";

/// The options of `ycsb`.
#[derive(Args, Clone, Debug)]
pub struct YcsbArgs {
    /// Workloads, separated by commas
    #[arg(
        long = "workload",
        value_delimiter = ',',
        required_unless_present = "mix",
        help_heading = "Workload"
    )]
    pub workloads: Vec<Workload>,

    /// A workload of your own, such as read=0.9,update=0.1
    #[arg(long, help_heading = "Workload")]
    pub mix: Option<Mix>,

    /// End every pass after this time, such as 30s, instead of after its operations
    #[arg(long, value_name = "TIME", value_parser = time::parse_positive, help_heading = "Workload")]
    pub duration: Option<Duration>,

    /// Open loop: operations per second of all threads, such as 100k; with --duration all of a pass
    /// are drawn before it, in 16 bytes each, 33 M at most [default: a closed loop]
    #[arg(long, value_name = "OPERATIONS", value_parser = positive_count, help_heading = "Workload")]
    pub rate: Option<u64>,

    /// With --rate: distribution of arrival times [default: poisson]
    #[arg(long, value_enum, requires = "rate", help_heading = "Workload")]
    pub arrivals: Option<Arrivals>,

    /// Keys to insert: random, append, descending, middle or hotspot-moves are withheld from the
    /// data set, fresh ones are new
    #[arg(long, default_value = "random", value_name = "ORDER", help_heading = "Workload")]
    pub insert_order: InsertOrder,

    /// Number of keys to insert [default: as many as the operations need; with --duration a tenth
    /// of the keys]
    #[arg(long, value_name = "KEYS", value_parser = positive_count, help_heading = "Workload")]
    pub inserts: Option<u64>,

    /// Writes in flight per thread; with 1 it waits for each [default: 4, and 1 with --group or
    /// --rate]
    #[arg(long, value_name = "WRITES", value_parser = positive_count, help_heading = "Workload")]
    pub writes_in_flight: Option<u64>,

    /// Whether a distribution was given explicitly.
    #[arg(skip)]
    pub has_distribution: bool,

    /// All other settings.
    #[command(flatten)]
    pub run: RunArgs,
}

impl YcsbArgs {
    /// Notes whether a distribution was given explicitly.
    pub fn note_given(&mut self, matches: &ArgMatches) {
        self.has_distribution = matches.value_source("distribution") == Some(ValueSource::CommandLine);
    }

    /// Checks combinations of options, before any work is done.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.run.validate()?;
        refuse_lookups_only(&self.run)?;
        ensure!(
            self.writes_in_flight.is_none_or(|writes| writes <= MAX_IN_FLIGHT as u64),
            "--writes-in-flight: at most {MAX_IN_FLIGHT}"
        );
        ensure!(
            self.writes_in_flight.is_none_or(|writes| writes == 1 || !self.waits_for_writes()),
            "--writes-in-flight: not with --group, whose writes go together, nor with --rate, whose latencies are those of \
             whole operations; leave one away"
        );
        if let (Some(rate), Some(time)) = (self.rate, self.duration) {
            let drawn = drawn_at(rate as f64, time);
            ensure!(
                drawn <= MOST_DUE,
                "--rate {rate} with --duration {}s: {} operations would be drawn before each pass, and at most {} may be; \
                 take a shorter --duration, and more --rounds",
                time.as_secs_f64(),
                count::human(drawn),
                count::human(MOST_DUE)
            );
        }
        ensure!(
            self.run.batch <= 1024,
            "--group {}: the memory node takes at most 1,024 changes at once",
            self.run.batch
        );
        Ok(())
    }

    /// The workloads, each with its distribution.
    pub fn workloads(&self) -> Vec<Workload> {
        let mut workloads = self.workloads.clone();
        workloads.extend(self.mix.map(Workload::custom));
        if self.has_distribution {
            workloads.iter_mut().for_each(|workload| workload.distribution = self.run.distribution);
        }
        workloads
    }

    /// Whether each operation must have ended before the next one begins.
    fn waits_for_writes(&self) -> bool {
        self.run.batch > 1 || self.rate.is_some()
    }

    /// Writes in flight per thread in the throughput passes.
    pub fn in_flight(&self) -> usize {
        const USUAL: u64 = 4;
        let usual = if self.waits_for_writes() { 1 } else { USUAL };
        self.writes_in_flight.unwrap_or(usual) as usize
    }

    /// When a pass ends.
    pub fn end(&self) -> End {
        self.duration.map_or(End::Operations(self.run.lookups), End::After)
    }

    /// How the throughput passes are timed.
    pub fn timing(&self) -> Timing {
        match self.rate {
            Some(rate) => Timing::Scheduled(rate as f64, self.arrivals.unwrap_or_default()),
            None => Timing::Whole,
        }
    }

    /// Passes of each workload: those of throughput, and unless these have instants one for the
    /// latencies.
    pub fn passes(&self) -> u64 {
        u64::from(self.run.rounds) + u64::from(self.rate.is_none())
    }

    /// The number of keys to insert that workloads over this many keys need.
    pub fn inserts(&self, workloads: &[Workload], keys: u64) -> u64 {
        let share: f64 = workloads.iter().map(|workload| workload.mix.share(OperationKind::Insert)).sum();
        if share == 0.0 {
            return 0;
        }
        if let Some(inserts) = self.inserts {
            return inserts;
        }
        match self.end() {
            End::After(_) => keys / 10,
            End::Operations(operations) => {
                // Threads draw by themselves: each may have some more than its share.
                let threads = f64::from(self.run.threads);
                let of_thread = share * operations as f64 * self.passes() as f64 / threads;
                (threads * (of_thread + 6.0 * of_thread.sqrt() + 8.0)) as u64
            }
        }
    }
}

/// Refuses options of `run` that mean nothing here.
pub fn refuse_lookups_only(run: &RunArgs) -> anyhow::Result<()> {
    let given = [
        ("--negative", run.negative > 0.0),
        ("--shift-every", run.shift_every.is_some()),
        ("--timeline", run.timeline.is_some()),
        ("--cold", run.cache.cold),
        ("--value-bytes vary", run.value_bytes.fixed().is_none()),
    ];
    for (option, is_given) in given {
        ensure!(!is_given, "{option} is for `run`, which only looks up: omit it");
    }
    Ok(())
}

/// In words, such as `2 M operations` or `30 s`.
pub fn end_in_words(end: End) -> String {
    match end {
        End::Operations(operations) => format!("{} operations", count::human(operations)),
        End::After(time) => format!("{} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::{assert_refused, command};
    use crate::cli::{Cli, Command};

    fn parse(options: &str) -> Result<YcsbArgs, String> {
        let Command::Ycsb(arguments) = command("ycsb", options)? else { panic!("no `ycsb`") };
        arguments.validate().map(|()| *arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn workloads_keep_their_distributions_unless_one_is_given() {
        let shown = |options| {
            let workloads = parse(options).unwrap().workloads();
            workloads.iter().map(|w| format!("{w} {}", w.distribution)).collect::<Vec<_>>()
        };
        assert_eq!(shown("--dataset ipv4 --workload b,D"), ["B zipf:0.99", "D latest:0.99"]);
        assert_eq!(shown("--data ipv4 --workload D --dist uniform"), ["D uniform"]);
        assert_eq!(shown("--data ipv4 --mix read=0.9,update=0.1"), ["custom zipf:0.99"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        let cases = [
            ("--dataset ipv4", "--workload"),
            ("--workload A", "--dataset"),
            ("--dataset ipv4 --workload G", "paper-e"),
            ("--dataset ipv4 --mix read=2", "from 0 to 1"),
            ("--dataset ipv4 --workload A --duration 30", "5s"),
            ("--dataset ipv4 --workload A --duration 0s", "5s"),
            ("--dataset ipv4 --workload A --rate 0", "above 0"),
            ("--dataset ipv4 --workload A --arrivals fixed", "--rate"),
            ("--dataset ipv4 --workload A --rate 10M --duration 10s", "more --rounds"),
            ("--dataset ipv4 --workload A --insert-order sorted", "hotspot-moves"),
            ("--dataset ipv4 --workload A --negative 0.5", "omit it"),
            ("--dataset ipv4 --workload A --timeline 10K", "omit it"),
            ("--dataset words --workload A --value-bytes vary", "omit it"),
            ("--dataset ipv4 --workload A --group 1025", "1,024"),
            ("--dataset ipv4 --workload A --writes-in-flight 65", "at most 64"),
            ("--dataset ipv4 --workload A --writes-in-flight 2 --group 2", "leave one away"),
            ("--dataset ipv4 --workload A --writes-in-flight 2 --rate 1000", "leave one away"),
            ("--dataset ipv4 --workload A --ops 10 --group 32", "smaller batch"),
        ];
        assert_refused(parse, &cases);
    }

    #[test]
    fn a_running_memory_node_is_loaded_with_the_table_asked_for() {
        let table = "--epsilon 16 --fingerprint-bits 32 --fill 0.7 --groups=plain --value-bytes 16";
        let arguments =
            parse(&format!("--dataset ipv4 --workload C --url tcp://127.0.0.1:1 {table}")).unwrap();
        assert_eq!((arguments.run.epsilon, arguments.run.fill), (16, Some(0.7)));
        // What starts a memory node does not go with it.
        for option in ["--capacity 1GiB", "--nodes 2", "--transport tcp"] {
            let error =
                parse(&format!("--dataset ipv4 --workload C --url tcp://127.0.0.1:1 {option}")).unwrap_err();
            assert!(error.contains("--url"), "{option}: {error}");
        }
        let run = Cli::of("fpcache-eval run --dataset ipv4 --url shm://x --epsilon 16".split(' '));
        assert!(run.unwrap_err().to_string().contains("--url"), "there the table is as it is");
    }

    #[test]
    fn writes_are_in_flight_unless_operations_must_end_one_by_one() {
        let in_flight =
            |options: &str| parse(&format!("--dataset ipv4 --workload B {options}")).unwrap().in_flight();
        assert_eq!(
            (in_flight(""), in_flight("--writes-in-flight 1"), in_flight("--writes-in-flight 9")),
            (4, 1, 9)
        );
        assert_eq!((in_flight("--group 8"), in_flight("--rate 1K")), (1, 1));
        assert_eq!(in_flight("--group 8 --writes-in-flight 1"), 1);
    }

    #[test]
    fn there_are_keys_for_all_inserts_and_none_without() {
        let arguments = parse("--dataset ipv4 --workload D,B --ops 10K --rounds 3 --threads 2").unwrap();
        let inserts = arguments.inserts(&arguments.workloads(), 1_000_000);
        // 5 % of four passes are 2,000.
        assert!((2_000..2_500).contains(&inserts), "{inserts}");
        let reads = parse("--dataset ipv4 --workload B").unwrap();
        assert_eq!(reads.inserts(&reads.workloads(), 1_000), 0);
        let timed = parse("--dataset ipv4 --workload E --duration 1s").unwrap();
        assert_eq!(timed.inserts(&timed.workloads(), 1_000), 100);
    }
}
