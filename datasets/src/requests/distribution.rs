//! The notation of request distributions: `uniform`, `zipf:0.99`, `hotspot:0.01:0.9`.

use std::fmt;
use std::str::FromStr;

/// How requests are spread over the keys.
///
/// Reads and shows as one of the forms below; θ may be left out where a default is given, and is
/// always shown.
///
/// | form | what is popular | where it lies |
/// |---|---|---|
/// | `uniform` | nothing | |
/// | `zipf:THETA` | the key of rank r with r^−θ, exactly over the keys at hand | scattered |
/// | `ycsb-zipf[:THETA]` | what YCSB's scrambled zipfian makes popular | scattered |
/// | `latest[:THETA]` | as in `zipf`, the rank being the distance from the newest key | at the upper end |
/// | `hotspot:SHARE:PROBABILITY` | a share of the keys | in one stretch |
/// | `hotset:SHARE:PROBABILITY` | a share of the keys | scattered |
/// | `sosd` | nothing | |
///
/// Values out of range, which reading refuses, count as the nearest allowed when a distribution is
/// made by hand.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Every key equally often.
    Uniform,
    /// The key of rank r with probability proportional to r^−θ, exactly over the number of keys at
    /// hand; ranks are scattered over the keys by a seeded permutation.
    Zipf {
        /// The exponent θ: above 0 and at most 16. YCSB's default is 0.99.
        theta: f64,
    },
    /// YCSB's scrambled zipfian, step by step: a rank among 10 billion (and one) items by the
    /// approximate method of Gray et al., *Quickly Generating Billion-Record Synthetic Databases*
    /// (SIGMOD 1994, §3.2), its FNV-1a hash, and that modulo the number of keys.
    ///
    /// It differs from [`Zipf`](Self::Zipf) in that its skew does not depend on the number of keys.
    /// At θ 0.99 the most popular key always takes 1/26.47 = 3.8 % of the requests, where the exact
    /// law gives 6.5 % over a million keys and 5.3 % over 20 million; ranks beyond the number of
    /// keys fold back onto all of them and raise the floor. In ten million requests over a million
    /// keys, the most popular 1 % of the keys were asked for in 40 % of the requests instead of 67
    /// %, and 99 % of all keys at least once instead of 78 %; over 20 million keys it was 53 %
    /// instead of 73 %, and 21 % of the keys instead of 12 %. No key is out of reach, for there are
    /// many ranks to each; that popular ranks may share a key matters for small sets only.
    ///
    /// For θ other than 0.99 the normalising sum is computed, as YCSB does, if in microseconds.
    YcsbZipf {
        /// The exponent θ: above 0 and below 1, for the method is made for these. YCSB's default is
        /// 0.99.
        theta: f64,
    },
    /// Zipf over recency: the last key is the most popular, the one before it comes second, as in
    /// YCSB's latest distribution on a data set that does not grow. The zipf is the exact one.
    Latest {
        /// The exponent θ: above 0 and at most 16.
        theta: f64,
    },
    /// A hot set of keys that are neighbours, from a seeded start, takes a share of the requests;
    /// requests are uniform in the hot set and outside of it.
    Hotspot {
        /// The hot set's share of the keys, above 0 and at most 1: it has that many keys, rounded,
        /// but at least one.
        share: f64,
        /// The share of requests that go to the hot set, 0 to 1.
        probability: f64,
    },
    /// [`Hotspot`](Self::Hotspot) with the hot keys scattered over all keys by a seeded
    /// permutation.
    Hotset {
        /// As for [`Hotspot`](Self::Hotspot).
        share: f64,
        /// As for [`Hotspot`](Self::Hotspot).
        probability: f64,
    },
    /// SOSD's lookups: every distinct key equally often, drawn by SOSD's own random numbers. With
    /// seed 42 and nothing absent these are the lookups of SOSD itself.
    Sosd,
}

/// A text that names no distribution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a request distribution: {cause}; write uniform, zipf:THETA, ycsb-zipf[:THETA], latest[:THETA], \
     hotspot:SHARE:PROBABILITY, hotset:SHARE:PROBABILITY or sosd, as in zipf:0.99 or hotspot:0.01:0.9"
)]
pub struct ParseDistributionError {
    text: String,
    cause: &'static str,
}

/// Beyond it nearly every request is for the first rank, and powers leave the range of `f64`.
const MAX_THETA: f64 = 16.0;
/// Nearest to the ends of what Gray's method can do.
const YCSB_THETA: (f64, f64) = (1e-6, 1.0 - 1e-6);
/// YCSB's θ.
const DEFAULT_THETA: f64 = 0.99;

