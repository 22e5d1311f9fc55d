//! Options of `explain`.

use std::path::PathBuf;

use anyhow::ensure;
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use fpcache::fingerprint::WidthChoice;
use fpcache::layout::Grouping;
use fpcache::plan::FabricCosts;
use fpcache::tuning::Lookups;
use fpcache_client::{GroupForm, RecordShape, TableParameters};
use fpcache_datasets::{KeyKind, Spec};

use crate::density::form::FormName;

/// Ends the help of `explain`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval explain
  fpcache-eval explain --dataset fb:4M --transport rdma --budget 1MiB
  fpcache-eval explain --dataset uniform:4M --budget 2MiB --theta 0.99 --negative 0.2
  fpcache-eval explain --dataset fb:4M --value-bytes 128 --json explain.json
  fpcache-eval explain --dataset fb:4M --form plain --epsilon 128 --fill 0.85

A row is a form of tables and an ε: how many bytes models and tables take for each key, how the budget is best divided between tables \
and entries of the hot cache, and what a lookup costs then. `tables here` is the share of tables that the \
budget has, `by entry` the share of lookups that an entry answers. The chosen row is, of those that \
cost at most a twentieth more than the least time, the one with the fewest bytes, and of several with as many the \
fastest.

Shares are those of a table that has just been loaded; `fpcache-cli load --tune auto` reckons with inserts to come.

What is forced (--form, --epsilon, --fill, --fingerprint-bits) is all that is compared.";

/// The options of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Data set of integers
    #[arg(long, default_value = "fb:1M")]
    pub dataset: Spec,

    /// Bytes of every value
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub value_bytes: u32,

    /// What lookups go over
    #[arg(long, value_enum, default_value = "rdma")]
    pub transport: Transport,

    /// Nanoseconds of a round trip [default: as the transport's is reckoned]
    #[arg(long, value_name = "NS")]
    pub round_trip: Option<f64>,

    /// Lookups that are under way at a time at the memory node, of all compute nodes; bytes are
    /// dear where these are many
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub concurrency: u32,

    /// Bytes of a compute node for all that it keeps of the table, such as 1MiB [default: as many
    /// as there is use for]
    #[arg(long, value_name = "BYTES")]
    pub budget: Option<ByteSize>,

    /// Exponent of the Zipf distribution of lookups; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    pub theta: f64,

    /// Share of lookups of keys that are absent
    #[arg(long, default_value_t = 0.0)]
    pub negative: f64,

    /// Forms of tables, as --groups of `fpcache-cli load` names them, separated by commas [default:
    /// all that suit the slots]
    #[arg(long = "form", value_enum, value_delimiter = ',')]
    pub forms: Vec<Form>,

    /// Error bounds of the models, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "8,16,32,64,128,256", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub epsilon: Vec<u32>,

    /// Share of slots that hold a record [default: 0.8, without groups 0.85]
    #[arg(long, value_name = "SHARE")]
    pub fill: Option<f64>,

    /// Bits of a fingerprint: 8, 16, 32 or 64, auto for the fewest that suit ε and records, or none
    #[arg(long, value_name = "BITS|auto|none", default_value = "auto")]
    pub fingerprint_bits: WidthChoice,

    /// Seeds generated data sets and the absent keys
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Folder of published data sets [default: $FPCACHE_DATASETS]
    #[arg(long = "datasets-dir", value_name = "FOLDER", env = "FPCACHE_DATASETS")]
    pub data_dir: Option<PathBuf>,

    /// Write the figures to this file, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A form of tables, by the name that it has as a choice of `--groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// No groups: slots about the prediction
    #[value(alias = "line")]
    None,
    /// Groups of neighbours, each with a separator
    #[value(alias = "groups")]
    Plain,
    /// Groups that hashes choose within a block
    Seeded,
    /// The very slot, by pilots
    Pilots,
}

impl Form {
    /// All of them.
    const ALL: [Self; 4] = [Self::None, Self::Plain, Self::Seeded, Self::Pilots];

    /// As a table has it.
    pub(super) fn groups(self) -> Option<GroupForm> {
        match self {
            Self::None => None,
            Self::Plain => Some(GroupForm::Plain),
            Self::Seeded => Some(GroupForm::Seeded),
            Self::Pilots => Some(GroupForm::Pilots),
        }
    }

    /// As it is measured.
    pub(super) fn measured(self) -> FormName {
        match self {
            Self::None => FormName::Line,
            Self::Plain => FormName::Plain,
            Self::Seeded => FormName::Seeded,
            Self::Pilots => FormName::Pilots,
        }
    }

    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        self.groups().map_or("none", GroupForm::name)
    }

    /// Whether slots of `slot_bytes` bytes can be in such tables.
    fn suits(self, slot_bytes: usize) -> bool {
        self.groups().is_none_or(|form| Grouping::for_slots(form, slot_bytes).is_some())
    }
}

