//! Options of `sweep`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::{ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use fpcache_client::{PlanChoice, Policy, Variant};

use crate::run::options::RunArgs;
use crate::sweep::lines::Line;
use crate::sweep::points::{Over, Point};
use crate::systems::SystemName;

/// Ends the help of `sweep`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval sweep --over cache --values 4MiB,8MiB,16MiB --dataset fb:20M --dist zipf:0.99 --variants fd,full
  fpcache-eval sweep --over epsilon --values 8,16,32,64,128,256 --dataset fb:4M --plans two-stage,range,auto
  fpcache-eval sweep --over threads --values 1,2 --dataset wiki:4M --system fpcache,hashmap --out threads
  fpcache-eval sweep --over theta --values 0.5,0.9,0.99,1.2 --dataset fb:4M --cache 4MiB --json theta.json
  fpcache-eval sweep --over clients --values 48,96,384 --transport nic:cx6-100g --dataset fb:1M --system fpcache,smart,chime

The folder of --out gets results.json (rows as those of run), results.csv and plot.svg, anew after every point. The same \
command goes on where it was interrupted; more --values add points. Values are measured one after the other, the lines \
and systems of one value take turns. In the model of network cards (nic:…, and --over nic) the folder of \
--out, or the file of --json, gets a row for each system of each value as it is made, and without either there is the table alone; a \
system that cannot be set up has a row that says why. There no points are added to a sweep that came to its end: more --values \
need another place, or --fresh.

Exit code: 0 if every answer was right, 1 if one was wrong, 2 if the sweep failed.";

/// The options of `sweep`.
#[derive(Args, Clone, Debug)]
pub struct SweepArgs {
    /// The setting to vary
    #[arg(long, value_enum, value_name = "SETTING", help_heading = "Sweep")]
    pub over: Over,

    /// Its values, separated by commas, in the syntax of the option of that name
    #[arg(long, required = true, value_delimiter = ',', help_heading = "Sweep")]
    pub values: Vec<String>,

    /// One line for each of these plans
    #[arg(long, value_delimiter = ',', conflicts_with = "plan", help_heading = "Sweep")]
    pub plans: Vec<PlanChoice>,

    /// One line for each of these variants of the hot cache
    #[arg(long, value_delimiter = ',', conflicts_with = "variant", help_heading = "Sweep")]
    pub variants: Vec<Variant>,

    /// One line for each of these policies of the hot cache
    #[arg(long, value_delimiter = ',', conflicts_with = "policy", help_heading = "Sweep")]
    pub policies: Vec<Policy>,

    /// Folder for results and plot [default: target/sweep-DATASET-SETTING; with nic:… none]
    #[arg(long, value_name = "FOLDER", help_heading = "Sweep")]
    pub out: Option<PathBuf>,

    /// Start over, and discard existing points
    #[arg(long, help_heading = "Sweep")]
    pub fresh: bool,

    /// The swept option, if it was given as well.
    #[arg(skip)]
    pub given_too: bool,

    /// All other settings.
    #[command(flatten)]
    pub run: RunArgs,
}

