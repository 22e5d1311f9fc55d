//! The kinds of rows, recognised by fields that only one command writes.

use super::record::Record;
use super::views::{beside, lookups, modelled, paper, parts, writes};
use crate::plot::figure::Figure;

/// A kind of rows.
pub struct Kind {
    /// What the rows are of.
    pub title: &'static str,
    /// The commands that write them, as one says them to this program.
    pub commands: &'static [&'static str],
    /// Fields that are numbers in every one.
    numbers: &'static [&'static str],
    /// Fields that are texts in every one.
    texts: &'static [&'static str],
    /// Whether their times are those of this machine: how this program was built says something of
    /// them.
    pub is_timed: bool,
    /// Their figures.
    pub figures: fn(&[Record]) -> Vec<Figure>,
    /// What tells one row from the others.
    pub label: fn(&Record, &[Record]) -> String,
}

/// All kinds. What has the fields of two is of the first.
pub const KINDS: [Kind; 12] = [
    Kind {
        title: "Workloads that read and change records",
        commands: &["ycsb … --json FILE"],
        numbers: &["ops_per_s", "operations", "p50_ns", "p99_ns"],
        texts: &["workload", "mix", "system", "dataset"],
        is_timed: true,
        figures: writes::workloads,
        label: writes::workload_label,
    },
    Kind {
        title: "Lookups",
        commands: &["run … --json FILE", "scale … --json FILE", "sweep … --out FOLDER"],
        numbers: &[
            "ops_per_s",
            "ops_per_s_min",
            "ops_per_s_max",
            "p50_ns",
            "p99_ns",
            "process_bytes_per_key",
            "keys",
        ],
        texts: &["system", "dataset"],
        is_timed: true,
        figures: lookups::lookups,
        label: lookups::lookup_label,
    },
    Kind {
        title: "The quickstart",
        commands: &["quickstart --out FOLDER"],
        numbers: &["ns_per_lookup", "process_bytes_per_key", "batch"],
        texts: &["way", "dataset"],
        is_timed: true,
        figures: beside::tour,
        label: beside::tour_label,
    },
    Kind {
        title: "Beside other systems",
        commands: &["peers … --json FILE"],
        numbers: &["keys_per_call"],
        texts: &["system", "operation"],
        is_timed: true,
        figures: beside::peers,
        label: beside::peer_label,
    },
    Kind {
        title: "Bytes of memory for one READ per lookup",
        commands: &["density … --json FILE"],
        numbers: &["present_one_read", "bytes_per_key", "bytes_read", "epsilon"],
        texts: &["form", "dataset"],
        is_timed: true,
        figures: parts::density,
        label: parts::density_label,
    },
    Kind {
        title: "Statements of the FPCache paper in a model of network cards",
        commands: &["paper … --json FILE"],
        numbers: &["published", "scale"],
        texts: &["figure", "this", "that", "measure"],
        is_timed: false,
        figures: paper::claims,
        label: paper::claim_label,
    },
    Kind {
        title: "Systems in a model of network cards",
        commands: &[
            "run --transport nic:… --json FILE",
            "sweep --transport nic:… --json FILE",
            "ycsb --transport nic:… --json FILE",
        ],
        // Of those without figures, too.
        numbers: &["budget", "warm_up", "compute_nodes", "memory_nodes", "key_bytes", "keys"],
        texts: &["system", "dataset", "transport", "parameters_are", "card.name"],
        is_timed: false,
        figures: modelled::modelled,
        label: modelled::modelled_label,
    },
    Kind {
        title: "Entries in a cache of 100 MiB (table 2 of the FPCache paper)",
        commands: &["paper … --json FILE"],
        numbers: &["key_bytes", "published", "whole_keys", "ours"],
        texts: &[],
        is_timed: false,
        figures: paper::entries,
        label: paper::entries_label,
    },
    Kind {
        title: "A store that grows",
        commands: &["growth … --json FILE"],
        numbers: &["inserts_per_s", "lookups_per_s_before", "lookups_per_s_after", "lookups_per_s_fresh"],
        texts: &["order", "dataset"],
        is_timed: true,
        figures: writes::growth,
        label: writes::order_label,
    },
    Kind {
        title: "Changes by one core of a memory node",
        commands: &["growth --direct … --json FILE"],
        numbers: &["inserts_per_s", "updates_per_s", "updates_per_s_unhinted"],
        texts: &["order", "dataset"],
        is_timed: true,
        figures: writes::direct,
        label: writes::order_label,
    },
    Kind {
        title: "How long a put waits for the work of another table",
        commands: &["waits … --json FILE"],
        numbers: &["every_us", "latency.p50_ns", "latency.p99_ns"],
        texts: &["load"],
        is_timed: true,
        figures: parts::waits,
        label: parts::load_label,
    },
    Kind {
        title: "The fabric by itself",
        commands: &["fabric … --json FILE"],
        numbers: &["bytes", "batch", "rate", "latency.p50_ns"],
        texts: &["transport", "verb"],
        is_timed: true,
        figures: parts::fabric,
        label: parts::verb_label,
    },
];

