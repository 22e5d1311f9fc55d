//! The quickstart's tables, none wider than a terminal.

use fpcache_datasets::Dataset;
use fpcache_datasets::count::{human, human_bytes};

use super::lines::{Figures, LINES, REFERENCE, Stop};
use crate::run::report::{none, percent, ratio};
use crate::run::row::Row;
use crate::sweep::lines::label;
use crate::sweep::points::Over;
use crate::systems::Facts;
use crate::table::new_table;

/// What a compute node keeps of a data set, and what lookups cost it: one line for each way to look
/// up.
pub fn costs(dataset: &Dataset, facts: &[Facts], figures: &[Figures]) -> String {
    let keys = dataset.len() as f64;
    let of_table = &facts[LINES[0].system];
    let segments = of_table.segments.unwrap_or(1).max(1);
    let title = format!(
        "{} ({}): {:.1} bytes per key at the memory node;\n\
         here {} models of {:.0} keys on average take {}",
        dataset.name(),
        dataset.source(),
        of_table.memory_node_bytes.unwrap_or(0) as f64 / keys,
        human(segments),
        keys / segments as f64,
        human_bytes(of_table.model_bytes.unwrap_or(0)),
    );
    let mut table = new_table("lookups by | kept here | round trips | bytes read");
    // In groups each key costs the same.
    for (line, figures) in LINES.iter().zip(figures).filter(|(line, _)| line.batch == 1) {
        let per_key = facts[line.system].process_bytes as f64 / keys;
        let lookups = figures.verified.lookups.max(1) as f64;
        let costs = figures.verified.costs;
        table.add_row([
            line.label.to_owned(),
            if per_key < 1.0 { format!("{per_key:.3} B/key") } else { format!("{per_key:.1} B/key") },
            costs.map_or_else(none, |costs| format!("{:.2}", costs.round_trips as f64 / lookups)),
            costs.map_or_else(none, |costs| format!("{:.0} B", costs.bytes as f64 / lookups)),
        ]);
    }
    format!("{title}\n{table}\n")
}

/// Lookups within budgets.
pub fn budgets(rows: &[Row], over: Over) -> String {
    let mut table = new_table("budget | lookups by | hit rate | entries | round trips");
    for row in rows {
        table.add_row([
            row.sweep.as_ref().map_or_else(none, |tag| over.show(tag.value)),
            label(row, rows),
            row.hit_rate.map_or_else(none, percent),
            row.cache_entries.map_or_else(none, human),
            row.rtts_per_op.map_or_else(none, |trips| format!("{trips:.2}")),
        ]);
    }
    format!(
        "The same node within budgets, models and hot cache together; zipf:0.99.\n\
         A hot key takes one round trip; fd keeps four bytes of it, full its key.\n{table}"
    )
}

/// The time of all lines for all data sets.
pub fn times(stops: &[Stop]) -> String {
    let mut header = vec!["ns per lookup"];
    for stop in stops {
        header.extend([stop.name.as_str(), "× map"]);
    }
    let mut table = new_table(&header.join(" | "));
    for (at, line) in LINES.iter().enumerate() {
        let mut cells = vec![line.label.to_owned()];
        for stop in stops {
            let ns = stop.figures[at].ns;
            cells.extend([format!("{ns:.0}"), ratio(ns, stop.figures[REFERENCE].ns)]);
        }
        table.add_row(cells);
    }
    format!(
        "And the time, which is not the point here: over shared memory a round trip is a\n\
         cache miss of a tenth of a microsecond, over a network it is microseconds, and\n\
         then the round trips and bytes above are what a lookup costs. A map needs every\n\
         key in each process that looks it up. × map: how many times as long a lookup\n\
         takes as a get of the hashmap.\n{table}\n"
    )
}
