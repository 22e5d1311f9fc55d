//! Output of workloads as a table.

use fpcache_datasets::count::human;

use super::options::end_in_words;
use super::pass::End;
use super::row::YcsbRow;
use crate::run::report::{
    Doubts, bytes_per_key, doubts, doubts_of, duration, least_to_most, none, rate, ratio_of,
};
use crate::table::new_table;

/// The rows as tables, under a title that says what was measured on what.
pub fn table(rows: &[YcsbRow]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut text = format!("{}\n{}\n{}\n", title(first), throughput(rows), latencies(rows));
    let hit_rates: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{} {:.1} %", row.workload, 100.0 * row.run.hit_rate?)))
        .collect();
    if !hit_rates.is_empty() {
        text.push_str(&format!("reads that the hot cache answered: {}\n", hit_rates.join(", ")));
    }
    if first.node_rebuild_ms_max > 0.0 {
        text.push_str(&format!(
            "rebuilds by all workloads since the memory node's start: 99 of 100 took at most {:.2} ms, the longest {:.2} ms\n",
            first.node_rebuild_ms_p99, first.node_rebuild_ms_max,
        ));
    }
    if rows.iter().any(|row| row.ran_out_of_inserts) {
        text.push_str(
            "passes ended early for want of keys to insert: give more with --inserts, or a larger data set\n",
        );
    }
    text.push_str(&doubts(rows.iter().map(doubts_of_workload)));
    let c = &first.run.calibration;
    text.push_str(&format!(
        "latencies are of an {}, {}; this machine during the run: {:.0} ns per random read\n",
        first.run.latency_of,
        if first.rate.is_some() { "from the instant it was due" } else { "from its start" },
        c.random_read_ns,
    ));
    for row in rows {
        if let (Some(due), Some(begun)) = (row.due, row.begun)
            && begun < due
        {
            text.push_str(&format!(
                "{}: {} of {} due were begun; latencies count the others as if they had ended with the pass\n",
                row.workload,
                human(begun),
                human(due),
            ));
        }
    }
    text.push_str(&match first.final_mismatches + rows.iter().map(|row| row.run.mismatches).sum::<u64>() {
        0 => "every answer was right, and every record holds a last write of it".to_owned(),
        wrong => format!("{wrong} answers were WRONG"),
    });
    text
}

/// What a workload's figures may say against themselves. Where operations are due at instants,
/// their rate says nothing of how long one takes.
fn doubts_of_workload(row: &YcsbRow) -> Doubts {
    let doubts = doubts_of(row.workload.clone(), &row.run);
    if row.rate.is_some() { Doubts { mean_ns: 0.0, ..doubts } } else { doubts }
}

fn title(row: &YcsbRow) -> String {
    let run = &row.run;
    let end = match row.duration_s {
        Some(seconds) => format!("{seconds} s"),
        None => end_in_words(End::Operations(run.lookups)),
    };
    let pace = match (row.rate, row.arrivals) {
        (Some(rate), Some(arrivals)) => format!(", {} per second due ({arrivals})", human(rate)),
        _ => String::new(),
    };
    let in_flight = match row.writes_in_flight {
        1 => String::new(),
        writes => format!(", up to {writes} writes in flight"),
    };
    format!(
        "{} ({}): {} keys loaded, {} inserted ({}), {}-byte values; passes of {end}{pace}, {} {}{in_flight}",
        run.dataset,
        run.dataset_source,
        human(run.keys),
        human(row.inserted),
        row.insert_order,
        run.value_bytes_in_words(),
        run.threads,
        if run.threads == 1 { "thread" } else { "threads" },
    )
}

fn throughput(rows: &[YcsbRow]) -> String {
    let to = rows.iter().find_map(|row| row.ratio_to.as_deref()).unwrap_or("first");
    let (all, reads) = (format!(": {to}"), format!("reads : {to}"));
    let mut table = new_table(&format!(
        "workload | dist | operations/s | least to most | {all} | {reads} | p50 | p99 | p99.99 | \
         rebuilds | mean rebuild | waits | copies/insert | refreshes/op | at memory node"
    ));
    for row in rows {
        let run = &row.run;
        table.add_row([
            row.workload.clone(),
            run.dist.clone(),
            rate(run.ops_per_s),
            least_to_most(run.ops_per_s_min, run.ops_per_s_max),
            row.ops_ratio.map_or_else(none, ratio_of),
            row.reads_ratio.map_or_else(none, ratio_of),
            duration(run.p50_ns),
            duration(run.p99_ns),
            duration(run.p9999_ns),
            human(row.rebuilds),
            row.rebuild_ms_mean.map_or_else(none, |mean| format!("{mean:.2} ms")),
            human(row.window_full_waits),
            row.copies_per_insert.map_or_else(none, |copies| format!("{copies:.2}")),
            row.refreshes_per_op.map_or_else(none, |refreshes| format!("{refreshes:.5}")),
            run.memory_node_bytes_per_key.map_or_else(none, bytes_per_key),
        ]);
    }
    table.to_string()
}

fn latencies(rows: &[YcsbRow]) -> String {
    let mut table =
        new_table("workload | operation | operations | p50 | p95 | p99 | p99.9 | p99.99 | max").named_by(2);
    for row in rows {
        for (kind, latency) in &row.latencies {
            table.add_row([
                row.workload.clone(),
                (*kind).to_owned(),
                human(latency.operations),
                duration(latency.p50_ns),
                duration(latency.p95_ns),
                duration(latency.p99_ns),
                duration(latency.p999_ns),
                duration(latency.p9999_ns),
                duration(latency.max_ns),
            ]);
        }
    }
    table.to_string()
}
