//! A figure before it is drawn: its data and labels.

use fpcache_datasets::count::{human, human_bytes};

/// What numbers are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, or things per second.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Parts of 1.
    Share,
    /// One over another.
    Ratio,
    /// A share of calls `q`, held as `-log10(1 - q)`: every nine takes as much room.
    Percentile,
    /// Anything else.
    Number,
}

impl Unit {
    /// A number for people, with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count if value >= 1_000.0 => shortened(&human(value.round() as u64)),
            // Sizes of less than ten bytes per key differ after the point.
            Self::Bytes if value >= 1_024.0 => shortened(&human_bytes(value as u64)),
            Self::Bytes => format!("{} B", plain(value)),
            Self::Nanoseconds if value >= 1e6 => format!("{} ms", plain(value / 1e6)),
            Self::Nanoseconds if value >= 1e3 => format!("{} µs", plain(value / 1e3)),
            Self::Nanoseconds => format!("{} ns", plain(value)),
            Self::Share => format!("{} %", plain(100.0 * value)),
            Self::Ratio => format!("{}×", plain(value)),
            Self::Percentile => {
                // Beyond the sixth nine there is only rounding.
                let percent = 100.0 * (1.0 - 10f64.powf(-value));
                format!("{} %", trimmed(&format!("{percent:.4}")))
            }
            Self::Count | Self::Number => plain(value),
        }
    }
}

/// With as many digits after the point as say something.
fn plain(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.01 => 3,
        v if v >= 1e-6 => 7,
        v if v > 0.0 => return format!("{value:e}"),
        _ => 0,
    };
    trimmed(&format!("{value:.digits$}"))
}

fn trimmed(number: &str) -> String {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number.to_owned(),
    }
}

/// `4.00 MiB` as `4 MiB`.
fn shortened(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) => format!("{} {unit}", trimmed(number)),
        None => trimmed(text),
    }
}

/// How far apart values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// As far as their differences are large, from 0.
    FromZero,
    /// As far as their differences are large.
    Even,
    /// As far as their ratios are large.
    Factors,
    /// Evenly from 0 to 1, whatever the values.
    All,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What lies along it, with its unit where the ticks do not say it.
    pub name: String,
    /// The unit of its ticks.
    pub unit: Unit,
    /// Its steps.
    pub steps: Steps,
    /// Ticks at the values rather than at round numbers.
    pub at_values: bool,
}

impl Axis {
    /// One that begins at 0.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self { name: name.into(), unit, steps: Steps::FromZero, at_values: false }
    }

    /// Its name without what explains it.
    pub fn short(&self) -> &str {
        self.name.split([':', ',']).next().unwrap_or(&self.name)
    }

    /// With other steps.
    #[must_use]
    pub fn by(self, steps: Steps) -> Self {
        Self { steps, ..self }
    }

    /// With ticks at the values.
    #[must_use]
    pub fn ticks_at_values(self) -> Self {
        Self { at_values: true, ..self }
    }
}

/// A value and the range of the passes it is the median of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The value.
    pub value: f64,
    /// The least, and the most.
    pub range: Option<(f64, f64)>,
}

impl Reading {
    /// A value without a range.
    pub fn of(value: f64) -> Self {
        Self { value, range: None }
    }

    /// The value, and its range if there is one.
    pub fn show(&self, unit: Unit) -> String {
        match self.range {
            Some((least, most)) => {
                format!("{} ({} to {})", unit.show(self.value), unit.show(least), unit.show(most))
            }
            None => unit.show(self.value),
        }
    }
}

/// A line, or marks that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub label: String,
    /// Its points.
    pub points: Vec<(f64, Reading)>,
}

/// What a figure shows.
#[derive(Clone, Debug)]
pub enum Body {
    /// Values over numbers.
    Lines {
        /// The numbers.
        x: Axis,
        /// The values.
        y: Axis,
        /// The lines.
        series: Vec<Series>,
    },
    /// Values of things that have names.
    Bars {
        /// The values.
        axis: Axis,
        /// The values of each: one kind of value, drawn as bars, or several, drawn as marks.
        kinds: Vec<String>,
        /// The things, each with one value of each kind.
        things: Vec<(String, Vec<Option<Reading>>)>,
    },
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// The numbers.
    pub body: Body,
}

impl Figure {
    /// Values over numbers; `None` if there are none.
    pub fn lines(title: impl Into<String>, x: Axis, y: Axis, mut series: Vec<Series>) -> Option<Self> {
        series.retain(|line| !line.points.is_empty());
        series.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let body = Body::Lines { x, y, series };
        (!body.is_empty()).then(|| Self { title: title.into(), body })
    }

    /// Values of things; `None` if there are none. Things without a value are left away.
    pub fn bars(
        title: impl Into<String>,
        axis: Axis,
        kinds: &[&str],
        mut things: Vec<(String, Vec<Option<Reading>>)>,
    ) -> Option<Self> {
        things.retain(|(_, readings)| readings.iter().any(Option::is_some));
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        let body = Body::Bars { axis, kinds, things };
        (!body.is_empty()).then(|| Self { title: title.into(), body })
    }