/// What lookups go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Memory of this machine
    Shm,
    /// Sockets
    Tcp,
    /// Network cards
    Rdma,
}

impl Transport {
    fn costs(self) -> FabricCosts {
        match self {
            Self::Shm => FabricCosts::MAPPED_MEMORY,
            Self::Tcp => FabricCosts::TCP,
            Self::Rdma => FabricCosts::RDMA,
        }
    }

    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }
}

impl ExplainArgs {
    /// Checks what can be checked without the data.
    ///
    /// # Errors
    /// Names the option and what would do.
    pub(super) fn validate(&self) -> anyhow::Result<()> {
        if let Some(fill) = self.fill {
            ensure!(fill > 0.0 && fill <= 1.0, "--fill {fill}: write a share above 0, at most 1");
        }
        ensure!(
            (0.0..=1.0).contains(&self.negative),
            "--negative {}: write a share of lookups, from 0 to 1",
            self.negative
        );
        ensure!(
            (0.0..=16.0).contains(&self.theta),
            "--theta {}: write an exponent from 0 to 16, such as 0.99",
            self.theta
        );
        let round_trip = self.round_trip.unwrap_or(0.0);
        ensure!(
            (0.0..1e12).contains(&round_trip),
            "--round-trip {round_trip}: write nanoseconds, such as 2000"
        );
        ensure!(
            self.dataset.key_kind() == KeyKind::U64,
            "--dataset {}: has byte strings, and forms are explained for integers, such as fb:4M or ipv4",
            self.dataset
        );
        let slot_bytes = self.slot_bytes();
        let unfit = self.forms.iter().find(|form| !form.suits(slot_bytes));
        ensure!(
            unfit.is_none(),
            "--form {}: is for shorter slots than these of {slot_bytes} bytes: choose none or pilots, or leave --form away",
            unfit.map_or("", |form| form.name())
        );
        Ok(())
    }

    /// Of a table of such records, but for what is compared.
    pub(super) fn parameters(&self) -> TableParameters {
        TableParameters { shape: RecordShape::fixed(8, self.value_bytes), ..TableParameters::default() }
    }

    /// Bytes of a slot.
    pub(super) fn slot_bytes(&self) -> usize {
        self.parameters().geometry().slot_bytes
    }

    /// The forms that are compared.
    pub(super) fn forms(&self) -> Vec<Form> {
        if !self.forms.is_empty() {
            return self.forms.clone();
        }
        Form::ALL.into_iter().filter(|form| form.suits(self.slot_bytes())).collect()
    }

    /// The lookups that a form is chosen for.
    pub(super) fn asked(&self) -> Lookups {
        let costs = self.transport.costs().at_concurrency(self.concurrency);
        let costs = FabricCosts { round_trip: self.round_trip.unwrap_or(costs.round_trip), ..costs };
        let lookups = Lookups::over(costs).with_budget(self.budget.map(|budget| budget.as_u64()));
        lookups.with_theta(self.theta).with_negative(self.negative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    fn parse(options: &str) -> Result<ExplainArgs, String> {
        let Command::Explain(arguments) = command("explain", options)? else { panic!("no `explain`") };
        arguments.validate().map(|()| *arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn forms_are_compared_that_suit_the_slots() {
        let forms = |options| parse(options).expect(options).forms();
        assert_eq!(forms(""), Form::ALL);
        assert_eq!(forms("--value-bytes 128"), [Form::None, Form::Pilots]);
        assert_eq!(forms("--form plain"), [Form::Plain]);
    }

    #[test]
    fn forms_have_the_names_that_groups_have_and_those_that_they_had() {
        for form in Form::ALL {
            assert_eq!(parse(&format!("--form {}", form.name())).expect("a name").forms(), [form]);
        }
        let named: Vec<&str> = Form::ALL[1..].iter().map(|form| form.name()).collect();
        assert_eq!(named, GroupForm::ALL.map(GroupForm::name));
        assert_eq!(parse("--form line,groups").expect("old names").forms(), [Form::None, Form::Plain]);
    }

    #[test]
    fn mistakes_are_told_with_what_would_do() {
        let cases = [
            ("--dataset words", "integers"),
            ("--fill 0", "share"),
            ("--theta=-1", "0.99"),
            ("--theta nan", "0.99"),
            ("--negative 2", "from 0 to 1"),
            ("--round-trip nan", "2000"),
            ("--value-bytes 128 --form plain", "pilots"),
            ("--budget many", "many"),
        ];
        assert_refused(parse, &cases);
    }
}
