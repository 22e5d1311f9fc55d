//! The `load` command.

use std::borrow::Borrow;

use anyhow::anyhow;
use clap::Args;
use fpcache_client::{ByteKeys, KeyKind, RecordShape, U64Keys};
use fpcache_datasets::{Bar, KeySet, write_value};

use crate::data::Data;
use crate::fill::Filling;
use crate::keys::{KeyFormat, KeyLengths, Keys};
use crate::output::{Outcome, Output};
use crate::records::{RecordSet, RecordSource, Take, check_room};
use crate::table_arguments::TableArguments;

/// Bytes of each value, if their length varies.
pub(crate) const VALUE_BYTES: u32 = 8;

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    data: Data,

    #[command(flatten)]
    filling: Filling,
}

impl Load {
    pub(crate) fn run(&self, place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.data.key_kind() {
            KeyKind::U64 => self.filling.fill::<U64Keys, _>(&self.data, place, output),
            KeyKind::Bytes => self.filling.fill::<ByteKeys, _>(&self.data, place, output),
        }
    }
}

/// A data set with values that follow from the keys' positions.
pub(crate) struct Valued<K: Keys> {
    set: K::Set,
    value_bytes: u32,
    wants_any_length: bool,
}

impl<K: Keys> RecordSource<K> for Data {
    type Records = Valued<K>;

    fn expected(&self) -> Option<u64> {
        self.count().filter(|_| KeyKind::U64.is::<K>())
    }

    fn open(&self, shape: &RecordShape, bar: &Bar) -> anyhow::Result<Valued<K>> {
        Ok(Valued {
            set: Self::open::<K>(self, bar)?,
            value_bytes: shape.value_bytes.unwrap_or(VALUE_BYTES),
            wants_any_length: self.wants_any_length(),
        })
    }
}

impl<K: Keys> RecordSet<K> for Valued<K> {
    fn name(&self) -> &str {
        self.set.name()
    }

    fn source(&self) -> &str {
        self.set.source()
    }

    fn known(&self) -> usize {
        self.set.len()
    }

    fn key(&self, i: usize) -> K::Owned {
        K::at(&self.set, i, &mut Vec::new()).to_owned()
    }

    fn place(&self, i: usize) -> String {
        format!("`{}`", K::short(self.key(i).borrow(), KeyFormat { is_hex: false }))
    }

    fn sample(&self) -> Vec<K::Owned> {
        K::sample(&self.set)
    }

    fn lengths(&self) -> KeyLengths {
        let lengths = K::lengths(&self.set);
        KeyLengths { every: lengths.every.filter(|_| !self.wants_any_length), ..lengths }
    }

    fn value_bytes(&self) -> Option<u32> {
        Some(self.value_bytes)
    }

    fn check(&mut self, shape: &RecordShape) -> anyhow::Result<()> {
        let (value_bytes, mut buffer) = (self.value_bytes as usize, Vec::new());
        let KeyLengths { every, longest, .. } = K::lengths(&self.set);
        let have_length = shape.key_bytes.is_none_or(|bytes| every == Some(bytes));
        if have_length && shape.fits(longest as usize, value_bytes) {
            // So do the others: that spares decoding every key once more.
            return Ok(());
        }
        for i in 0..self.set.len() {
            let key = K::at(&self.set, i, &mut buffer);
            check_room(K::encoded_len(key), value_bytes, shape).map_err(|error| {
                let key = K::short(key, KeyFormat { is_hex: false });
                anyhow!("key {key} of {}: {error}", self.set.name())
            })?;
        }
        Ok(())
    }

    fn each(&mut self, take: &mut Take<'_, K>) -> anyhow::Result<()> {
        let (mut value, mut buffer) = (vec![0; self.value_bytes as usize], Vec::new());
        for i in 0..self.set.len() {
            write_value(self.set.value(i), &mut value);
            take(K::at(&self.set, i, &mut buffer), &value)?;
        }
        Ok(())
    }
}