    /// The same in words, for those who do not see it.
    pub fn in_words(&self) -> String {
        const SHOWN: usize = 12;
        let (about, parts): (String, Vec<String>) = match &self.body {
            Body::Lines { x, y, series } => {
                let line = |line: &Series| {
                    let at = |(value, reading): &(f64, Reading)| {
                        format!("{} at {}", y.unit.show(reading.value), x.unit.show(*value))
                    };
                    match (line.points.first(), line.points.last()) {
                        (Some(first), Some(last)) if line.points.len() > 1 => {
                            format!("{} from {} to {}", line.label, at(first), at(last))
                        }
                        (Some(only), _) => format!("{}: {}", line.label, at(only)),
                        _ => String::new(),
                    }
                };
                (format!("{} over {}", y.name, x.name), series.iter().map(line).collect())
            }
            Body::Bars { axis, kinds, things } => {
                let thing = |(label, readings): &(String, Vec<Option<Reading>>)| {
                    let of_kind = |(kind, reading): (&String, &Option<Reading>)| {
                        let value = axis.unit.show(reading.as_ref()?.value);
                        Some(if kinds.len() == 1 { value } else { format!("{value} {kind}") })
                    };
                    let values: Vec<String> = kinds.iter().zip(readings).filter_map(of_kind).collect();
                    format!("{label}: {}", values.join(", "))
                };
                (axis.name.clone(), things.iter().map(thing).collect())
            }
        };
        let more = match parts.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!("; {more} more in the table"),
        };
        let shown: Vec<String> = parts.into_iter().take(SHOWN).collect();
        format!("{}. {about}. {}{more}.", self.title, shown.join("; "))
    }
}

impl Series {
    /// Adds a point to the series of this name, which is the last of them if there was none.
    pub fn add(all: &mut Vec<Self>, label: &str, point: (f64, Reading)) {
        match all.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push(point),
            None => all.push(Self { label: label.to_owned(), points: vec![point] }),
        }
    }
}

impl Body {
    fn is_empty(&self) -> bool {
        match self {
            Self::Lines { series, .. } => series.is_empty(),
            Self::Bars { things, .. } => things.is_empty(),
        }
    }

    /// Head and lines of the table of its numbers.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        match self {
            Self::Lines { x, y, series } => {
                let lines = series.iter().flat_map(|line| {
                    line.points.iter().map(|(value, reading)| {
                        vec![line.label.clone(), x.unit.show(*value), reading.show(y.unit)]
                    })
                });
                (vec![String::new(), x.name.clone(), y.name.clone()], lines.collect())
            }
            Self::Bars { axis, kinds, things } => {
                let show = |reading: &Option<Reading>| {
                    reading.map_or_else(|| "–".to_owned(), |reading| reading.show(axis.unit))
                };
                let line = |(label, readings): &(String, Vec<Option<Reading>>)| {
                    std::iter::once(label.clone()).chain(readings.iter().map(show)).collect()
                };
                let head = std::iter::once(String::new()).chain(kinds.iter().cloned()).collect();
                (head, things.iter().map(line).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_their_units() {
        for (unit, value, text) in [
            (Unit::Count, 1_500_000.0, "1.5 M"),
            (Unit::Count, 32.0, "32"),
            (Unit::Bytes, 4_194_304.0, "4 MiB"),
            (Unit::Bytes, 0.0144, "0.014 B"),
            (Unit::Nanoseconds, 410.0, "410 ns"),
            (Unit::Nanoseconds, 12_345.0, "12.3 µs"),
            (Unit::Nanoseconds, 1_000_000.0, "1 ms"),
            (Unit::Share, 0.999, "99.9 %"),
            (Unit::Ratio, 1.6, "1.6×"),
            (Unit::Percentile, 3.0, "99.9 %"),
            (Unit::Percentile, -(0.5f64.log10()), "50 %"),
            (Unit::Number, 0.0, "0"),
        ] {
            assert_eq!(unit.show(value), text);
        }
    }

    #[test]
    fn figures_without_numbers_are_none() {
        let axis = || Axis::new("a", Unit::Count);
        let empty = Series { label: "x".to_owned(), points: Vec::new() };
        assert!(Figure::lines("t", axis(), axis(), vec![empty]).is_none());
        assert!(Figure::bars("t", axis(), &["a"], vec![("x".to_owned(), vec![None])]).is_none());
    }

    #[test]
    fn words_tell_what_is_shown() {
        let points = vec![(4.0, Reading::of(2_000.0)), (1.0, Reading::of(1_000.0))];
        let series = vec![Series { label: "fpcache".to_owned(), points }];
        let (x, y) = (Axis::new("keys", Unit::Count), Axis::new("lookups per second", Unit::Count));
        let words = Figure::lines("Speed", x, y, series).unwrap().in_words();
        assert_eq!(words, "Speed. lookups per second over keys. fpcache from 1 K at 1 to 2 K at 4.");
    }
}
