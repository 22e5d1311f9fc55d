//! Rows of any command, as read from files.

use serde_json::Value;

use crate::fields::Fields;
use crate::made::Made;

/// Longer lists are drawn, not written out.
const LISTED: usize = 16;

/// A row: names and values in the order of the file, those of inner objects and short lists as
/// `machine.cpu` and `runs.0`.
#[derive(Clone, Debug, Default)]
pub struct Record {
    fields: Vec<(String, Value)>,
    made: Option<Made>,
}

impl Record {
    /// Of a row's fields.
    pub fn new(Fields(row): Fields) -> Self {
        let mut record = Self::default();
        for (name, value) in row {
            match name.as_str() {
                // What it holds beside what a command says of itself is another's, and stays away.
                "made" => record.made = serde_json::from_value(value).ok(),
                _ => record.put(name, value),
            }
        }
        record
    }

    /// The same with another field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    fn put(&mut self, name: String, value: Value) {
        match value {
            Value::Object(inner) => {
                inner.into_iter().for_each(|(field, value)| self.put(format!("{name}.{field}"), value));
            }
            Value::Array(list) if list.len() <= LISTED => {
                list.into_iter().enumerate().for_each(|(at, value)| self.put(format!("{name}.{at}"), value));
            }
            value => self.fields.push((name, value)),
        }
    }

    /// What made it, where the file says so.
    pub fn made(&self) -> Option<&Made> {
        self.made.as_ref()
    }

    /// All fields.
    pub fn fields(&self) -> &[(String, Value)] {
        &self.fields
    }

    /// A field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// A finite number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64().filter(|number| number.is_finite())
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Objects of a list, in their order.
    pub fn list(&self, name: &str) -> Vec<Self> {
        let short = (0..LISTED).filter_map(|at| self.below(&format!("{name}.{at}")));
        let long = self.get(name).and_then(Value::as_array).into_iter().flatten();
        let of_object =
            |value: &Value| Some(Self::new(Fields(value.as_object()?.clone().into_iter().collect())));
        short.chain(long.filter_map(of_object)).collect()
    }

    /// An inner object.
    pub fn below(&self, name: &str) -> Option<Self> {
        let inner = |(field, value): &(String, Value)| {
            Some((field.strip_prefix(name)?.strip_prefix('.')?.to_owned(), value.clone()))
        };
        let fields: Vec<_> = self.fields.iter().filter_map(inner).collect();
        (!fields.is_empty()).then_some(Self { fields, made: None })
    }
}

/// A value as a cell of a table has it: numbers as the file has them.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("{} entries", list.len()),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: &str) -> Record {
        Record::new(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn inner_fields_have_the_names_of_those_around_them() {
        let record = record(r#"{"z": 1.5, "a": {"b": "x"}, "runs": [{"n": 2}, null, {"n": 3}], "made": 7}"#);
        let names: Vec<&str> = record.fields().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["z", "a.b", "runs.0.n", "runs.1", "runs.2.n"]);
        assert_eq!(
            (record.number("z"), record.text("a.b"), record.number("a.b")),
            (Some(1.5), Some("x"), None)
        );
        assert!(record.made().is_none());
    }

    #[test]
    fn lists_are_read_whether_they_are_short_or_long() {
        for count in [1, LISTED, LISTED + 1, 100] {
            let points: Vec<String> = (0..count).map(|at| format!(r#"{{"at":{at}}}"#)).collect();
            let record = record(&format!(r#"{{"timeline": [{}]}}"#, points.join(",")));
            let read: Vec<f64> =
                record.list("timeline").iter().filter_map(|point| point.number("at")).collect();
            assert_eq!(read, (0..count).map(|at| at as f64).collect::<Vec<_>>());
        }
    }
}