impl Kind {
    /// The number of a row's kind.
    ///
    /// # Errors
    /// If it is of none; says what it lacks to be of the kind that is nearest.
    pub fn of(record: &Record) -> Result<usize, String> {
        let mut nearest: Option<(usize, String)> = None;
        for (at, kind) in KINDS.iter().enumerate() {
            let lacks = kind.lacks(record);
            let Some(first) = lacks.first() else { return Ok(at) };
            // What has nothing of a kind is not near it.
            let has = kind.numbers.len() + kind.texts.len() - lacks.len();
            let is_nearer = nearest.as_ref().is_none_or(|(most, _)| has > *most);
            if has * 2 > kind.numbers.len() + kind.texts.len() && is_nearer {
                nearest = Some((has, format!("nearest to rows of `{}`, but has no {first}", kind.name())));
            }
        }
        Err(nearest.map_or_else(|| "has the fields of no command's rows".to_owned(), |(_, why)| why))
    }

    /// The first command that writes it.
    pub fn name(&self) -> &'static str {
        self.commands.first().and_then(|command| command.split(' ').next()).unwrap_or_default()
    }

    fn lacks(&self, record: &Record) -> Vec<String> {
        let numbers = self.numbers.iter().filter(|name| record.number(name).is_none());
        let texts = self.texts.iter().filter(|name| record.text(name).is_none());
        let number = numbers.map(|name| format!("number `{name}`"));
        number.chain(texts.map(|name| format!("text `{name}`"))).collect()
    }
}

/// The commands whose files can be read, one to a line.
pub fn readable() -> String {
    let mut commands: Vec<&str> = KINDS.iter().flat_map(|kind| kind.commands).copied().collect();
    commands.sort_unstable();
    commands.dedup();
    let lines: Vec<String> = commands.iter().map(|command| format!("  fpcache-eval {command}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<&'static str, String> {
        Kind::of(&Record::new(serde_json::from_str(json).unwrap())).map(|at| KINDS[at].name())
    }

    #[test]
    fn rows_are_known_by_their_fields() {
        let peer = r#"{"system": "redis", "operation": "GET", "keys_per_call": 1}"#;
        assert_eq!(of(peer), Ok("peers"));
        let entries = r#"{"key_bytes": 8, "published": 1.0, "whole_keys": 2.0, "ours": 3.0}"#;
        assert_eq!(of(entries), Ok("paper"));
    }

    #[test]
    fn what_a_row_lacks_is_told() {
        let near = of(r#"{"system": "redis", "operation": 7, "keys_per_call": 1}"#).unwrap_err();
        assert!(near.contains("peers") && near.contains("text `operation`"), "{near}");
        assert!(of("{}").unwrap_err().contains("no command"));
        let far = of(r#"{"dataset": "fb"}"#).unwrap_err();
        assert!(far.contains("no command"), "{far}");
    }

    #[test]
    fn every_command_is_named_that_can_be_read() {
        let text = readable();
        for command in KINDS.iter().flat_map(|kind| kind.commands) {
            assert!(text.contains(command), "{command} in {text}");
        }
    }
}
