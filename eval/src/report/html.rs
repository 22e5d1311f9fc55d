//! The page: one self-contained document without scripts.

use std::fmt::Write;

use super::kind::KINDS;
use super::record::{Record, cell};
use super::section::Section;
use crate::plot::draw;
use crate::plot::figure::{Body, Figure, Unit};
use crate::run::report::none;
use fpcache_datasets::count::human_bytes;

/// Stands in every page of ours.
pub const MARK: &str = "<meta name=\"generator\" content=\"fpcache-eval report\">";

const STYLE: &str = include_str!("style.css");

/// Text of others as it may stand within an element or an attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // No document may have them.
            c if c.is_control() && c != '\n' && c != '\t' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A page: its title, what each section has, and the files that have none, with the reason.
///
/// # Errors
/// If the drawing library fails.
pub fn page(title: &str, sections: &[Section], left_out: &[(String, String)]) -> anyhow::Result<String> {
    let title = escape(title);
    // Nothing is fetched, whatever a file holds.
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n{MARK}\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<a class=\"skip\" href=\"#figures\">To the figures</a>\n<header>\n<h1>{title}</h1>\n"
    );
    let rows: usize = sections.iter().map(|section| section.rows.len()).sum();
    write!(html, "<p>{rows} rows of figures in {} sections.</p>\n</header>\n", sections.len())?;
    html.push_str("<nav aria-label=\"Sections\">\n<ol>\n");
    for (at, section) in sections.iter().enumerate() {
        writeln!(html, "<li><a href=\"#s{at}\">{}</a></li>", heading(section))?;
    }
    if !left_out.is_empty() {
        html.push_str("<li><a href=\"#left-out\">Left out</a></li>\n");
    }
    html.push_str("</ol>\n</nav>\n<main id=\"figures\">\n");
    for (at, section) in sections.iter().enumerate() {
        push_section(&mut html, at, section)?;
    }
    if !left_out.is_empty() {
        html.push_str("<section id=\"left-out\" aria-labelledby=\"left-out-h\">\n<h2 id=\"left-out-h\">Left out</h2>\n<ul>\n");
        for (name, why) in left_out {
            writeln!(html, "<li><code>{}</code>: {}</li>", escape(name), escape(why))?;
        }
        html.push_str("</ul>\n</section>\n");
    }
    html.push_str("</main>\n</body>\n</html>\n");
    Ok(html)
}

fn heading(section: &Section) -> String {
    let title = KINDS[section.kind].title;
    let over = section.rows.first().and_then(|row| row.text("sweep.over"));
    match (section.title.as_deref(), over) {
        (Some(own), _) => escape(own),
        (None, Some(over)) => escape(&format!("{title} over {over}: {}", section.files.join(", "))),
        (None, None) => escape(&format!("{title}: {}", section.files.join(", "))),
    }
}

fn push_section(html: &mut String, at: usize, section: &Section) -> anyhow::Result<()> {
    writeln!(
        html,
        "<section id=\"s{at}\" aria-labelledby=\"s{at}-h\">\n<h2 id=\"s{at}-h\">{}</h2>",
        heading(section)
    )?;
    for warning in warnings(section) {
        writeln!(html, "<p class=\"warning\" role=\"note\">{}</p>", escape(&warning))?;
    }
    push_set_up(html, section)?;
    html.push_str("<div class=\"figures\">\n");
    let commands = commands(&section.rows);
    for (number, figure) in section.figures.iter().enumerate() {
        push_figure(html, &format!("s{at}-f{number}"), figure, &commands)?;
    }
    html.push_str("</div>\n");
    push_notes(html, &section.rows)?;
    push_fields(html, section)?;
    html.push_str("</section>\n");
    Ok(())
}

/// What a reader must know before the figures.
fn warnings(section: &Section) -> Vec<String> {
    let rows = &section.rows;
    let mut warnings = Vec::new();
    let wrong = |row: &Record| {
        let counts =
            ["mismatches", "final_mismatches", "misplaced"].map(|field| row.number(field).unwrap_or(0.0));
        let runs = row.fields().iter().filter(|(name, _)| name.ends_with(".wrong"));
        counts.iter().sum::<f64>() + runs.filter_map(|(_, value)| value.as_f64()).sum::<f64>()
    };
    let wrong = rows.iter().filter(|row| wrong(row) > 0.0).count();
    if wrong > 0 {
        warnings.push(format!(
            "Answers were WRONG in {wrong} of {} rows: their figures say nothing.",
            rows.len()
        ));
    }
    let is_debug = |row: &Record| row.made().is_some_and(|made| made.build == "debug");
    if KINDS[section.kind].is_timed && rows.iter().any(is_debug) {
        warnings.push("Built without --release: these figures say nothing about speed.".to_owned());
    }
    warnings
}

/// The commands that made some rows.
fn commands(rows: &[Record]) -> Vec<String> {
    let made = rows.iter().filter_map(|row| Some(row.made()?.command.clone()));
    distinct(made)
}

