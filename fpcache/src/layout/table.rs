//! A table's parameters, at the head of its record.
//!
//! ```text
//!   0 key space u32 · 4 fingerprint bits u32 (0: none) · 8 key bytes u32 (0: they vary) · 12 value bytes u32 (all ones: they vary)
//!  16 slot bytes u32 · 20 epsilon u32 · 24 fill, in millionths u32 · 28 max slots u16
//!  30 slots from a group to the next u8 · 31 slots of a READ of a group u8 (0 and 0: no groups)
//!  32 bytes a slot has for key and value u32 · 36 groups of a block u8
//!  37 bytes that choose between them u8 (0: plain groups, 1: seeded ones, more: pilots)
//!  38 whether all this was chosen for the table u8 · 39 the next best form of groups u8 · 40 what for: 32 bytes, see [`ChosenFor`]
//! ```

use super::{
    ChosenFor, GroupChoice, Grouping, RecordShape, SEGMENT_HEADER_BYTES, SegmentGeometry, put, u16_at, u32_at,
};
use crate::fingerprint::{FingerprintWidth, WidthChoice};
use crate::key_space::KeySpace;

const MILLION: f64 = 1e6;
/// In the place of a length that is not the table's.
const VARIES: u32 = u32::MAX;

/// The choices a table is built with.
///
/// ```
/// # use fpcache::layout::{RecordShape, TableParameters};
/// let parameters = TableParameters::default().with_shape(RecordShape::varying(200)).with_epsilon(64);
/// assert_eq!((parameters.shape.room, parameters.epsilon), (200, 64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableParameters {
    /// Width of its fingerprints.
    pub width: FingerprintWidth,
    /// Whether it stores them: see [`SegmentGeometry::stores_fingerprints`].
    pub stores_fingerprints: bool,
    /// Bytes of keys and values.
    pub shape: RecordShape,
    /// Greatest half-width of a window, in slots.
    pub epsilon: u32,
    /// Share of slots that hold a record when a segment is built, above 0 and at most 1.
    pub fill: f64,
    /// Most slots of a segment.
    pub max_slots: u16,
    /// How slots are grouped, so that one READ finds nearly every record whatever ε is; `None`: not
    /// at all.
    pub groups: Option<Grouping>,
    /// Why they are these, if they were chosen for the table.
    pub chosen_for: Option<ChosenFor>,
}

impl Default for TableParameters {
    /// Integer keys and values of eight bytes.
    fn default() -> Self {
        Self {
            width: FingerprintWidth::default(),
            stores_fingerprints: true,
            shape: RecordShape::fixed(8, 8),
            epsilon: 32,
            fill: 0.85,
            max_slots: 2048,
            groups: None,
            chosen_for: None,
        }
    }
}

/// A choice that no table can be built with.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The error bound is out of range.
    #[error("epsilon {0} is out of range: use 0 to {max}, 32 is a good start", max = TableParameters::MAX_EPSILON)]
    Epsilon(u32),
    /// The fill is out of range.
    #[error("fill {0} is out of range: use more than 0.01 and at most 1, 0.85 is a good start")]
    Fill(f64),
    /// The value size is out of range.
    #[error("values of {0} bytes do not fit a slot: use at most {max}", max = TableParameters::MAX_VALUE_BYTES)]
    ValueBytes(u32),
    /// The key size is out of range.
    #[error("keys of {0} bytes are out of range for this kind of keys: u64 keys have 8, byte strings 1 to {max}", max = TableParameters::MAX_KEY_BYTES)]
    KeyBytes(u32),
    /// A slot's room is out of range.
    #[error("slots with room for {0} bytes of key and value are out of range: use 1 to {max}", max = TableParameters::MAX_ROOM)]
    Room(u32),
    /// A segment has no slots.
    #[error("segments need at least 16 slots, not {0}")]
    MaxSlots(u16),
    /// There are no such groups.
    #[error("groups of {stride} slots, READ by {reach}, {per_block} to a block with {names} bytes, are none: a READ has a group's slots and at most as many more, with seeds those alone and with pilots one, and groups have at most 64, and blocks as many groups with a seed", stride = .0.stride, reach = .0.reach, per_block = .0.per_block, names = .0.names)]
    Groups(Grouping),
}

impl TableParameters {
    /// Greatest error bound.
    pub const MAX_EPSILON: u32 = 4096;
    /// Longest value, in bytes.
    pub const MAX_VALUE_BYTES: u32 = 64 << 10;
    /// Longest key, in bytes.
    pub const MAX_KEY_BYTES: u32 = 4096;
    /// Most bytes a slot can have for key and value.
    pub const MAX_ROOM: u32 = Self::MAX_VALUE_BYTES + Self::MAX_KEY_BYTES;

