//! Lengths and content of values.

use std::fmt;
use std::str::FromStr;

use fpcache::layout::MAX_VALUE_BYTES;
use fpcache_client::TableParameters;
use fpcache_datasets::write_value;

use crate::machine::split_mix;

/// Bytes of the values of a table.
///
/// Reads and shows as `8`, or as `vary:64` for 1 to 64 bytes; `vary` is short for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueBytes {
    /// All the same.
    Fixed(u32),
    /// From one to this many, by the number that a value is made from.
    UpTo(u32),
}

impl ValueBytes {
    /// What `vary` alone means.
    const USUAL: u32 = 64;

    /// The longest.
    pub const fn most(self) -> u32 {
        match self {
            Self::Fixed(bytes) | Self::UpTo(bytes) => bytes,
        }
    }

    /// The mean.
    pub fn mean(self) -> f64 {
        match self {
            Self::Fixed(bytes) => f64::from(bytes),
            Self::UpTo(bytes) => f64::from(bytes + 1) / 2.0,
        }
    }

    /// Bytes that values of more than `inline` bytes take where they lie, in the mean over all
    /// values.
    pub fn mean_beyond(self, inline: u32) -> f64 {
        match self {
            Self::UpTo(most) if most > inline => {
                let (most, inline) = (f64::from(most), f64::from(inline));
                // Half a word is lost with each.
                (most - inline) / most * ((most + inline + 1.0) / 2.0 + 4.0)
            }
            _ => 0.0,
        }
    }

    /// Those of all values, if they are the same.
    pub const fn fixed(self) -> Option<u32> {
        match self {
            Self::Fixed(bytes) => Some(bytes),
            Self::UpTo(_) => None,
        }
    }

    /// Those of the value made from this number.
    #[inline]
    pub fn of(self, number: u64) -> usize {
        match self {
            Self::Fixed(bytes) => bytes as usize,
            Self::UpTo(bytes) => {
                let mut state = number;
                1 + (split_mix(&mut state) % u64::from(bytes)) as usize
            }
        }
    }

    /// Puts the value made from this number after what `out` holds.
    #[inline]
    pub fn append(self, number: u64, out: &mut Vec<u8>) {
        let from = out.len();
        out.resize(from + self.of(number), 0);
        write_value(number, &mut out[from..]);
    }
}

impl FromStr for ValueBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = |text: &str, most: u32| text.parse().ok().filter(|bytes| (1..=most).contains(bytes));
        let found = match text.strip_prefix("vary") {
            Some("") => Some(Self::UpTo(Self::USUAL)),
            Some(most) => {
                let most = most.strip_prefix(':');
                most.and_then(|most| bytes(most, MAX_VALUE_BYTES as u32)).map(Self::UpTo)
            }
            None => bytes(text, TableParameters::MAX_VALUE_BYTES).map(Self::Fixed),
        };
        found.ok_or_else(|| {
            format!(
                "write a whole number in 1..={most}, or vary:{usual} for 1 to {usual} bytes; those that vary may have up to \
                 {MAX_VALUE_BYTES}",
                most = TableParameters::MAX_VALUE_BYTES,
                usual = Self::USUAL
            )
        })
    }
}

impl fmt::Display for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::UpTo(bytes) => write!(f, "vary:{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_show_the_same_and_others_are_refused() {
        for text in ["1", "8", "65536", "vary:1", "vary:1024", "vary:16777216"] {
            assert_eq!(text.parse::<ValueBytes>().unwrap().to_string(), text);
        }
        assert_eq!("vary".parse(), Ok(ValueBytes::UpTo(64)));
        for bad in ["", "0", "65537", "-1", "vary:", "vary:0", "vary:16777217", "varying", "vary64"] {
            assert!(bad.parse::<ValueBytes>().unwrap_err().contains("1..=65536"), "{bad}");
        }
    }

    #[test]
    fn lengths_that_vary_take_every_value_in_their_range() {
        let sizes = ValueBytes::UpTo(5);
        let mut seen = [0; 6];
        (0..1_000).for_each(|number| seen[sizes.of(number)] += 1);
        assert!(seen[0] == 0 && seen[1..].iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!((sizes.mean(), sizes.most(), sizes.fixed()), (3.0, 5, None));
        assert_eq!((sizes.mean_beyond(5), ValueBytes::Fixed(9).mean_beyond(5)), (0.0, 0.0));
        // Two of five, 4 and 5 bytes long.
        assert_eq!(sizes.mean_beyond(3), 2.0 / 5.0 * (4.5 + 4.0));
        let mut value = vec![9];
        ValueBytes::Fixed(3).append(0x0201, &mut value);
        assert_eq!(value, [9, 1, 2, 0]);
    }
}
