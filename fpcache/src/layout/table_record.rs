//! A table's record in the superblock: its parameters, and where its directory lies.
//!
//! ```text
//!   0 parameters: 72 bytes, see [`TableParameters`]
//!  72 keys u64 · 80 segments u64 · 88 directory root offset u64 · 96 directory pages u64 · 104 checksum of the root u64
//! 112 end of used bytes u64 · 120 records in the slot their prediction names u64 · 128 checkpoint u64
//! 136 change log offset u64 · 144 records of the change log u64 · 152 bytes of the root u64
//! 160 encoders offset u64 · 168 bytes of the encoders u64 · 176 checksum of the encoders u64 · 184–191 zero
//! ```

use super::{Corrupt, TableParameters, put, u64_at};
use crate::key_space::KeySpace;

/// Bytes of a table record.
pub const TABLE_RECORD_BYTES: usize = 192;

/// A table's record in the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TableRecord {
    /// The parameters that the table was built with.
    pub parameters: TableParameters,
    /// Live records.
    pub keys: u64,
    /// Segments.
    pub segments: u64,
    /// Offset of the directory's root.
    pub root: u64,
    /// Pages of the directory, which is the root's number of entries.
    pub pages: u64,
    /// XXH3-64 of the root's bytes, seeded with the checkpoint.
    pub root_checksum: u64,
    /// End of the region's used bytes.
    pub used: u64,
    /// Records that lay in the slot their prediction names when their segments were built.
    pub at_home: u64,
    /// How many records of the change log the directory, and the counts above, contain.
    pub checkpoint: u64,
    /// Offset of the change log.
    pub log: u64,
    /// Records the change log has room for: a power of two.
    pub log_records: u64,
    /// Bytes of the root.
    pub root_bytes: u64,
    /// Offset of what the segments share to compute coordinates.
    pub encoders: u64,
    /// Its bytes; 0 if they share nothing.
    pub encoders_bytes: u64,
    /// XXH3-64 of these bytes.
    pub encoders_checksum: u64,
}

impl TableRecord {
    /// The record's bytes.
    pub fn encode<K: KeySpace>(&self) -> [u8; TABLE_RECORD_BYTES] {
        let mut b = [0; TABLE_RECORD_BYTES];
        self.parameters.encode::<K>(&mut b);
        let mut record = *self;
        for (i, word) in record.words().into_iter().enumerate() {
            put(&mut b, TableParameters::ENCODED_BYTES + 8 * i, word.to_le_bytes());
        }
        b
    }

    /// Reads the record found at `offset` of the region.
    pub fn decode<K: KeySpace>(b: &[u8], offset: u64) -> Result<Self, Corrupt> {
        let parameters =
            TableParameters::decode::<K>(b).map_err(|why| Corrupt::new("table record", offset, why))?;
        let mut record = Self { parameters, ..Self::default() };
        for (i, word) in record.words().into_iter().enumerate() {
            *word = u64_at(b, TableParameters::ENCODED_BYTES + 8 * i);
        }
        Ok(record)
    }

    /// The words after the parameters, in their order.
    fn words(&mut self) -> [&mut u64; 14] {
        [
            &mut self.keys,
            &mut self.segments,
            &mut self.root,
            &mut self.pages,
            &mut self.root_checksum,
            &mut self.used,
            &mut self.at_home,
            &mut self.checkpoint,
            &mut self.log,
            &mut self.log_records,
            &mut self.root_bytes,
            &mut self.encoders,
            &mut self.encoders_bytes,
            &mut self.encoders_checksum,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintWidth;
    use crate::key_space::{ByteKeys, U64Keys};
    use crate::layout::{ChosenFor, GroupForm, RecordShape};

    fn record(parameters: TableParameters) -> TableRecord {
        TableRecord {
            parameters,
            keys: 10,
            segments: 2,
            root: 8192,
            pages: 1,
            root_checksum: 77,
            used: 12288,
            at_home: 5,
            checkpoint: 6,
            log: 4096,
            log_records: 64,
            root_bytes: 16,
            encoders: 16384,
            encoders_bytes: 99,
            encoders_checksum: 3,
        }
    }

    #[test]
    fn records_round_trip_and_contradictions_are_refused() {
        let form_and_time = [None, Some((None, 1)), Some((Some(GroupForm::Pilots), 2_500))];
        let chosen = |other| ChosenFor {
            round_trip_ns: 2_000,
            byte_ps: 80,
            budget: Some(4 << 20),
            growth: 100_000,
            round_trips: 1_002_000,
            bytes: 264,
            other,
        };
        let width = FingerprintWidth::Bits8;
        for chosen_for in form_and_time.map(|other| Some(chosen(other))) {
            let record = record(TableParameters { width, chosen_for, ..Default::default() });
            assert_eq!(TableRecord::decode::<U64Keys>(&record.encode::<U64Keys>(), 64), Ok(record));
        }
        let record = record(TableParameters { width, ..Default::default() });
        let bytes = record.encode::<U64Keys>();
        assert_eq!(TableRecord::decode::<U64Keys>(&bytes, 64), Ok(record));
        for at in [2, 6, 10, 18, 26, 34, 38] {
            let mut bad = bytes;
            bad[at] = 0xff;
            assert!(TableRecord::decode::<U64Keys>(&bad, 64).is_err(), "byte {at}");
        }
        assert!(TableRecord::decode::<U64Keys>(&[], 64).is_err());
        assert!(TableRecord::decode::<ByteKeys>(&bytes, 64).is_err(), "another key space");
    }

    #[test]
    fn lengths_that_vary_round_trip() {
        for (key_bytes, value_bytes) in [(None, Some(8)), (Some(128), None), (None, None), (Some(3), Some(4))]
        {
            let room = if key_bytes == Some(3) { 7 } else { 200 };
            let shape = RecordShape { key_bytes, value_bytes, room };
            let record = record(TableParameters { shape, ..Default::default() });
            let bytes = record.encode::<ByteKeys>();
            assert_eq!(TableRecord::decode::<ByteKeys>(&bytes, 64), Ok(record));
        }
    }
}
