//! Options of `density`.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::Args;
use fpcache_datasets::{KeyKind, Spec};

use super::form::FormName;
use super::measure::Setting;
use super::node;
use crate::counts::positive_count;

/// Ends the help of `density`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval density
  fpcache-eval density --dataset fb:16M --epsilon 64,128,256 --json fb.json
  fpcache-eval density --dataset ipv4 --form plain,seeded --fill 0.8
  fpcache-eval density --dataset fb:4M --form plain --epsilon 64,128 --inserted 0,0.1,0.5,1 --plot fb.svg

Each row of the forms `line` and `cut` cuts a data set's keys into segments, puts these into groups, and looks for every key, and as many that are absent, where \
the table of its segment leads. `one READ` is the share of keys that the first READ settles; `B/key` counts all that a compute node \
keeps to know where to READ: the directory with its models and separators, as it lies in memory, the table, and eight bytes a \
segment for the table's place.

Rows of the forms `plain`, `seeded` and `pilots` are of what is built, and measured where it is used: a memory node in this process has a \
table with groups, as --groups=plain, =seeded and =pilots make them, of which the data set's keys are loaded, or some of them are and the others are inserted in random order \
(--inserted 1: half of them). Then a client that has read every key once looks up keys that are there, and as many that are absent, each alone. \
`one READ` is the share that one READ of a group's slots settles, the READ of all bytes that a lookup reads, and `B/key` all that the client \
keeps, with all room it has for more; `build` is what loading takes the memory node more for the groups. Every answer is compared.

Forms: line (no table: as many slots as a plain group, about the prediction), cut (plain groups of nine slots, of which ten are READ); \
and in a memory node, for slots of 24 to 64 bytes, plain and seeded (six groups share a separator and a seed), and \
pilots (a table that names the very slot; for long slots).

Exit code: 0 if every key was where it should be and every answer right, 1 if one was not, 2 wrong usage or a failure.";

/// Most inserts for each key that is loaded.
const MOST_INSERTED: f64 = 100.0;

/// The options of `density`.
#[derive(Args, Clone, Debug)]
pub struct DensityArgs {
    /// Data sets of integers, separated by commas
    #[arg(
        long = "dataset",
        value_name = "DATASET",
        value_delimiter = ',',
        default_value = "fb:4M,wiki:4M,osm:4M,uniform:4M,ipv4"
    )]
    pub datasets: Vec<Spec>,

    /// Forms of tables, separated by commas [default: all that slots of this length can be in]
    #[arg(long = "form", value_enum, value_delimiter = ',')]
    pub forms: Vec<FormName>,

    /// Error bounds of the models, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "64,128", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub epsilon: Vec<u32>,

    /// Share of a segment's slots that hold keys [default: 0.85, and 0.8 in memory nodes]
    #[arg(long, value_name = "SHARE")]
    pub fill: Option<f64>,

    /// Bytes of a slot; 24 hold a word, a key and a value of eight bytes each
    #[arg(long, default_value = "24", value_parser = positive_count)]
    pub slot_bytes: u64,

    /// Keys that are inserted for each that is loaded, where a memory node is measured: shares,
    /// separated by commas
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_value = "0,0.1,0.5,1")]
    pub inserted: Vec<f64>,

    /// Keys of a memory node that are looked up and counted, and as many that are absent
    #[arg(long, default_value = "1M", value_parser = positive_count)]
    pub lookups: u64,

    /// Seeds generated data sets, the order of inserts and the absent keys
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Folder of published data sets [default: $FPCACHE_DATASETS]
    #[arg(long = "datasets-dir", value_name = "FOLDER", env = "FPCACHE_DATASETS")]
    pub data_dir: Option<PathBuf>,

    /// Draw bytes per key over the share of lookups in one READ to this file, SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Write the figures to this file, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl DensityArgs {
    /// Checks what can be checked without the data.
    ///
    /// # Errors
    /// Names the option and what would do.
    pub(super) fn validate(&self) -> anyhow::Result<()> {
        if let Some(fill) = self.fill {
            ensure!(fill > 0.0 && fill <= 1.0, "--fill {fill}: write a share above 0, at most 1");
        }
        for share in &self.inserted {
            ensure!(
                (0.0..=MOST_INSERTED).contains(share),
                "--inserted {share}: write a share of the keys loaded, from 0 to {MOST_INSERTED}, such as 0.1"
            );
        }
        for spec in &self.datasets {
            ensure!(
                spec.key_kind() == KeyKind::U64,
                "--dataset {spec}: has byte strings, and tables are measured for integers, such as fb:4M or ipv4"
            );
        }
        if let Some(form) = self.forms.iter().find(|form| !self.has(**form)) {
            bail!(
                "--form {}: a memory node has such groups of slots of 24 to 64 bytes, pilots for all from 24 bytes on, all a multiple of 8, \
                 and --slot-bytes is {}: choose such, or --form pilots",
                form.name(),
                self.slot_bytes
            );
        }
        Ok(())
    }

    /// What is measured of a form.
    pub(super) fn setting(&self, form: FormName, epsilon: u32) -> Setting {
        let fill = self.fill.unwrap_or_else(|| form.default_fill());
        Setting { form, epsilon, fill, slot_bytes: self.slot_bytes, seed: self.seed }
    }

    /// Whether the form can be measured with such slots: memory nodes do not have groups of all.
    fn has(&self, form: FormName) -> bool {
        form.built().is_none() || node::parameters(&self.setting(form, 1)).is_some()
    }

    /// The forms that were asked for.
    pub(super) fn forms(&self) -> Vec<FormName> {
        if !self.forms.is_empty() {
            return self.forms.clone();
        }
        FormName::ALL.into_iter().filter(|form| self.has(*form)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    fn parse(options: &str) -> Result<DensityArgs, String> {
        let Command::Density(arguments) = command("density", options)? else { panic!("no `density`") };
        arguments.validate().map(|()| *arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn groups_are_measured_where_slots_are_short_enough() {
        assert_eq!(parse("").expect("defaults").forms(), FormName::ALL);
        let forms = parse("--slot-bytes 264").expect("longer slots").forms();
        assert_eq!(forms, [FormName::Line, FormName::Cut, FormName::Pilots]);
    }

    #[test]
    fn options_are_lists_and_mistakes_are_told_with_what_would_do() {
        let arguments = parse("--dataset ipv4,uniform:1M --form plain --epsilon 8,16").expect("good options");
        assert_eq!((arguments.datasets.len(), arguments.epsilon), (2, vec![8, 16]));
        let cases = [
            ("--dataset words", "integers"),
            ("--fill 0", "share"),
            ("--form tree", "plain"),
            ("--epsilon 0", "1..=4096"),
            ("--inserted=-0.1", "from 0 to 100"),
            ("--inserted nan", "from 0 to 100"),
            ("--lookups 0", "above 0"),
            ("--form plain --slot-bytes 264", "24 to 64"),
            ("--form pilots,seeded --slot-bytes 72", "--form seeded"),
        ];
        assert_refused(parse, &cases);
    }
}
