//! What a table is made of: what `create` and `load` share.

use clap::Args;
use fpcache_client::{FingerprintWidth, TableParameters};

#[derive(Debug, Args)]
pub(crate) struct Parameters {
    /// Greatest half-width of the models' windows, in slots [default: 32]
    #[arg(long, value_name = "SLOTS")]
    epsilon: Option<u32>,

    /// Bits of a fingerprint: 8, 16, 32 or 64 [default: 64]
    #[arg(long, value_name = "BITS", value_parser = width)]
    fingerprint_bits: Option<FingerprintWidth>,

    /// Share of slots that hold a record, above 0 and at most 1 [default: 0.85]
    #[arg(long, value_name = "SHARE")]
    fill: Option<f64>,

    /// Bytes of a value [default: 8]
    #[arg(long, value_name = "BYTES")]
    value_bytes: Option<u32>,
}

fn width(text: &str) -> Result<FingerprintWidth, String> {
    let unknown = || format!("`{text}` is none of 8, 16, 32 and 64");
    let bits = text.parse().map_err(|_| unknown())?;
    FingerprintWidth::from_bits(bits).map_err(|_| unknown())
}

impl Parameters {
    /// Whether any was given.
    pub(crate) fn any_given(&self) -> bool {
        self.epsilon.is_some()
            || self.fingerprint_bits.is_some()
            || self.fill.is_some()
            || self.value_bytes.is_some()
    }

    /// Those that were given, and the defaults of the others.
    pub(crate) fn checked(&self) -> anyhow::Result<TableParameters> {
        let default = TableParameters::default();
        let parameters = TableParameters {
            width: self.fingerprint_bits.unwrap_or(default.width),
            value_bytes: self.value_bytes.unwrap_or(default.value_bytes),
            epsilon: self.epsilon.unwrap_or(default.epsilon),
            fill: self.fill.unwrap_or(default.fill),
            ..default
        };
        parameters.validate()?;
        Ok(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_the_defaults_there_are() {
        let TableParameters { width, value_bytes, epsilon, fill, .. } = TableParameters::default();
        assert_eq!((width.bits(), value_bytes, epsilon, fill), (64, 8, 32, 0.85));
    }
}
