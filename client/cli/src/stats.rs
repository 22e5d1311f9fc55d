//! The `stats` command.

use std::time::Duration;

use anyhow::Error;
use fpcache_client::{
    ChosenFor, ClientError, Expected, GroupForm, NodeStats, Plan, RecordShape, SocketStats, TableClient,
    TableParameters, TableStats,
};
use fpcache_datasets::count::{human, human_bytes};
use serde_json::{Value, json};

use crate::keys::Keys;
use crate::output::{Outcome, Output};
use crate::parameters;
use crate::summary::FEW_KEYS;

pub(crate) fn run<K: Keys>(client: &TableClient<K>, output: &mut Output) -> anyhow::Result<Outcome> {
    let node = client.stats().map_err(|error| match error {
        // Those of all are added up.
        away @ ClientError::NodeAway { .. } => Error::from(away).context(
            "the statistics of a table over several memory nodes need all of them (those of the others alone are shown by \
             `fpcache-cli --url URL,URL metrics` and `tables`)",
        ),
        error => error.into(),
    })?;
    let table = if node.segments > 0 { Some(client.table()?) } else { None };
    let lookups = match table {
        Some(_) => Some(Lookups { single: client.expected(1)?, group: client.expected(GROUP)? }),
        None => None,
    };
    // After the table, with which the pages are mapped.
    let huge = client.huge_bytes();
    // A memory node of an older release refuses to tell, which is no reason to tell nothing.
    let sockets = client.sockets().ok().flatten().filter(|sockets| sockets.io_threads > 0);
    if output.is_json() {
        output.document(&document::<K>(
            client,
            &node,
            table.as_ref(),
            lookups.as_ref(),
            huge,
            sockets.as_ref(),
        ))?;
    } else {
        print::<K>(output, client.name(), &node, table.as_ref(), lookups.as_ref(), huge)?;
        if let Some(sockets) = &sockets {
            print_sockets(output, sockets)?;
        }
    }
    Ok(Outcome::Done)
}

/// Keys of the group whose plan is shown.
const GROUP: usize = 64;

/// How keys would be looked up over this connection.
struct Lookups {
    single: Expected,
    group: Expected,
}

fn expected(of: &Expected) -> Value {
    json!({
        "keys": of.keys,
        "plan": of.plan.name(),
        "by_reads": of.own_plan.name(),
        "by_reads_us": of.own / 1e3,
        "at_node_us": of.at_node.map(|ns| ns / 1e3),
    })
}

/// What a table is made of, as this compute node has it.
fn of_table<K: Keys>(table: &TableStats) -> Value {
    let parameters = table.record.parameters;
    let more = json!({
        "max_slots": parameters.max_slots,
        "chosen_for": parameters.chosen_for.as_ref().map(chosen_for),
        "model_bytes": table.model_bytes,
    });
    parameters::document::<K>(&parameters, more)
}

/// What met records that are damaged in memory.
fn damaged(node: &NodeStats) -> Value {
    json!({
        "writes": node.damaged_writes,
        "lookups": node.damaged_lookups,
        "copies": node.damaged_copies,
        "passed_by": node.damaged_passed_by,
    })
}

/// The plan that is chosen, and why, in words.
fn reason(of: &Expected) -> String {
    let own = (of.own_plan.name(), of.own / 1e3);
    let Some(ns) = of.at_node else { return format!("{}, {:.2} us a key", own.0, own.1) };
    let at_node = (Plan::AtNode.name(), ns / 1e3);
    let (taken, other) = if of.plan == Plan::AtNode { (at_node, own) } else { (own, at_node) };
    format!("{}, {:.2} us a key; {} would take {:.2} us", taken.0, taken.1, other.0, other.1)
}

fn document<K: Keys>(
    client: &TableClient<K>,
    node: &NodeStats,
    table: Option<&TableStats>,
    lookups: Option<&Lookups>,
    huge: Option<u64>,
    sockets: Option<&SocketStats>,
) -> Value {
    json!({
        "url": client.name(),
        "name": client.table_name().as_str(),
        "incarnation": format!("{:016x}", node.incarnation),
        "region_bytes": node.region_bytes,
        "used_bytes": node.used_bytes,
        "huge_bytes": huge,
        "keys": node.keys,
        "segments": node.segments,
        "clients": node.clients,
        "requests": node.requests,
        "uptime_ms": node.uptime_ms,
        "writes": node.writes,
        "inserts": node.inserts,
        "rebuilds": node.rebuilds,
        "rebuild_ms_p99": milliseconds(node.rebuild_ns_p99),
        "rebuild_ms_max": milliseconds(node.rebuild_ns_max),
        "window_full_waits": node.window_full_waits,
        "copies": node.copies,
        "quarantined_bytes": node.quarantined_bytes,
        "log_head": node.log_head,
        "checkpoint": node.checkpoint,
        "external_values": node.external_values,
        "external_bytes": node.external_bytes,
        "damaged": damaged(node),
        "logged": node.logged,
        "synced": node.synced,
        "log_errors": node.log_errors,
        "log_writable": node.log_fails == 0,
        "round_trip_us": lookups.filter(|of| of.single.is_measured).map(|of| of.single.round_trip / 1e3),
        "lookups": lookups.map(|of| json!([expected(&of.single), expected(&of.group)])),
        "sockets": sockets.map(|sockets| {
            let named = sockets.named().map(|(name, count)| (name.to_owned(), count.into()));
            Value::Object(named.collect())
        }),
        "table": table.map(of_table::<K>),
    })
}