    /// Checks every choice.
    pub fn validate<K: KeySpace>(&self) -> Result<(), ParameterError> {
        if self.epsilon > Self::MAX_EPSILON {
            return Err(ParameterError::Epsilon(self.epsilon));
        }
        // What is stored counts, or the memory node would refuse what its client has let pass.
        if !(self.as_stored().fill > 0.01 && self.fill <= 1.0) {
            return Err(ParameterError::Fill(self.fill));
        }
        self.validate_shape::<K>()?;
        if self.max_slots < 16 {
            return Err(ParameterError::MaxSlots(self.max_slots));
        }
        match self.groups.filter(|groups| !groups.is_valid()) {
            Some(groups) => Err(ParameterError::Groups(groups)),
            None => Ok(()),
        }
    }

    fn validate_shape<K: KeySpace>(&self) -> Result<(), ParameterError> {
        let RecordShape { key_bytes, value_bytes, room } = self.shape;
        match (K::FIXED_BYTES, key_bytes) {
            (Some(fixed), Some(bytes)) if usize::from(bytes) == fixed => {}
            (None, None) => {}
            (None, Some(bytes)) if (1..=Self::MAX_KEY_BYTES).contains(&u32::from(bytes)) => {}
            (_, bytes) => return Err(ParameterError::KeyBytes(bytes.unwrap_or(0).into())),
        }
        if let Some(bytes) = value_bytes.filter(|bytes| *bytes > Self::MAX_VALUE_BYTES) {
            return Err(ParameterError::ValueBytes(bytes));
        }
        let least = u32::from(key_bytes.unwrap_or(1)) + value_bytes.unwrap_or(0);
        let exact = key_bytes.is_some() && value_bytes.is_some();
        if room < least || room > Self::MAX_ROOM || (exact && room != least) {
            return Err(ParameterError::Room(room));
        }
        Ok(())
    }

    /// The same as [`decode`](Self::decode) reads them from what [`encode`](Self::encode) writes:
    /// the fill in whole millionths, and of fingerprints that are not stored no width of their own.
    /// To be compared with a table's.
    #[must_use]
    pub fn as_stored(self) -> Self {
        let width = if self.stores_fingerprints { self.width } else { WidthChoice::None.of(0, 0) };
        Self { width, fill: f64::from(in_millionths(self.fill)) / MILLION, ..self }
    }

    /// The same with records of this shape.
    #[must_use]
    pub const fn with_shape(self, shape: RecordShape) -> Self {
        Self { shape, ..self }
    }

    /// The same with another error bound.
    #[must_use]
    pub const fn with_epsilon(self, epsilon: u32) -> Self {
        Self { epsilon, ..self }
    }

    /// The same with another fill.
    #[must_use]
    pub const fn with_fill(self, fill: f64) -> Self {
        Self { fill, ..self }
    }

    /// The same with fingerprints of the width that is chosen for its windows and slots, or without
    /// any.
    #[must_use]
    pub const fn with_width(self, choice: WidthChoice) -> Self {
        let width = choice.of(self.epsilon, self.geometry().slot_bytes);
        Self { width, stores_fingerprints: choice.is_stored(), ..self }
    }

    /// `fingerprints of 16 bits`, or `no fingerprints`.
    #[must_use]
    pub fn fingerprints_in_words(&self) -> String {
        match self.stores_fingerprints {
            true => format!("fingerprints of {}", self.width),
            false => "no fingerprints".to_owned(),
        }
    }

    /// Bits of a stored fingerprint, 0 if there are none.
    pub const fn fingerprint_bits(&self) -> u32 {
        if self.stores_fingerprints { self.width.bits() } else { 0 }
    }

    /// Sizes and offsets inside the table's segments.
    pub const fn geometry(&self) -> SegmentGeometry {
        SegmentGeometry {
            groups: self.groups,
            stores_fingerprints: self.stores_fingerprints,
            ..SegmentGeometry::new(self.width, self.shape)
        }
    }

    /// The same with the groups that are chosen for its slots, at [the fill](Self::FILL_OF_GROUPS)
    /// that these need; with none if the slots are too long for them.
    #[must_use]
    pub const fn with_groups(self, choice: GroupChoice) -> Self {
        match choice.grouping(self.geometry().slot_bytes) {
            None => Self { groups: None, ..self },
            groups => Self { groups, fill: Self::FILL_OF_GROUPS, ..self },
        }
    }

    /// Share of slots that hold a record after a load of records in groups: after 10 % of inserts
    /// at random, 99.5 % of the keys of fb lie in the groups that they belong to, and 98.8 % with
    /// 0.85.
    pub const FILL_OF_GROUPS: f64 = 0.80;

