//! Table parameters, for `create` and `load`.

use std::str::FromStr;

use anyhow::ensure;
use clap::Args;
use fpcache_client::tuning::{Forced, Tuned};
use fpcache_client::{GroupChoice, RecordShape, TableParameters, UnknownGroupForm, WidthChoice};
use serde_json::{Value, json};

use crate::keys::{KeyLengths, Keys};
use crate::numbers::bytes;
use crate::table_arguments::TableArguments;
use crate::tuning::Tuning;

/// Default bytes of a slot for values of variable length.
const USUAL_VALUE_BYTES: u32 = 64;
/// Default bytes of a value.
const VALUE_BYTES: u32 = 8;

/// The length of all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// All have this.
    Bytes(u32),
    /// Each has its own.
    Vary,
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "vary" => Ok(Self::Vary),
            _ => bytes(text).map(Self::Bytes).map_err(|why| format!("{why}; or vary")),
        }
    }
}

/// The length of all values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueLength {
    /// All have this.
    Bytes(u32),
    /// Each has its own; those of up to this many bytes are stored in slots.
    Vary(u32),
}

impl FromStr for ValueLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| bytes(text).map_err(|why| format!("{why}; or vary, or vary:BYTES as in vary:200"));
        match text.strip_prefix("vary") {
            Some("") => Ok(Self::Vary(USUAL_VALUE_BYTES)),
            Some(rest) => number(rest.strip_prefix(':').unwrap_or(rest)).map(Self::Vary),
            None => number(text).map(Self::Bytes),
        }
    }
}

/// The form of groups that records are stored in, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupsArgument(Option<GroupChoice>);

impl FromStr for GroupsArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            choice => choice
                .parse()
                .map(|choice| Self(Some(choice)))
                .map_err(|why: UnknownGroupForm| format!("{why}, or none")),
        }
    }
}

/// Whether this is a value of `--groups`.
pub(crate) fn is_form_of_groups(text: &str) -> bool {
    text.parse::<GroupsArgument>().is_ok()
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Parameters {
    /// Half-width of the models' windows, in slots [default: 32]
    #[arg(long, value_name = "SLOTS")]
    epsilon: Option<u32>,

    /// Bits of a fingerprint: 8, 16, 32 or 64, or auto for the fewest with which lookups rarely
    /// read the wrong record; none leaves them out, for tables that are looked up by --groups over
    /// a network: what is not found there has all slots of its window READ [default: 16]
    #[arg(long, value_name = "BITS|auto|none")]
    fingerprint_bits: Option<WidthChoice>,

    /// Share of slots that hold a record, more than 0.01 and at most 1 [default: 0.85, with
    /// --groups 0.8]
    #[arg(long, value_name = "SHARE")]
    fill: Option<f64>,

    /// Bytes of every value, or vary:INLINE for values of up to 16 MiB. Values of up to INLINE
    /// bytes are stored in slots of that size, next to their keys; longer ones are stored elsewhere
    /// and cost one more round trip. vary means vary:64 [default: 8; for import vary, or 8 with
    /// --format int]
    #[arg(long, value_name = "BYTES|vary:INLINE")]
    value_bytes: Option<ValueLength>,

    /// Bytes of a slot for key and value together, if the length of either varies [default: those
    /// of the longest record if known; else 64 for keys of variable length, INLINE for values]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    slot_bytes: Option<u32>,

    /// Store records in groups. With 0.25 to 0.35 bytes per key on the compute node, nearly every
    /// lookup is then one READ. Over shared memory it saves nothing. For slots of up to 64 bytes
    /// plain groups, or --groups=seeded, which takes half of the bytes, but after inserts more
    /// lookups need a second READ; for longer slots pilots, which lead to the very record. auto is
    /// plain or pilots. pilots:16 has blocks of 16 slots instead of 32: scans READ fewer slots
    /// beyond what they want, for 0.08 bytes more per key [possible values: auto, plain, seeded,
    /// pilots, pilots:SLOTS, none]
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto"
    )]
    groups: Option<GroupsArgument>,
}