/// Each text once, in the order in which they come.
fn distinct(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known = Vec::new();
    for text in texts {
        if !known.contains(&text) {
            known.push(text);
        }
    }
    known
}

/// What all rows were measured with, by their fields.
const SET_UP: [(&str, &str); 30] = [
    ("dataset", "Data set"),
    ("dataset_source", "Its source"),
    ("keys", "Keys"),
    ("scale", "Keys"),
    ("loaded", "Keys loaded"),
    ("key_space", "Kind of keys"),
    ("key_bytes", "Bytes of a key"),
    ("key_bytes_mean", "Bytes of a key, in the mean"),
    ("value_bytes", "Bytes of a value"),
    ("lookups", "Lookups of a pass"),
    ("dist", "Distribution"),
    ("negative", "Share of absent keys"),
    ("shift_every", "Lookups after which popular keys move"),
    ("mix", "Operations"),
    ("batch", "Keys per call"),
    ("threads", "Threads"),
    ("rounds", "Passes"),
    ("transport", "Transport"),
    ("memory_nodes", "Memory nodes"),
    ("nic", "Network cards"),
    ("fsync", "Log synced"),
    ("epsilon", "Epsilon, in slots"),
    ("fingerprint_bits", "Bits of a fingerprint"),
    ("fill", "Share of slots filled"),
    ("groups", "Form of groups"),
    ("plan", "Plan"),
    ("cache_bytes_budget", "Bytes of the compute node's budget"),
    ("seed", "Seed"),
    ("calibration.random_read_ns", "Nanoseconds of a random read of this machine"),
    ("calibration.copy_gb_s", "Gigabytes copied per second"),
];

fn push_set_up(html: &mut String, section: &Section) -> anyhow::Result<()> {
    let rows = &section.rows;
    html.push_str("<dl class=\"set-up\">\n");
    push_item(html, "File", &section.files, false)?;
    let commands = commands(rows);
    push_item(html, "Command", &commands, true)?;
    let made = |of: fn(&Record) -> Option<String>| distinct(rows.iter().filter_map(of));
    push_item(html, "Date", &span(made(|row| Some(row.made()?.date.clone()))), false)?;
    push_item(html, "Machine", &made(machine), false)?;
    push_item(html, "Commit", &made(commit), false)?;
    push_item(html, "Built", &made(build), false)?;
    for (field, name) in SET_UP {
        let values = distinct(
            rows.iter().filter_map(|row| row.get(field)).filter(|value| !value.is_null()).map(rounded),
        );
        // What the rows differ in stands in the figures.
        if let [only] = values.as_slice() {
            push_item(html, name, std::slice::from_ref(only), false)?;
        }
    }
    html.push_str("</dl>\n");
    Ok(())
}

/// A value without digits that say nothing; the table of all fields has them.
fn rounded(value: &serde_json::Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() => Unit::Number.show(number),
        _ => cell(value),
    }
}

fn push_item(html: &mut String, name: &str, values: &[String], is_code: bool) -> anyhow::Result<()> {
    if values.is_empty() && !is_code {
        return Ok(());
    }
    write!(html, "<div><dt>{}</dt>", escape(name))?;
    for value in values {
        match is_code {
            true => write!(html, "<dd><code>{}</code></dd>", escape(value))?,
            false => write!(html, "<dd>{}</dd>", escape(value))?,
        }
    }
    if values.is_empty() {
        html.push_str("<dd>not in the file</dd>");
    }
    html.push_str("</div>\n");
    Ok(())
}

/// The first and the last of dates.
fn span(mut dates: Vec<String>) -> Vec<String> {
    dates.sort();
    match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => vec![format!("{first} to {last}")],
        _ => dates,
    }
}