impl SweepArgs {
    /// The options that these words give, as they would stand after `sweep` on a command line. They
    /// name the systems, whose default there is not that of `run`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("fpcache-eval sweep").no_binary_name(true));
        let matches = command.try_get_matches_from(words)?;
        let mut arguments = Self::from_arg_matches(&matches)?;
        arguments.note_given(&matches);
        Ok(arguments)
    }

    /// Notes whether the swept option was given explicitly.
    pub fn note_given(&mut self, matches: &ArgMatches) {
        self.given_too = matches.value_source(self.over.option().id) == Some(ValueSource::CommandLine);
    }

    /// Whether it uses a model of network cards.
    #[cfg(feature = "workbench")]
    pub fn is_modelled(&self) -> bool {
        self.over == Over::Nic || self.run.transport.card().is_some()
    }

    /// Checks everything that can be checked without the data, and gives the points in ascending
    /// order, each once.
    ///
    /// # Errors
    /// Names the option or value, and the valid ones.
    pub fn points(&self) -> anyhow::Result<Vec<Point>> {
        let option = self.over.option();
        ensure!(
            !self.given_too,
            "--{} is what is swept: omit it, since --values has its values",
            option.name
        );
        ensure!(
            !self.over.is_of_model(),
            "a sweep over {} is one in a model of network cards: add --transport nic:cx6-100g, in a program built with the \
             feature `workbench`",
            self.over.name()
        );
        let has_fpcache = self.run.systems.contains(&SystemName::Fpcache);
        ensure!(
            !self.run.systems.contains(&SystemName::FpcacheClient),
            "sweeps do not support fpcache-client: omit it, or compare it by `run`"
        );
        ensure!(
            ![SystemName::Jakiro, SystemName::JakiroReply].iter().any(|name| self.run.systems.contains(name)),
            "sweeps do not support jakiro: omit it, or compare it by `run`"
        );
        ensure!(
            has_fpcache || !self.over.is_of_fpcache(),
            "a sweep over {} needs fpcache among the systems: add it with --system",
            self.over.name()
        );
        ensure!(
            has_fpcache || self.lines().len() == 1,
            "--plans, --variants and --policies are lines of fpcache: add it with --system"
        );
        self.plans.iter().try_for_each(|plan| self.run.check_plan(*plan))?;
        let has_cache = self.over == Over::Cache || self.run.cache.budget().is_some();
        ensure!(
            has_cache || (self.variants.is_empty() && self.policies.is_empty()),
            "--variants and --policies are about the hot cache, and there is none: add --cache with a size, or sweep \
             over it"
        );
        ensure!(
            self.run.url.is_none() || !self.over.changes_table(),
            "--url names a memory node that holds its table already, and another {} needs another table: omit \
             --url",
            self.over.name()
        );
        let mut points = Vec::with_capacity(self.values.len());
        for text in &self.values {
            points.push(self.point(text)?);
        }
        points.sort_by(|a, b| a.value.total_cmp(&b.value));
        points.dedup_by(|a, b| a.value == b.value);
        Ok(points)
    }

    /// The point at a value as it was written.
    ///
    /// # Errors
    /// Names the value and what is wrong with it.
    fn point(&self, text: &str) -> anyhow::Result<Point> {
        let mut run = self.run.clone();
        let value = self.over.set(&mut run, text).with_context(|| format!("--values {text}"))?;
        run.validate().with_context(|| format!("--values {text}"))?;
        Ok(Point { value, run })
    }

    /// The lines: every combination of plans, variants and policies asked for.
    pub fn lines(&self) -> Vec<Line> {
        fn choices<T: Copy>(given: &[T]) -> Vec<Option<T>> {
            if given.is_empty() { vec![None] } else { given.iter().copied().map(Some).collect() }
        }
        let mut lines = Vec::new();
        for plan in choices(&self.plans) {
            for variant in choices(&self.variants) {
                for policy in choices(&self.policies) {
                    let line = Line { plan, variant, policy };
                    if !lines.contains(&line) {
                        lines.push(line);
                    }
                }
            }
        }
        lines
    }

    /// The folder for results.
    pub fn folder(&self) -> PathBuf {
        let named = || {
            let dataset = self.run.dataset.to_string();
            let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
            let dataset: String = dataset.chars().map(kept).collect();
            Path::new("target").join(format!("sweep-{dataset}-{}", self.over.name()))
        };
        self.out.clone().unwrap_or_else(named)
    }

    /// All settings except the swept one, in words, which must be equal for points to belong
    /// together. Settings without influence on the results are left out, such as the size of the
    /// region.
    pub fn experiment(&self) -> String {
        fn list<T>(given: &[T], name: impl Fn(&T) -> String, single: String) -> String {
            if given.is_empty() { single } else { given.iter().map(name).collect::<Vec<_>>().join("+") }
        }
        fn optional<T: std::fmt::Display>(value: Option<T>) -> String {
            value.map_or_else(|| "-".to_owned(), |value| value.to_string())
        }
        let run = &self.run;
        let systems: Vec<&str> = run.distinct_systems().iter().map(|system| system.as_str()).collect();
        let plans = list(&self.plans, |plan| plan.name().to_owned(), run.plan.name().to_owned());
        let variants = list(&self.variants, Variant::to_string, optional(run.cache.variant));
        let policies = list(&self.policies, Policy::to_string, optional(run.cache.policy));
        let settings = [
            ("dataset", run.dataset.to_string()),
            ("key-bytes", optional(run.key_bytes)),
            ("unsorted", run.unsorted.to_string()),
            ("duplicates", optional(run.duplicates.map(|policy| format!("{policy:?}").to_lowercase()))),
            ("system", systems.join("+")),
            ("lookups", run.lookups.to_string()),
            ("batch", run.batch.to_string()),
            ("dist", run.distribution.to_string()),
            ("shift-every", optional(run.shift_every)),
            ("timeline", optional(run.timeline)),
            ("negative", run.negative.to_string()),
            ("epsilon", run.epsilon.to_string()),
            ("fingerprint-bits", run.fingerprint_bits.to_string()),
            ("fill", run.fill().to_string()),
            ("value-bytes", run.value_bytes.to_string()),
            ("plan", plans),
            ("transport", run.transport.as_str().to_owned()),
            ("fsync", optional(run.store.reported())),
            ("url", optional(run.url.as_ref())),
            ("threads", run.threads.to_string()),
            ("pages", run.pages.as_str().to_owned()),
            ("seed", run.seed.to_string()),
            ("cache", optional(run.cache.budget())),
            ("variant", variants),
            ("policy", policies),
            ("on-conflict", optional(run.cache.on_conflict)),
            ("cold", run.cache.cold.to_string()),
            ("rounds", run.rounds.to_string()),
            ("nodes", run.nodes.to_string()),
            ("groups", optional(run.groups())),
            ("spin", optional(run.spin.map(|spin| format!("{spin:?}")))),
            ("inline-bytes", optional(run.inline_bytes)),
        ];
        let swept = self.over.option().name;
        let others = settings.into_iter().filter(|(name, _)| *name != swept);
        let words: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    fn parse(options: &str) -> Result<SweepArgs, String> {
        let Command::Sweep(arguments) = command("sweep", options)? else { panic!("no `sweep`") };
        arguments.points().map(|_| *arguments).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn points_come_once_each_in_ascending_order() {
        let arguments = parse("--dataset ipv4 --over cache --values 8MiB,1MiB,1024KiB").unwrap();
        let points = arguments.points().unwrap();
        assert_eq!(points.iter().map(|point| point.value).collect::<Vec<_>>(), [1048576.0, 8388608.0]);
        assert_eq!(points[1].run.cache.budget(), Some(8 << 20));
        assert_eq!(arguments.lines(), [Line::default()]);
        assert_eq!(arguments.folder().to_str(), Some("target/sweep-ipv4-cache"));
        assert_eq!(arguments.run.distinct_systems(), [SystemName::Fpcache]);
    }

    #[test]
    fn lines_are_all_combinations() {
        let lines =
            parse("--dataset ipv4 --over cache --values 1MiB --variants fd,full,fd --policies heat,lru");
        let lines = lines.unwrap().lines();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1], Line { plan: None, variant: Some(Variant::Fd), policy: Some(Policy::Lru) });
    }

    #[test]
    fn an_experiment_is_all_settings_but_the_swept_one() {
        let of = |options: &str| parse(options).unwrap().experiment();
        let base = of("--dataset ipv4 --over epsilon --values 8");
        assert_eq!(base, of("--dataset ipv4 --over epsilon --values 16,32 --capacity 1GiB --out x --json y"));
        assert!(!base.contains("epsilon"), "{base}");
        for other in
            ["--seed 7", "--plans range,auto", "--lookups 3M", "--rounds 4", "--cache 8MiB", "--nodes 2"]
        {
            assert_ne!(base, of(&format!("--dataset ipv4 --over epsilon --values 8 {other}")), "{other}");
        }
        // Each of these has a fill of its own, or another transport or values, without it.
        for (with, without) in [
            ("--fill 0.8 --groups", "--fill 0.8"),
            ("--fill 0.8 --groups=seeded", "--fill 0.8 --groups=plain"),
            ("--transport tcp --spin 0s", "--transport tcp"),
            ("--value-bytes vary:8192 --inline-bytes 256", "--value-bytes vary:8192"),
        ] {
            let [with, without] =
                [with, without].map(|other| of(&format!("--dataset ipv4 --over epsilon --values 8 {other}")));
            assert_ne!(with, without);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        let cases = [
            ("--dataset ipv4 --values 8", "--over"),
            ("--dataset ipv4 --over epsilon", "--values"),
            ("--over epsilon --values 8", "--dataset"),
            ("--dataset ipv4 --over colour --values 8", "fingerprint-bits"),
            ("--dataset ipv4 --over epsilon --values 8,5000", "--values 5000"),
            ("--dataset ipv4 --over epsilon --values 8,x", "--values x"),
            ("--dataset ipv4 --over epsilon --values=-8", "--values -8"),
            ("--dataset ipv4 --over epsilon --values 8, --plans auto", "--values"),
            ("--dataset ipv4 --over cache --values 0", "8MiB"),
            ("--dataset ipv4 --over cache --values none", "8MiB"),
            ("--dataset ipv4 --over fingerprint-bits --values 12", "8, 16, 32 or 64"),
            ("--dataset ipv4 --over value-bytes --values 65537", "1 to 65536"),
            ("--dataset ipv4 --over fill --values 1.2", "--values 1.2"),
            ("--dataset ipv4 --over fill --values nan", "--values nan"),
            ("--dataset ipv4 --over theta --values 0", "above 0"),
            ("--dataset ipv4 --over threads --values 0", "1 to 1024"),
            ("--dataset ipv4 --over threads --values 2000", "1 to 1024"),
            ("--dataset ipv4 --over epsilon --values 8 --epsilon 8", "--epsilon is what is swept"),
            ("--dataset ipv4 --over theta --values 0.5 --dist uniform", "--dist is what is swept"),
            ("--dataset ipv4 --over cache --values 8MiB --cache none", "--cache is what is swept"),
            ("--dataset ipv4 --over cache --values 8MiB --system hashmap", "fpcache"),
            ("--dataset ipv4 --over threads --values 1 --system hashmap --plans auto,range", "fpcache"),
            ("--dataset ipv4 --over epsilon --values 8 --variants fd,full", "--cache"),
            ("--dataset ipv4 --over epsilon --values 8 --policies fd", "heat"),
            ("--dataset ipv4 --over cache --values 8MiB --variants fd --variant full", "--variant"),
            ("--dataset ipv4 --over epsilon --values 8 --plans range --plan auto", "--plan"),
            ("--dataset ipv4 --over epsilon --values 8 --url shm://x", "omit --url"),
            ("--dataset ipv4 --over epsilon --values 8 --cold", "--cache"),
        ];
        assert_refused(parse, &cases);
    }
}