    /// Bytes of region that `keys` records take, to a few per cent: segments at their fill, their
    /// headers and descriptors at `keys_per_segment`.
    pub fn estimated_bytes(&self, keys: u64, keys_per_segment: f64) -> u64 {
        let of_groups = self.group_bytes_per_segment(keys_per_segment);
        let per_segment = (SEGMENT_HEADER_BYTES + 40 + 16) as f64 + of_groups;
        (keys as f64 * (self.bytes_per_slot() / self.fill + per_segment / keys_per_segment)) as u64
    }

    /// Bytes of a slot, with its fingerprint and its share of its segment's table of groups.
    pub fn bytes_per_slot(&self) -> f64 {
        let separators =
            self.groups.map_or(0.0, |groups| groups.bytes_per_block() as f64 / f64::from(groups.block()));
        let geometry = self.geometry();
        (geometry.fingerprint_bytes(1) + geometry.slot_bytes) as f64 + separators
    }

    /// Bytes that groups add to a segment with `keys_per_segment` keys, on average: the slots that
    /// make its last block a whole one, or its last group where it has no more than a block, and
    /// the head and the padding of its table.
    pub fn group_bytes_per_segment(&self, keys_per_segment: f64) -> f64 {
        const HEAD_AND_PADDING: f64 = 12.0;
        let Some(groups) = self.groups else { return 0.0 };
        let is_short = keys_per_segment / self.fill < f64::from(groups.block());
        let whole = if is_short { u16::from(groups.stride) } else { groups.block() };
        f64::from(whole.saturating_sub(1)) / 2.0 * self.bytes_per_slot() + HEAD_AND_PADDING
    }

    /// The parameters' share of a table record.
    pub fn encode<K: KeySpace>(&self, b: &mut [u8]) {
        put(b, 0, K::ID.to_le_bytes());
        put(b, 4, self.fingerprint_bits().to_le_bytes());
        put(b, 8, u32::from(self.shape.key_bytes.unwrap_or(0)).to_le_bytes());
        put(b, 12, self.shape.value_bytes.unwrap_or(VARIES).to_le_bytes());
        put(b, 16, (self.geometry().slot_bytes as u32).to_le_bytes());
        put(b, 20, self.epsilon.to_le_bytes());
        put(b, 24, in_millionths(self.fill).to_le_bytes());
        put(b, 28, self.max_slots.to_le_bytes());
        put(b, 30, self.groups.map_or([0; 2], |groups| [groups.stride, groups.reach]));
        put(b, 32, self.shape.room.to_le_bytes());
        put(b, 36, self.groups.map_or([0; 2], |groups| [groups.per_block, groups.names]));
        let mut what_for = [0; ChosenFor::BYTES];
        let other = self.chosen_for.map_or(0, |made| made.encode(&mut what_for));
        put(b, 38, [u8::from(self.chosen_for.is_some()), other]);
        put(b, 40, what_for);
    }

    /// Bytes [`encode`](Self::encode) writes.
    pub const ENCODED_BYTES: usize = 40 + ChosenFor::BYTES;

    /// Reads what [`encode`](Self::encode) wrote; the error says what about it cannot be.
    pub fn decode<K: KeySpace>(b: &[u8]) -> Result<Self, String> {
        if b.len() < Self::ENCODED_BYTES {
            return Err("it is cut short".into());
        }
        if u32_at(b, 0) != K::ID {
            return Err(format!("it is of key space {}, not {} ({})", u32_at(b, 0), K::ID, K::NAME));
        }
        let (width, stores_fingerprints) = match u32_at(b, 4) {
            0 => (WidthChoice::None.of(0, 0), false),
            bits => (FingerprintWidth::from_bits(bits).map_err(|e| e.to_string())?, true),
        };
        let fill = f64::from(u32_at(b, 24)) / MILLION;
        let key_bytes = u16::try_from(u32_at(b, 8)).map_err(|_| "its keys are too long".to_string())?;
        let shape = RecordShape {
            key_bytes: (key_bytes != 0).then_some(key_bytes),
            value_bytes: Some(u32_at(b, 12)).filter(|bytes| *bytes != VARIES),
            room: u32_at(b, 32),
        };
        let max_slots = u16_at(b, 28);
        let groups = match [b[30], b[31], b[36], b[37]] {
            [0, 0, 0, 0] => None,
            [stride, reach, per_block, names] => Some(Grouping { stride, reach, per_block, names }),
        };
        let chosen_for = match b[38] {
            0 => None,
            1 => Some(
                ChosenFor::decode(&b[40..], b[39]).ok_or_else(|| format!("no groups have form {}", b[39]))?,
            ),
            other => return Err(format!("{other} does not say whether its parameters were chosen")),
        };
        let epsilon = u32_at(b, 20);
        let parameters =
            Self { width, stores_fingerprints, shape, epsilon, fill, max_slots, groups, chosen_for };
        parameters.validate::<K>().map_err(|e| e.to_string())?;
        if u32_at(b, 16) != parameters.geometry().slot_bytes as u32 {
            return Err("its slot size contradicts its other parameters".into());
        }
        Ok(parameters)
    }
}

