//! `create`

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use fpcache_client::{Client, ErrorKind, KeyKind};
use serde_json::json;

use crate::Outcome;
use crate::keys::{KeyLengths, Keys};
use crate::output::Output;
use crate::parameters::{Length, Parameters};

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// What keys are: u64, or bytes for byte strings of 1 B to 4 KiB; the memory node was started for one of them [default:
    /// u64; bytes with --key-bytes]
    #[arg(long, value_enum, value_name = "KIND")]
    keys: Option<KeysArgument>,

    /// Bytes of every key, or vary: byte strings whose length is the table's take no field for it [default: vary]
    #[arg(long, value_name = "BYTES")]
    key_bytes: Option<Length>,

    #[command(flatten)]
    parameters: Parameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeysArgument {
    /// Integers
    U64,
    /// Byte strings
    Bytes,
}

impl Create {
    /// What keys the table is to have.
    pub(crate) fn key_kind(&self) -> KeyKind {
        match (self.keys, self.key_bytes) {
            (Some(KeysArgument::U64), _) | (None, None) => KeyKind::U64,
            (Some(KeysArgument::Bytes), _) | (None, Some(_)) => KeyKind::Bytes,
        }
    }

    pub(crate) fn run<K: Keys>(&self, client: &Client<K>, output: &mut Output) -> anyhow::Result<Outcome> {
        let lengths = match self.key_bytes {
            Some(Length::Bytes(bytes)) => KeyLengths::fixed(u16::try_from(bytes).unwrap_or(u16::MAX)),
            Some(Length::Vary) => KeyLengths { every: None, ..K::LENGTHS },
            None => K::LENGTHS,
        };
        let parameters = self.parameters.checked::<K>(lengths)?;
        client.create(parameters).map_err(|error| match self.keys {
            // Which keys an empty memory node is for it tells only by refusing others.
            None if error.kind() == ErrorKind::Invalid => {
                anyhow!("{error}; or say --keys here, this was {}", K::NAME)
            }
            _ => error.into(),
        })?;
        if output.is_json() {
            output.document(&json!({
                "url": client.name(),
                "key_kind": K::NAME,
                "key_bytes": parameters.shape.key_bytes,
                "value_bytes": parameters.shape.value_bytes,
                "slot_bytes": parameters.shape.room,
                "fingerprint_bits": parameters.width.bits(),
                "epsilon": parameters.epsilon,
                "fill": parameters.fill,
            }))?;
        }
        Ok(Outcome::Done)
    }
}