fn machine(row: &Record) -> Option<String> {
    let field = |name: &str| row.text(&format!("machine.{name}")).map(str::to_owned);
    let number = |name: &str| row.number(&format!("machine.{name}"));
    let of_row = || (field("cpu"), number("cores"), number("memory_bytes"), field("kernel"));
    let (cpu, cores, memory, kernel) = match row.made() {
        Some(made) => {
            let machine = made.machine.clone();
            let numbers =
                (machine.cores.map(|cores| cores as f64), machine.memory_bytes.map(|bytes| bytes as f64));
            (machine.cpu, numbers.0, numbers.1, machine.kernel)
        }
        None => of_row(),
    };
    let parts = [
        cpu,
        cores.map(|cores| format!("{cores} threads at once")),
        memory.map(|bytes| human_bytes(bytes as u64)),
        kernel.map(|kernel| format!("Linux {kernel}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn commit(row: &Record) -> Option<String> {
    let of_row = || row.text("commit").map(str::to_owned);
    row.made().and_then(|made| made.commit.clone()).or_else(of_row)
}

fn build(row: &Record) -> Option<String> {
    let Some(made) = row.made() else {
        return row.text("version").map(|version| format!("fpcache {version}"));
    };
    let rustc = made.rustc.as_ref().map(|rustc| format!(", {rustc}")).unwrap_or_default();
    Some(format!("fpcache {}, {}{rustc}", made.version, made.build))
}

fn push_figure(html: &mut String, id: &str, figure: &Figure, commands: &[String]) -> anyhow::Result<()> {
    writeln!(
        html,
        "<figure aria-labelledby=\"{id}\">\n<figcaption id=\"{id}\">{}</figcaption>",
        escape(&figure.title)
    )?;
    push_legend(html, &figure.body)?;
    html.push_str(&draw::figure(&figure.body, &escape(&figure.in_words()))?);
    html.push_str("<details>\n<summary>Numbers and command</summary>\n");
    for command in commands {
        writeln!(html, "<p class=\"command\"><code>{}</code></p>", escape(command))?;
    }
    let (head, lines) = figure.body.table();
    push_table(html, &format!("Numbers of the figure: {}", figure.title), &head, &lines)?;
    html.push_str("</details>\n</figure>\n");
    Ok(())
}

fn push_legend(html: &mut String, body: &Body) -> anyhow::Result<()> {
    let (labels, are_lines): (Vec<&str>, bool) = match body {
        Body::Lines { series, .. } => (
            series.iter().map(|line| line.label.as_str()).collect(),
            series.iter().any(|line| line.points.len() > 1),
        ),
        Body::Bars { kinds, .. } if kinds.len() > 1 => (kinds.iter().map(String::as_str).collect(), false),
        Body::Bars { .. } => return Ok(()),
    };
    html.push_str("<ul class=\"legend\">\n");
    for (number, label) in labels.into_iter().enumerate() {
        writeln!(html, "<li>{}{}</li>", draw::key(number, are_lines)?.trim_end(), escape(label))?;
    }
    html.push_str("</ul>\n");
    Ok(())
}

/// A table in a box of its own, which can be reached and moved by the keyboard.
fn push_table(html: &mut String, name: &str, head: &[String], lines: &[Vec<String>]) -> anyhow::Result<()> {
    write!(
        html,
        "<div class=\"box\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n<table>\n<thead><tr>",
        escape(name)
    )?;
    for (at, cell) in head.iter().enumerate() {
        match at {
            0 => write!(html, "<td>{}</td>", escape(cell))?,
            _ => write!(html, "<th scope=\"col\">{}</th>", escape(cell))?,
        }
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for line in lines {
        html.push_str("<tr>");
        for (at, cell) in line.iter().enumerate() {
            match at {
                0 => write!(html, "<th scope=\"row\">{}</th>", escape(cell))?,
                _ => write!(html, "<td>{}</td>", escape(cell))?,
            }
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    Ok(())
}

/// What rows say in sentences: why there are no figures, or what binds.
fn push_notes(html: &mut String, rows: &[Record]) -> anyhow::Result<()> {
    let of = |row: &Record| {
        let why =
            row.text("not_measured").map(|why| format!("{}: {why}", row.text("system").unwrap_or_default()));
        let binds = row.text("note").filter(|note| !note.is_empty());
        let binds = binds.map(|note| {
            let part = |field: &str| row.text(field).unwrap_or_default().to_owned();
            format!("{}, {} over {}: {note}", part("figure"), part("this"), part("that"))
        });
        why.or(binds)
    };
    let notes = distinct(rows.iter().filter_map(of));
    if notes.is_empty() {
        return Ok(());
    }
    html.push_str("<details class=\"notes\">\n<summary>What the rows say besides</summary>\n<ul>\n");
    for note in notes {
        writeln!(html, "<li>{}</li>", escape(&note))?;
    }
    html.push_str("</ul>\n</details>\n");
    Ok(())
}

/// Every field of every row as the file has it, a column for each row.
fn push_fields(html: &mut String, section: &Section) -> anyhow::Result<()> {
    let rows = &section.rows;
    let names = distinct(rows.iter().flat_map(|row| row.fields().iter().map(|(name, _)| name.clone())));
    let label = |row: &Record| (KINDS[section.kind].label)(row, rows);
    let head: Vec<String> = std::iter::once(String::new()).chain(rows.iter().map(label)).collect();
    let line = |name: &String| {
        let cells = rows.iter().map(|row| row.get(name).map_or_else(none, cell));
        std::iter::once(name.clone()).chain(cells).collect()
    };
    let lines: Vec<Vec<String>> = names.iter().map(line).collect();
    html.push_str("<details class=\"all\">\n<summary>All fields of all rows</summary>\n");
    push_table(html, "All fields of all rows", &head, &lines)?;
    html.push_str("</details>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_a_document_is_escaped() {
        assert_eq!(
            escape("<b a=\"1\" c='2'>&\u{0}\u{1b}x\ty"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{fffd}\u{fffd}x\ty"
        );
    }

    #[test]
    fn dates_become_a_span() {
        let dates = |dates: &[&str]| span(dates.iter().map(|&date| date.to_owned()).collect());
        assert_eq!(dates(&["2026-02-01", "2026-01-01", "2026-03-01"]), ["2026-01-01 to 2026-03-01"]);
        assert_eq!(dates(&["2026-02-01"]), ["2026-02-01"]);
        assert!(dates(&[]).is_empty());
    }
}