fn in_millionths(fill: f64) -> u32 {
    (fill * MILLION).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::{ByteKeys, U64Keys};
    use crate::layout::GroupForm;

    #[test]
    fn golden_bytes_of_parameters() {
        let chosen_for = ChosenFor {
            round_trip_ns: 2_000,
            byte_ps: 80,
            budget: None,
            growth: 100_000,
            round_trips: 1_002_000,
            bytes: 264,
            other: Some((Some(GroupForm::Seeded), 2_500)),
        };
        let parameters = TableParameters {
            groups: Some(Grouping::pilots(64, 13)),
            chosen_for: Some(chosen_for),
            ..Default::default()
        };
        let mut bytes = [0; TableParameters::ENCODED_BYTES];
        parameters.encode::<U64Keys>(&mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = "01000000100000000800000008000000180000002000000050f80c0000080101100000\
            00400d0102d007000050000000ffffffffffffffffa0860100104a0f0008010000c4090000";
        assert_eq!(hex, golden);
        assert_eq!(TableParameters::decode::<U64Keys>(&bytes), Ok(parameters));
    }

    #[test]
    fn parameters_as_they_are_stored_are_those_that_are_read() {
        let ok = TableParameters::default();
        let without = TableParameters { stores_fingerprints: false, ..ok };
        for asked in [
            ok,
            TableParameters { fill: 1.0 / 3.0, ..ok },
            TableParameters { fill: 0.999_999_9, ..ok },
            without,
            TableParameters { width: FingerprintWidth::Bits8, ..without },
        ] {
            let mut bytes = [0; TableParameters::ENCODED_BYTES];
            asked.encode::<U64Keys>(&mut bytes);
            assert_eq!(TableParameters::decode::<U64Keys>(&bytes), Ok(asked.as_stored()));
        }
    }

    #[test]
    fn a_width_is_chosen_for_windows_and_slots() {
        let table = TableParameters::default();
        assert_eq!(table.width, FingerprintWidth::Bits16);
        let narrow = TableParameters { epsilon: 8, ..table };
        assert_eq!(narrow.with_width(WidthChoice::Auto).width, FingerprintWidth::Bits8);
        assert_eq!(narrow.with_width(WidthChoice::default()), narrow);
        let long = TableParameters { shape: RecordShape::fixed(8, 1024), ..narrow };
        assert_eq!(long.with_width(WidthChoice::Auto).width, FingerprintWidth::Bits16);
    }

    #[test]
    fn tables_without_fingerprints_have_segments_of_slots_alone() {
        let with = TableParameters { groups: Some(Grouping::plain(9, 10)), ..Default::default() };
        let without = with.with_width(WidthChoice::None);
        let mut bytes = [0; TableParameters::ENCODED_BYTES];
        without.encode::<U64Keys>(&mut bytes);
        assert_eq!(u32_at(&bytes, 4), 0);
        assert_eq!(TableParameters::decode::<U64Keys>(&bytes), Ok(without));
        assert_eq!((with.fingerprint_bits(), without.fingerprint_bits()), (16, 0));
        assert_eq!(without.geometry().slots_offset(2_000), SEGMENT_HEADER_BYTES);
        let saved = with.geometry().segment_bytes(2_000) - without.geometry().segment_bytes(2_000);
        assert_eq!(saved, 4_000);
        assert!((with.bytes_per_slot() - without.bytes_per_slot() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn parameters_out_of_range_are_refused_with_their_limits() {
        let ok = TableParameters::default();
        assert_eq!(ok.validate::<U64Keys>(), Ok(()));
        let shape = |key_bytes, value_bytes, room| TableParameters {
            shape: RecordShape { key_bytes, value_bytes, room },
            ..ok
        };
        for bad in [
            TableParameters { epsilon: 4097, ..ok },
            TableParameters { fill: 0.0, ..ok },
            TableParameters { fill: f64::NAN, ..ok },
            TableParameters { fill: 1.01, ..ok },
            // Stored as 0.01.
            TableParameters { fill: 0.010_000_4, ..ok },
            TableParameters { max_slots: 0, ..ok },
            shape(Some(8), Some(1 << 20), 8),
            shape(Some(7), Some(8), 15),
            shape(None, Some(8), 16),
            shape(Some(8), Some(8), 17),
            shape(Some(8), None, 1 << 20),
        ] {
            let message = bad.validate::<U64Keys>().expect_err("out of range").to_string();
            assert!(
                message.contains("use") || message.contains("at least") || message.contains("have"),
                "{message}"
            );
        }
        assert!(shape(Some(5000), Some(8), 5008).validate::<ByteKeys>().is_err());
        assert!(shape(None, Some(8), 8).validate::<ByteKeys>().is_err(), "no room for a key");
    }
}
