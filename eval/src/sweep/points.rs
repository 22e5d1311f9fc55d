//! The dimensions of a sweep: settings, and the points along one.

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use fpcache_client::{TableParameters, WidthChoice};

use crate::plot::figure::{Axis, Steps, Unit};
use crate::run::cache::parse_budget;
use crate::run::options::RunArgs;
use crate::run::values::ValueBytes;

/// The settings that can be swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// Budget of the compute node, such as 4MiB
    Cache,
    /// Half-width of the models' windows, in slots
    Epsilon,
    /// Bits of a fingerprint
    FingerprintBits,
    /// Bytes of a value
    ValueBytes,
    /// Share of slots that hold a record
    Fill,
    /// Exponent of zipf-distributed lookups
    Theta,
    /// Threads that look up at once
    Threads,
    /// With nic:…: bytes of a key
    KeyBytes,
    /// Modelled cards, such as cx6-100g
    Nic,
    /// With nic:…: clients, a thread each
    Clients,
    /// With nic:…: memory nodes
    MemoryNodes,
}

/// An option of `run`.
#[derive(Clone, Copy, Debug)]
pub struct RunOption {
    /// As users write it, without dashes.
    pub name: &'static str,
    /// As the parser calls it.
    pub id: &'static str,
}

impl Over {
    /// As options and results spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Epsilon => "epsilon",
            Self::FingerprintBits => "fingerprint-bits",
            Self::ValueBytes => "value-bytes",
            Self::Fill => "fill",
            Self::Theta => "theta",
            Self::Threads => "threads",
            Self::KeyBytes => "key-bytes",
            Self::Nic => "nic",
            Self::Clients => "clients",
            Self::MemoryNodes => "memory-nodes",
        }
    }

    /// The option of `run` that sets it.
    pub const fn option(self) -> RunOption {
        let (name, id) = match self {
            Self::Cache => ("cache", "budget"),
            Self::Epsilon => ("epsilon", "epsilon"),
            Self::FingerprintBits => ("fingerprint-bits", "fingerprint_bits"),
            Self::ValueBytes => ("value-bytes", "value_bytes"),
            Self::Fill => ("fill", "fill"),
            Self::Theta => ("dist", "distribution"),
            Self::Threads => ("threads", "threads"),
            Self::KeyBytes => ("key-bytes", "key_bytes"),
            Self::Nic => ("transport", "transport"),
            Self::Clients => ("clients", "clients"),
            Self::MemoryNodes => ("nodes", "nodes"),
        };
        RunOption { name, id }
    }

    /// Whether another value needs another table in the memory node.
    pub const fn changes_table(self) -> bool {
        matches!(self, Self::Epsilon | Self::FingerprintBits | Self::ValueBytes | Self::Fill)
    }

    /// Whether it means nothing to the maps.
    pub const fn is_of_fpcache(self) -> bool {
        matches!(self, Self::Cache | Self::Epsilon | Self::FingerprintBits | Self::Fill)
    }

    /// Whether it is one of the model of network cards alone.
    pub const fn is_of_model(self) -> bool {
        matches!(self, Self::KeyBytes | Self::Nic | Self::Clients | Self::MemoryNodes)
    }

    /// Whether steps are factors rather than differences.
    pub const fn is_logarithmic(self) -> bool {
        matches!(self, Self::Cache | Self::Epsilon | Self::FingerprintBits | Self::ValueBytes)
    }

    /// What an axis of it is called.
    pub const fn axis(self) -> &'static str {
        match self {
            Self::Cache => "bytes kept on the compute node, models included",
            Self::Epsilon => "epsilon: half-width of a window, in slots",
            Self::FingerprintBits => "bits of a fingerprint",
            Self::ValueBytes => "bytes of a value",
            Self::Fill => "share of slots that hold a record",
            Self::Theta => "exponent of the zipf distribution",
            Self::Threads => "threads",
            Self::KeyBytes => "bytes of a key",
            Self::Nic => "network card",
            Self::Clients => "clients",
            Self::MemoryNodes => "memory nodes",
        }
    }

    /// An axis of it, with ticks at the values.
    pub fn x_axis(self) -> Axis {
        let steps = if self.is_logarithmic() { Steps::Factors } else { Steps::Even };
        Axis::new(self.axis(), self.unit()).by(steps).ticks_at_values()
    }

    const fn unit(self) -> Unit {
        match self {
            Self::Cache | Self::ValueBytes | Self::KeyBytes => Unit::Bytes,
            _ => Unit::Number,
        }
    }

    /// A value for people.
    pub fn show(self, value: f64) -> String {
        self.unit().show(value)
    }

    /// Sets it in `run` as its option would.
    pub fn set(self, run: &mut RunArgs, text: &str) -> anyhow::Result<f64> {
        match self {
            Self::Cache => {
                let budget = parse_budget(text).map_err(|error| anyhow!(error))?;
                let bytes = budget.0.context("a sweep needs sizes: write one above 0, such as 8MiB")?;
                run.cache.budget = Some(budget);
                Ok(bytes as f64)
            }
            Self::Epsilon => {
                run.epsilon = text.parse().context("write a whole number of slots, such as 32")?;
                Ok(f64::from(run.epsilon))
            }
            Self::FingerprintBits => {
                run.fingerprint_bits = text.parse()?;
                match run.fingerprint_bits {
                    WidthChoice::Fixed(width) => Ok(f64::from(width.bits())),
                    WidthChoice::Auto | WidthChoice::None => {
                        bail!("a sweep needs numbers of bits: write 8, 16, 32 or 64")
                    }
                }
            }
            Self::ValueBytes => {
                let bytes = within(text, TableParameters::MAX_VALUE_BYTES)?;
                run.value_bytes = ValueBytes::Fixed(bytes);
                Ok(f64::from(bytes))
            }
            Self::Fill => {
                let fill = text.parse().context("write a share of slots, such as 0.85")?;
                run.fill = Some(fill);
                Ok(fill)
            }
            Self::Theta => {
                let of_theta = || Some((text.parse::<f64>().ok()?, format!("zipf:{text}").parse().ok()?));
                let (theta, distribution) =
                    of_theta().context("write an exponent above 0 and at most 16, such as 0.99")?;
                run.distribution = distribution;
                Ok(theta)
            }
            Self::Threads => {
                run.threads = within(text, 1024)?;
                Ok(f64::from(run.threads))
            }
            Self::KeyBytes => {
                let bytes = within(text, TableParameters::MAX_KEY_BYTES)?;
                run.key_bytes = Some(bytes as usize);
                Ok(f64::from(bytes))
            }
            Self::Clients => {
                let clients = within(text, 24_576)?;
                run.clients = Some(clients);
                Ok(f64::from(clients))
            }
            Self::MemoryNodes => {
                run.nodes = within(text, 64)?;
                Ok(f64::from(run.nodes))
            }
            Self::Nic => bail!("cards are no numbers"),
        }
    }
}

fn within(text: &str, most: u32) -> anyhow::Result<u32> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.with_context(|| format!("write a whole number from 1 to {most}"))
}

/// One value of the swept setting.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value; sizes in bytes.
    pub value: f64,
    /// All settings at this point.
    pub run: RunArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_without_needless_digits() {
        assert_eq!(Over::Cache.show(4.0 * 1048576.0), "4 MiB");
        assert_eq!(Over::Cache.show(1.5 * 1048576.0), "1.5 MiB");
        assert_eq!(Over::Cache.show(100.0 * 1048576.0), "100 MiB");
        assert_eq!(Over::ValueBytes.show(8.0), "8 B");
        assert_eq!((Over::Fill.show(0.85), Over::Epsilon.show(32.0)), ("0.85".to_owned(), "32".to_owned()));
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for over in Over::value_variants() {
            assert_eq!(over.to_possible_value().unwrap().get_name(), over.name());
        }
    }
}