impl Parameters {
    /// Those that were given and are not what a table has.
    pub(crate) fn other_than(&self, table: &TableParameters) -> Vec<&'static str> {
        let value_bytes = self.value_bytes.map(|length| match length {
            ValueLength::Bytes(bytes) => Some(bytes),
            ValueLength::Vary(_) => None,
        });
        let width = self.fingerprint_bits.map(|choice| table.with_width(choice).fingerprint_bits());
        let groups = self.groups.map(|GroupsArgument(choice)| {
            choice
                .map_or(TableParameters { groups: None, ..*table }, |choice| table.with_groups(choice))
                .groups
        });
        // A table has its fill rounded.
        let is_other = |fill: f64| (fill - table.fill).abs() > 1e-4;
        let others = [
            ("--epsilon", self.epsilon.is_some_and(|epsilon| epsilon != table.epsilon)),
            ("--fingerprint-bits", width.is_some_and(|bits| bits != table.fingerprint_bits())),
            ("--fill", self.fill.is_some_and(is_other)),
            ("--value-bytes", value_bytes.is_some_and(|bytes| bytes != table.shape.value_bytes)),
            ("--slot-bytes", self.slot_bytes.is_some_and(|bytes| bytes != table.shape.room)),
            ("--groups", groups.is_some_and(|groups| groups != table.groups)),
        ];
        others.into_iter().filter_map(|(option, is_other)| is_other.then_some(option)).collect()
    }

    /// Whether the bytes of a slot were given, and not left to what the records need.
    pub(crate) fn has_slot_bytes(&self) -> bool {
        self.slot_bytes.is_some()
    }

    /// The options with which `import` creates a table of these parameters, where they are not the
    /// defaults, which for values differ if they are written as integers.
    pub(crate) fn options_for(table: &TableParameters, are_integers: bool) -> Vec<String> {
        let RecordShape { key_bytes, value_bytes, room } = table.shape;
        let default = TableParameters::default().as_stored();
        let fill = if table.groups.is_some() { TableParameters::FILL_OF_GROUPS } else { default.fill };
        // The default for keys that vary depends on the longest one in the file.
        let room_by_default =
            key_bytes.map(|bytes| u32::from(bytes) + value_bytes.unwrap_or(USUAL_VALUE_BYTES));
        let bits = match table.fingerprint_bits() {
            0 => "none".to_owned(),
            bits => bits.to_string(),
        };
        let groups = table.groups.map(|groups| format!("--groups={}", GroupChoice::from(groups)));
        let other = |is_other: bool, option: String| is_other.then_some(option);
        let options = [
            value_bytes.map(|bytes| format!("--value-bytes {bytes}")),
            other(value_bytes.is_none() && are_integers, "--value-bytes vary".to_owned()),
            other(room_by_default != Some(room), format!("--slot-bytes {room}")),
            other(table.epsilon != default.epsilon, format!("--epsilon {}", table.epsilon)),
            other((table.fill - fill).abs() > 1e-6, format!("--fill {}", table.fill)),
            other(
                table.fingerprint_bits() != default.fingerprint_bits(),
                format!("--fingerprint-bits {bits}"),
            ),
            groups,
        ];
        options.into_iter().flatten().collect()
    }

    /// The same for values of any length, unless theirs is given or they are integers.
    pub(crate) fn of_any_values(self, are_integers: bool) -> Self {
        let value_bytes =
            if are_integers { ValueLength::Bytes(VALUE_BYTES) } else { ValueLength::Vary(USUAL_VALUE_BYTES) };
        Self { value_bytes: self.value_bytes.or(Some(value_bytes)), ..self }
    }

    /// The given ones and defaults for the others, for keys of these lengths.
    pub(crate) fn checked<K: Keys>(&self, keys: KeyLengths) -> anyhow::Result<TableParameters> {
        let default = TableParameters::default();
        let parameters = TableParameters {
            shape: self.shape(keys)?,
            epsilon: self.epsilon.unwrap_or(default.epsilon),
            fill: self.fill.unwrap_or(default.fill),
            ..default
        };
        parameters.validate::<K>()?;
        let parameters = parameters.with_width(self.fingerprint_bits.unwrap_or_default());
        let choice = self.groups.and_then(|groups| groups.0);
        let parameters = choice.map_or(Ok(parameters), |choice| grouped(parameters, choice))?;
        Ok(TableParameters { fill: self.fill.unwrap_or(parameters.fill), ..parameters })
    }

    /// The same, with those that were not given chosen to suit `known` ascending keys if that is
    /// [wanted](Tuning::is_wanted), and with why.
    pub(crate) fn tuned<K: Keys>(
        &self,
        keys: KeyLengths,
        tuning: &Tuning,
        place: &TableArguments,
        known: usize,
        key: impl Fn(usize) -> K::Owned,
    ) -> anyhow::Result<(TableParameters, Option<Tuned>)> {
        let parameters = self.checked::<K>(keys)?;
        let forced = Forced {
            groups: self.groups.map(|groups| groups.0),
            epsilon: self.epsilon,
            fill: self.fill,
            width: self.fingerprint_bits,
        };
        let tuned = tuning.of::<K>(place, (known, key), parameters.shape, &forced)?;
        Ok((tuned.as_ref().map_or(parameters, |tuned| tuned.chosen().parameters), tuned))
    }

    fn shape(&self, keys: KeyLengths) -> anyhow::Result<RecordShape> {
        let value_bytes = match self.value_bytes {
            None => Some(VALUE_BYTES),
            Some(ValueLength::Bytes(bytes)) => Some(bytes),
            Some(ValueLength::Vary(_)) => None,
        };
        let inline = match self.value_bytes {
            None => VALUE_BYTES,
            Some(ValueLength::Bytes(bytes) | ValueLength::Vary(bytes)) => bytes,
        };
        let usual = keys.usual.saturating_add(inline);
        let least = keys.longest.saturating_add(value_bytes.unwrap_or(0));
        let room = self.slot_bytes.unwrap_or(usual);
        if keys.every.is_some() && value_bytes.is_some() {
            ensure!(
                room == usual,
                "keys and values of fixed lengths take {usual} bytes of a slot: omit --slot-bytes, or \
                 let one of them vary"
            );
        }
        ensure!(
            room >= least,
            "--slot-bytes {room} is too small for keys of {} bytes and their values: use {least} or more",
            keys.longest
        );
        Ok(RecordShape { key_bytes: keys.every, value_bytes, room })
    }
}