const THETA_CAUSE: &str = "THETA is a number above 0 and at most 16";
const YCSB_THETA_CAUSE: &str =
    "THETA is a number from 0.000001 to 0.999999 here (zipf:THETA takes any up to 16)";
const SHARE_CAUSE: &str = "SHARE is a number above 0 and at most 1";
const PROBABILITY_CAUSE: &str = "PROBABILITY is a number from 0 to 1";

impl Distribution {
    /// θ, where there is one.
    pub fn theta(&self) -> Option<f64> {
        match *self {
            Self::Zipf { theta } | Self::YcsbZipf { theta } | Self::Latest { theta } => Some(theta),
            Self::Uniform | Self::Hotspot { .. } | Self::Hotset { .. } | Self::Sosd => None,
        }
    }

    /// The same distribution with another θ; `None` where there is no θ or this one is out of
    /// range.
    pub fn with_theta(self, theta: f64) -> Option<Self> {
        let other = match self {
            Self::Zipf { .. } => Self::Zipf { theta },
            Self::YcsbZipf { .. } => Self::YcsbZipf { theta },
            Self::Latest { .. } => Self::Latest { theta },
            Self::Uniform | Self::Hotspot { .. } | Self::Hotset { .. } | Self::Sosd => return None,
        };
        (other.clamped() == other).then_some(other)
    }

    /// Every parameter in its range, and no number as the nearest to the most skewed.
    pub(super) fn clamped(self) -> Self {
        let within =
            |value: f64, low: f64, high: f64| if value.is_nan() { high } else { value.clamp(low, high) };
        let theta = |theta| within(theta, f64::MIN_POSITIVE, MAX_THETA);
        let share = |share| within(share, f64::MIN_POSITIVE, 1.0);
        let probability = |probability| within(probability, 0.0, 1.0);
        match self {
            Self::Zipf { theta: t } => Self::Zipf { theta: theta(t) },
            Self::Latest { theta: t } => Self::Latest { theta: theta(t) },
            Self::YcsbZipf { theta } => Self::YcsbZipf { theta: within(theta, YCSB_THETA.0, YCSB_THETA.1) },
            Self::Hotspot { share: s, probability: p } => {
                Self::Hotspot { share: share(s), probability: probability(p) }
            }
            Self::Hotset { share: s, probability: p } => {
                Self::Hotset { share: share(s), probability: probability(p) }
            }
            Self::Uniform | Self::Sosd => self,
        }
    }
}

impl FromStr for Distribution {
    type Err = ParseDistributionError;

    fn from_str(text: &str) -> Result<Self, ParseDistributionError> {
        parse(text).map_err(|cause| ParseDistributionError { text: text.to_owned(), cause })
    }
}