/// What a table's parameters were chosen for, and what was expected of them.
fn chosen_for(chosen: &ChosenFor) -> Value {
    json!({
        "round_trip_us": f64::from(chosen.round_trip_ns) / 1e3,
        "byte_ns": f64::from(chosen.byte_ps) / 1e3,
        "budget_bytes": chosen.budget,
        "inserts_per_key": f64::from(chosen.growth) / 1e6,
        "round_trips": f64::from(chosen.round_trips) / 1e6,
        "bytes": chosen.bytes,
        "best_other": chosen.other.map(|(form, time)| json!({
            "group_form": form.map(GroupForm::name),
            "times": f64::from(time) / 1e3,
        })),
    })
}

/// The same in words, in several lines.
fn why_chosen(chosen: &ChosenFor) -> String {
    let (round_trip, byte) = (f64::from(chosen.round_trip_ns) / 1e3, f64::from(chosen.byte_ps) / 1e3);
    let budget = match chosen.budget {
        Some(budget) => format!("{} on a compute node", human_bytes(budget)),
        None => "no bound on a compute node's memory".to_owned(),
    };
    let (inserts, round_trips) = (f64::from(chosen.growth) / 1e6, f64::from(chosen.round_trips) / 1e6);
    let best_other = chosen.other.map_or_else(String::new, |(form, time)| {
        let form = match form {
            None => "no groups",
            Some(GroupForm::Plain) => "plain groups",
            Some(GroupForm::Seeded) => "seeded groups",
            Some(GroupForm::Pilots) => "pilots",
        };
        format!("\n{form} would take {:.2} times as long", f64::from(time) / 1e3)
    });
    format!(
        "for round trips of {round_trip} us and {byte} ns a byte, {inserts} inserts a key,\n{budget}\n\
         a lookup takes {round_trips:.3} round trips and reads {}{best_other}",
        human_bytes(chosen.bytes.into())
    )
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Keys and values of a table, in words.
fn records<K: Keys>(shape: &RecordShape) -> String {
    let bytes =
        |bytes: Option<u32>| bytes.map_or("of any length".to_owned(), |bytes| format!("of {bytes} bytes"));
    let (keys, values) = (bytes(shape.key_bytes.map(u32::from)), bytes(shape.value_bytes));
    let together =
        if shape.is_fixed() { String::new() } else { format!(", together at most {} in a slot", shape.room) };
    format!("{} keys {keys}, values {values}{together}", K::NAME)
}

fn print<K: Keys>(
    output: &mut Output,
    url: &str,
    node: &NodeStats,
    table: Option<&TableStats>,
    lookups: Option<&Lookups>,
    huge: Option<u64>,
) -> anyhow::Result<()> {
    output.row("address", url)?;
    output.row("up for", format_args!("{:.1?}", Duration::from_millis(node.uptime_ms)))?;
    output.row("clients", node.clients)?;
    output.row("requests", node.requests)?;
    let (used, region) = (human_bytes(node.used_bytes), human_bytes(node.region_bytes));
    output.row("region", format_args!("{used} of {region} in use"))?;
    if let Some(huge) = huge {
        output.row("pages", format_args!("{} of it in huge pages, as mapped here", human_bytes(huge)))?;
    }
    let Some(table) = table else {
        output
            .row("keys", format_args!("none: load some, for example `fpcache-cli --url {url} load ipv4`"))?;
        return Ok(());
    };
    print_records::<K>(output, node, &table.record.parameters)?;
    output.row("models", format_args!("{} on this compute node", human_bytes(table.model_bytes)))?;
    if let Some(Lookups { single, group }) = lookups {
        if single.is_measured {
            output.row("round trip", format_args!("{:.1} us, measured now", single.round_trip / 1e3))?;
        }
        output.row("a key", reason(single))?;
        output.row(&format!("{GROUP} keys"), reason(group))?;
    }
    print_writes(output, node)
}

/// What a table's records are like, and how they are found.
fn print_records<K: Keys>(
    output: &mut Output,
    node: &NodeStats,
    parameters: &TableParameters,
) -> anyhow::Result<()> {
    match node.keys {
        0 => {
            output.row("keys", "0")?;
            output.row("segments", node.segments)?;
        }
        keys => {
            let per_key = node.used_bytes as f64 / keys as f64;
            let per_segment = keys as f64 / node.segments.max(1) as f64;
            let more = match keys < FEW_KEYS {
                true => String::new(),
                false => format!(" ({}), {per_key:.1} bytes each", human(keys)),
            };
            output.row("keys", format_args!("{keys}{more}"))?;
            output.row("segments", format_args!("{} ({per_segment:.1} keys each)", node.segments))?;
        }
    }
    output.row("records", records::<K>(&parameters.shape))?;
    if node.external_values > 0 {
        let (values, bytes) = (human(node.external_values), human_bytes(node.external_bytes));
        output.row("external", format_args!("{values} values of {bytes} that do not fit their slots"))?;
    }
    let (epsilon, fill) = (parameters.epsilon, parameters.fill);
    let groups = parameters.groups.map_or_else(String::new, |groups| match groups.name() {
        GroupForm::Pilots => {
            format!(", pilots that lead to one slot a READ, in blocks of {} slots", groups.block())
        }
        form => format!(", {form} groups of {} slots a READ", groups.reach),
    });
    let fingerprints = parameters.fingerprints_in_words();
    output.row("table", format_args!("{fingerprints}, epsilon {epsilon}, fill {fill}{groups}"))?;
    if let Some(chosen_for) = &parameters.chosen_for {
        output.rows("chosen", why_chosen(chosen_for))?;
    }
    Ok(())
}

/// What was written, and what that led to.
fn print_writes(output: &mut Output, node: &NodeStats) -> anyhow::Result<()> {
    output.row("writes", format_args!("{}, {} of them inserts", node.writes, node.inserts))?;
    if node.rebuilds > 0 {
        let (p99, longest) = (milliseconds(node.rebuild_ns_p99), milliseconds(node.rebuild_ns_max));
        let waits = node.window_full_waits;
        output.row(
            "rebuilds",
            format_args!(
                "{}, 99 % within {p99:.2} ms, at most {longest:.2} ms; {waits} while a writer waited",
                node.rebuilds
            ),
        )?;
    }
    print_damage(output, node)?;
    if node.logged > 0 {
        let state = if node.log_fails > 0 { "; it cannot be written, so writes are refused" } else { "" };
        output.row(
            "log",
            format_args!("{} changes written, {} of them synced{state}", node.logged, node.synced),
        )?;
    }
    Ok(())
}

/// What was not done because of records that are damaged in memory.
fn print_damage(output: &mut Output, node: &NodeStats) -> anyhow::Result<()> {
    let NodeStats { damaged_writes: writes, damaged_lookups: lookups, .. } = *node;
    let NodeStats { damaged_copies: copies, damaged_passed_by: segments, .. } = *node;
    if [writes, lookups, copies, segments] == [0; 4] {
        return Ok(());
    }
    output.row(
        "damaged",
        format_args!(
            "{writes} writes and {lookups} lookups refused, met {copies} times by snapshots, segments passed by {segments} times: the memory node's \
             standard error names the records"
        ),
    )?;
    Ok(())
}

/// Statistics of the memory node's sockets.
fn print_sockets(output: &mut Output, sockets: &SocketStats) -> anyhow::Result<()> {
    let (threads, connections) = (sockets.io_threads, sockets.connections);
    output.row("sockets", format_args!("{connections} connections at {threads} I/O threads"))?;
    let waits = sockets.waits_spun + sockets.waits_slept;
    output.row(
        "spinning",
        format_args!(
            "up to {} us before sleep; {} of {} waits ended before it, {:.1} s spent",
            sockets.spin_ns as f64 / 1e3,
            human(sockets.waits_spun),
            human(waits),
            sockets.spun_ns as f64 / 1e9
        ),
    )?;
    let ended: Vec<String> = sockets
        .hang_ups()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{count} that {}", what_it_did(reason)))
        .collect();
    if !ended.is_empty() {
        output.row("hung up on", ended.join(", "))?;
    }
    Ok(())
}

/// What clients did that were hung up on, or not let in, for this reason.
fn what_it_did(reason: &str) -> String {
    let what = match reason {
        "bad_frame" => "sent what is no frame",
        "no_greeting" => "did not greet in time",
        "slow_frame" => "did not send the rest of a frame in time",
        "unread_replies" => "did not read replies in time",
        "idle" => "did nothing for long",
        "other_protocol" => "spoke another protocol or version",
        "no_right" => "had no right",
        "too_many" => "came when there were too many",
        "no_region" => "asked for a table that is not there",
        "no_resources" => "came when the system had no room for more",
        other => return format!("fell under {}", other.replace('_', " ")),
    };
    what.to_owned()
}

#[cfg(test)]
mod tests {
    use fpcache_client::SocketStats;

    use super::*;

    #[test]
    fn every_reason_to_hang_up_has_words() {
        for (reason, _) in SocketStats::default().hang_ups() {
            assert!(!what_it_did(reason).starts_with("fell under"), "{reason}");
        }
    }
}