/// A document that says a table's parameters, and `more`, which is an object.
pub(crate) fn document<K: Keys>(parameters: &TableParameters, more: Value) -> Value {
    let mut document = json!({
        "key_kind": K::NAME,
        "key_bytes": parameters.shape.key_bytes,
        "value_bytes": parameters.shape.value_bytes,
        "slot_bytes": parameters.shape.room,
        "fingerprint_bits": parameters.fingerprint_bits(),
        "epsilon": parameters.epsilon,
        "fill": parameters.fill,
        "groups": parameters.groups.map(|groups| [groups.stride, groups.reach]),
        "group_form": parameters.groups.map(|groups| GroupChoice::from(groups).to_string()),
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut document, more) {
        all.extend(more);
    }
    document
}

/// The same parameters with groups of the form that is chosen.
fn grouped(parameters: TableParameters, choice: GroupChoice) -> anyhow::Result<TableParameters> {
    let grouped = parameters.with_groups(choice);
    ensure!(
        grouped.groups.is_some(),
        "--groups={choice} is for slots of up to 64 bytes, but these have {}: choose --groups=pilots",
        parameters.geometry().slot_bytes
    );
    Ok(grouped)
}

#[cfg(test)]
mod tests {
    use fpcache_client::{ByteKeys, GroupForm, U64Keys};

    use super::*;

    #[test]
    fn the_help_names_the_defaults_there_are() {
        let TableParameters { width, shape, epsilon, fill, .. } = TableParameters::default();
        assert_eq!((width.bits(), shape, epsilon, fill), (16, RecordShape::fixed(8, VALUE_BYTES), 32, 0.85));
        assert_eq!(TableParameters::FILL_OF_GROUPS, 0.8);
    }

    fn shape(
        value_bytes: Option<ValueLength>,
        slot_bytes: Option<u32>,
        keys: KeyLengths,
    ) -> Result<RecordShape, String> {
        let none = Parameters {
            epsilon: None,
            fingerprint_bits: None,
            fill: None,
            value_bytes: None,
            slot_bytes: None,
            groups: None,
        };
        Parameters { value_bytes, slot_bytes, ..none }.shape(keys).map_err(|e| e.to_string())
    }

    #[test]
    fn slots_have_room_for_what_is_known_and_something_for_what_is_not() {
        let vary = Some(ValueLength::Vary(USUAL_VALUE_BYTES));
        let of = |key_bytes, value_bytes, room| Ok(RecordShape { key_bytes, value_bytes, room });
        assert_eq!(shape(None, None, U64Keys::LENGTHS), of(Some(8), Some(8), 16));
        assert_eq!(shape(vary, None, U64Keys::LENGTHS), of(Some(8), None, 72));
        assert_eq!(shape(None, None, ByteKeys::LENGTHS), of(None, Some(8), 72));
        assert_eq!(shape(vary, None, ByteKeys::LENGTHS), of(None, None, 128));
        assert_eq!(shape(vary, Some(20), ByteKeys::LENGTHS), of(None, None, 20));
        assert_eq!(shape(Some(ValueLength::Vary(200)), None, U64Keys::LENGTHS), of(Some(8), None, 208));
        assert_eq!(
            shape(Some(ValueLength::Bytes(0)), None, KeyLengths::fixed(23)),
            of(Some(23), Some(0), 23)
        );
        let words = KeyLengths { every: None, longest: 30, usual: 30 };
        assert_eq!(shape(None, None, words), of(None, Some(8), 38));
        assert_eq!(shape(None, Some(100), words), of(None, Some(8), 100));
    }

    #[test]
    fn slots_that_contradict_the_records_are_refused_with_what_would_do() {
        let words = KeyLengths { every: None, longest: 30, usual: 30 };
        let error = shape(None, Some(37), words).expect_err("too small");
        assert!(error.contains("30 bytes") && error.contains("38 or more"), "{error}");
        let error = shape(None, Some(100), U64Keys::LENGTHS).expect_err("nothing varies");
        assert!(error.contains("16 bytes") && error.contains("--slot-bytes"), "{error}");
        assert!("eight".parse::<Length>().is_err_and(|e| e.contains("vary")));
    }

    #[test]
    fn groups_are_named_by_their_form_or_none() {
        let parse = str::parse::<GroupsArgument>;
        assert_eq!(parse("none"), Ok(GroupsArgument(None)));
        assert_eq!(parse("auto"), Ok(GroupsArgument(Some(GroupChoice::Auto))));
        for form in GroupForm::ALL {
            assert_eq!(parse(form.name()), Ok(GroupsArgument(Some(GroupChoice::Fixed(form)))));
        }
        assert!(
            parse("line")
                .is_err_and(|why| why.contains("pilots:SLOTS with 8 to 64 slots to a block, or none"))
        );
    }

    #[test]
    fn values_that_vary_may_say_how_many_bytes_lie_in_slots() {
        let parse = str::parse::<ValueLength>;
        assert_eq!(parse("12"), Ok(ValueLength::Bytes(12)));
        assert_eq!(parse("1MiB"), Ok(ValueLength::Bytes(1 << 20)));
        assert_eq!(parse("vary:1KiB"), Ok(ValueLength::Vary(1024)));
        assert_eq!(parse("vary"), Ok(ValueLength::Vary(64)));
        assert_eq!(parse("vary:200"), Ok(ValueLength::Vary(200)));
        for text in ["", "eight", "vary:", "vary:many", "varying", "-1"] {
            assert!(parse(text).is_err_and(|e| e.contains("vary:200")), "{text}");
        }
    }
}
