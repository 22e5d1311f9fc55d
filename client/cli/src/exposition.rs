//! The text format in which Prometheus reads metrics.

use std::fmt::{self, Write};

/// How a metric's value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// It goes up and down.
    Gauge,
    /// It only grows, except that it begins anew with the process that counts.
    Counter,
}

impl MetricKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// A value, which is told exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Whole(u64),
    Seconds(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Seconds(number) => number.fmt(f),
        }
    }
}

/// A metric and its values, each with its labels.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) help: &'static str,
    pub(crate) kind: MetricKind,
    pub(crate) samples: Vec<(Vec<(&'static str, String)>, Number)>,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, help, kind, samples } = self;
        writeln!(f, "# HELP {name} {}", escaped(help, false))?;
        writeln!(f, "# TYPE {name} {}", kind.name())?;
        for (labels, number) in samples {
            f.write_str(name)?;
            for (i, (label, value)) in labels.iter().enumerate() {
                let before = if i == 0 { '{' } else { ',' };
                write!(f, "{before}{label}=\"{}\"", escaped(value, true))?;
            }
            if !labels.is_empty() {
                f.write_char('}')?;
            }
            writeln!(f, " {number}")?;
        }
        Ok(())
    }
}

/// With backslashes before what would end the text: newlines, backslashes, and quotes in labels.
fn escaped(text: &str, is_label: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_help_are_escaped() {
        let labels = vec![("table", "a\"b\\c\nd".to_owned()), ("kind", "u64".to_owned())];
        let metric = Metric {
            name: "fpcache_keys".into(),
            help: "Of one\\two\n\"three\".",
            kind: MetricKind::Gauge,
            samples: vec![(labels, Number::Whole(u64::MAX)), (Vec::new(), Number::Seconds(0.25))],
        };
        assert_eq!(
            metric.to_string(),
            "# HELP fpcache_keys Of one\\\\two\\n\"three\".\n# TYPE fpcache_keys gauge\n\
             fpcache_keys{table=\"a\\\"b\\\\c\\nd\",kind=\"u64\"} 18446744073709551615\nfpcache_keys 0.25\n"
        );
    }
}