fn parse(text: &str) -> Result<Distribution, &'static str> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let parameters: Vec<&str> = parts.collect();
    let number = |text: &str, cause| text.parse::<f64>().map_err(|_| cause);
    let hot = || match parameters[..] {
        [share, probability] => Ok((number(share, SHARE_CAUSE)?, number(probability, PROBABILITY_CAUSE)?)),
        _ => Err("it takes a SHARE of the keys and the PROBABILITY of a request there"),
    };
    let theta = |cause, default: Option<f64>| match (&parameters[..], default) {
        ([], Some(theta)) => Ok(theta),
        ([], None) => Err("THETA is missing"),
        ([theta], _) => number(theta, cause),
        _ => Err("nothing may follow THETA"),
    };
    let (distribution, cause) = match name {
        "uniform" | "sosd" if !parameters.is_empty() => return Err("it takes no parameters"),
        "uniform" => return Ok(Distribution::Uniform),
        "sosd" => return Ok(Distribution::Sosd),
        "zipf" => (Distribution::Zipf { theta: theta(THETA_CAUSE, None)? }, THETA_CAUSE),
        "latest" => (Distribution::Latest { theta: theta(THETA_CAUSE, Some(DEFAULT_THETA))? }, THETA_CAUSE),
        "ycsb-zipf" => {
            let theta = theta(YCSB_THETA_CAUSE, Some(DEFAULT_THETA))?;
            (Distribution::YcsbZipf { theta }, YCSB_THETA_CAUSE)
        }
        "hotspot" | "hotset" => {
            let (share, probability) = hot()?;
            // What is left to be wrong if the share is right.
            let cause = if share > 0.0 && share <= 1.0 { PROBABILITY_CAUSE } else { SHARE_CAUSE };
            match name {
                "hotspot" => (Distribution::Hotspot { share, probability }, cause),
                _ => (Distribution::Hotset { share, probability }, cause),
            }
        }
        _ => return Err("no distribution has this name"),
    };
    // No number equals nothing, so it is refused as well.
    if distribution.clamped() == distribution { Ok(distribution) } else { Err(cause) }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { theta } => write!(f, "zipf:{theta}"),
            Self::YcsbZipf { theta } => write!(f, "ycsb-zipf:{theta}"),
            Self::Latest { theta } => write!(f, "latest:{theta}"),
            Self::Hotspot { share, probability } => write!(f, "hotspot:{share}:{probability}"),
            Self::Hotset { share, probability } => write!(f, "hotset:{share}:{probability}"),
            Self::Sosd => f.write_str("sosd"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_reads_and_shows_the_same() {
        let texts = "uniform zipf:0.99 zipf:1 zipf:16 ycsb-zipf:0.99 ycsb-zipf:0.5 latest:0.99 latest:2 \
             hotspot:0.01:0.9 hotspot:1:0 hotset:0.2:0.8 sosd";
        for text in texts.split(' ') {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        assert_eq!("ycsb-zipf".parse(), Ok(Distribution::YcsbZipf { theta: 0.99 }));
        assert_eq!("latest".parse(), Ok(Distribution::Latest { theta: 0.99 }));
    }

    #[test]
    fn what_is_no_distribution_is_told_why_and_all_forms() {
        for (text, cause) in [
            ("", "no distribution has this name"),
            ("Uniform", "no distribution has this name"),
            ("uniform:1", "no parameters"),
            ("sosd:42", "no parameters"),
            ("zipf", "THETA is missing"),
            ("zipf:", "at most 16"),
            ("zipf:0", "at most 16"),
            ("zipf:-1", "at most 16"),
            ("zipf:nan", "at most 16"),
            ("zipf:inf", "at most 16"),
            ("zipf:17", "at most 16"),
            ("zipf:1:2", "nothing may follow"),
            ("latest:0", "at most 16"),
            ("ycsb-zipf:1", "0.999999"),
            ("ycsb-zipf:", "0.999999"),
            ("ycsb-zipf:nan", "0.999999"),
            ("hotspot", "takes a SHARE"),
            ("hotspot:0.1", "takes a SHARE"),
            ("hotspot:0.1:0.9:1", "takes a SHARE"),
            ("hotspot:0:0.9", "SHARE is"),
            ("hotspot:1.5:0.9", "SHARE is"),
            ("hotspot:nan:0.9", "SHARE is"),
            ("hotspot:x:0.9", "SHARE is"),
            ("hotset:0.1:1.5", "PROBABILITY is"),
            ("hotset:0.1:-0.1", "PROBABILITY is"),
            ("hotset:0.1:nan", "PROBABILITY is"),
            ("hotset:0.1:", "PROBABILITY is"),
        ] {
            let error = text.parse::<Distribution>().unwrap_err().to_string();
            assert!(error.contains(cause), "{text}: {error}");
            for form in
                ["uniform", "zipf:THETA", "ycsb-zipf", "latest", "hotspot:SHARE", "hotset:SHARE", "sosd"]
            {
                assert!(error.contains(form), "{text}: {error}");
            }
        }
    }

    #[test]
    fn theta_is_replaced_where_there_is_one_and_only_within_its_range() {
        let replaced = |text: &str, theta| {
            text.parse::<Distribution>().unwrap().with_theta(theta).map(|d| d.to_string())
        };
        assert_eq!(replaced("zipf:0.99", 1.2).as_deref(), Some("zipf:1.2"));
        assert_eq!(replaced("latest", 0.5).as_deref(), Some("latest:0.5"));
        assert_eq!(replaced("ycsb-zipf", 0.5).as_deref(), Some("ycsb-zipf:0.5"));
        for (text, theta) in
            [("ycsb-zipf", 1.0), ("zipf:1", 0.0), ("zipf:1", f64::NAN), ("uniform", 1.0), ("sosd", 1.0)]
        {
            assert_eq!(replaced(text, theta), None, "{text}");
        }
        assert_eq!("latest:2".parse::<Distribution>().unwrap().theta(), Some(2.0));
        assert_eq!("hotset:0.1:0.9".parse::<Distribution>().unwrap().theta(), None);
    }

    proptest! {
        #[test]
        fn shown_distributions_read_back(theta in 1e-6..0.999_999f64, share in 1e-9..1.0f64, which in 0..5) {
            let distribution = match which {
                0 => Distribution::Zipf { theta },
                1 => Distribution::YcsbZipf { theta },
                2 => Distribution::Latest { theta },
                3 => Distribution::Hotspot { share, probability: theta },
                _ => Distribution::Hotset { share, probability: theta },
            };
            prop_assert_eq!(distribution.to_string().parse(), Ok(distribution));
        }
    }
}
