//! The notation for data sets: `fb:16M`, `wiki`, `sosd:PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::count;

/// The names [`Spec`] knows, in the order `list` shows them.
pub const KNOWN_NAMES: [&str; 17] = [
    "fb",
    "wiki",
    "osm",
    "books",
    "ipv4",
    "uniform",
    "normal",
    "lognormal",
    "sequential",
    "sosd:PATH",
    "words",
    "domains",
    "paths",
    "ycsb",
    "binary",
    "prefixes",
    "lines:PATH",
];

/// What the keys of a data set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Numbers: [`Spec::open`] and [`Spec::stream`] give them.
    U64,
    /// Byte strings: [`Spec::open_bytes`] gives them.
    Bytes,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U64 => "u64",
            Self::Bytes => "byte-string",
        })
    }
}

/// Which data set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpecKind {
    /// Facebook user ids: the published `fb_200M_uint64`, else its stand-in.
    Fb,
    /// Wikipedia edit times: the published `wiki_ts_200M_uint64`, else its stand-in.
    Wiki,
    /// OpenStreetMap cell ids: the published `osm_cellids_200M_uint64` or
    /// `osm_cellids_800M_uint64`, else a stand-in.
    Osm,
    /// Amazon book popularities: the published `books_200M_uint64`, `books_800M_uint64` or
    /// `books_200M_uint32`, else a stand-in for the first.
    Books,
    /// Real IPv4 range starts, shipped.
    Ipv4,
    /// Uniform over all 64-bit keys.
    Uniform,
    /// Normal, over the range of SOSD's.
    Normal,
    /// Lognormal, μ 0, σ 2.
    Lognormal,
    /// 0, 1, 2, …
    Sequential,
    /// A SOSD file.
    Sosd(PathBuf),
    /// English words, shipped.
    Words,
    /// Host names, made up to resemble the most visited ones.
    Domains,
    /// Deep file paths, made up.
    Paths,
    /// The record keys of YCSB: `user` and a hash in decimal.
    Ycsb,
    /// Random bytes, zeros among them.
    Binary,
    /// Keys that are prefixes of one another.
    Prefixes,
    /// A file with one byte string per line.
    Lines(PathBuf),
}

/// A data set and how many of its keys.
///
/// Reads and shows as `NAME`, `NAME:COUNT`, `sosd:PATH`, `sosd:PATH:COUNT`, `lines:PATH` or
/// `lines:PATH:COUNT`. After a path, what follows the last colon is the count if it reads as one.
/// Without a count: all of a file and of what is shipped, 200 M keys for the stand-ins of `fb`,
/// `wiki`, `osm` and `books`, 1 M for all that is generated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    kind: SpecKind,
    count: Option<u64>,
}

/// A text that names no data set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {cause}{}; known data sets: {}; for example fb:16M, wiki, sosd:data/books_200M_uint32:1M",
    .meant.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default(), KNOWN_NAMES.join(", "))]
pub struct ParseSpecError {
    text: String,
    cause: &'static str,
    /// The known name that is most like it, if one is.
    meant: Option<&'static str>,
}

impl Spec {
    /// A data set; `count` of `None` is the default described at [`Spec`].
    pub fn new(kind: SpecKind, count: Option<u64>) -> Self {
        Self { kind, count }
    }

    /// Which data set.
    pub fn kind(&self) -> &SpecKind {
        &self.kind
    }

    /// What its keys are.
    pub fn key_kind(&self) -> KeyKind {
        use SpecKind::{Binary, Domains, Lines, Paths, Prefixes, Words, Ycsb};
        match self.kind {
            Words | Domains | Paths | Ycsb | Binary | Prefixes | Lines(_) => KeyKind::Bytes,
            _ => KeyKind::U64,
        }
    }

    /// How many keys were asked for.
    pub fn count(&self) -> Option<u64> {
        self.count
    }
}

/// The data sets that a name alone says.
const NAMED: [(&str, SpecKind); 15] = [
    ("fb", SpecKind::Fb),
    ("wiki", SpecKind::Wiki),
    ("osm", SpecKind::Osm),
    ("books", SpecKind::Books),
    ("ipv4", SpecKind::Ipv4),
    ("uniform", SpecKind::Uniform),
    ("normal", SpecKind::Normal),
    ("lognormal", SpecKind::Lognormal),
    ("sequential", SpecKind::Sequential),
    ("words", SpecKind::Words),
    ("domains", SpecKind::Domains),
    ("paths", SpecKind::Paths),
    ("ycsb", SpecKind::Ycsb),
    ("binary", SpecKind::Binary),
    ("prefixes", SpecKind::Prefixes),
];

/// What names a file: the notation's beginning, what to say where the path is missing, and the
/// kind.
type PathScheme = (&'static str, &'static str, fn(PathBuf) -> SpecKind);
const PATHS: [PathScheme; 2] = [
    ("sosd:", "the path is missing after `sosd:`", SpecKind::Sosd),
    ("lines:", "the path is missing after `lines:`", SpecKind::Lines),
];

impl FromStr for Spec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<Self, ParseSpecError> {
        let fail = |cause| ParseSpecError { text: text.to_owned(), cause, meant: None };
        for (scheme, missing, kind) in PATHS {
            let Some(rest) = text.strip_prefix(scheme) else { continue };
            let (path, count) = match rest.rsplit_once(':') {
                Some((path, suffix)) if count::parse(suffix).is_some() => (path, count::parse(suffix)),
                _ => (rest, None),
            };
            return match (path, count) {
                ("", _) => Err(fail(missing)),
                (_, Some(0)) => Err(fail("a count of zero leaves no keys")),
                _ => Ok(Self { kind: kind(path.into()), count }),
            };
        }
        let (name, suffix) = match text.split_once(':') {
            Some((name, suffix)) => (name, Some(suffix)),
            None => (text, None),
        };
        let named = NAMED.into_iter().find(|(known, _)| *known == name);
        let kind = match (name, named) {
            (_, Some((_, kind))) => kind,
            ("sosd", None) => return Err(fail("the path is missing after `sosd`")),
            ("lines", None) => return Err(fail("the path is missing after `lines`")),
            (_, None) => {
                let error = fail("no data set of this name (a file is written sosd:PATH or lines:PATH)");
                return Err(ParseSpecError { meant: closest_name(name), ..error });
            }
        };
        let count = match suffix {
            None => None,
            Some(suffix) => match count::parse(suffix) {
                Some(0) => return Err(fail("a count of zero leaves no keys")),
                None => {
                    return Err(fail(
                        "the count after the colon is not a whole number, with or without K, M or G",
                    ));
                }
                count => count,
            },
        };
        Ok(Self { kind, count })
    }
}

/// The known name that a misspelt one stands for, as far as it can be told.
fn closest_name(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let nearest = NAMED.into_iter().map(|(known, _)| (distance(&name, known), known)).min()?;
    // Of short names any other is a few letters away.
    Some(nearest).filter(|(distance, known)| *distance <= 2.min(known.len() / 2)).map(|(_, known)| known)
}

/// How many letters must be inserted, removed or replaced to make one word of the other
/// (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, with) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != with);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            SpecKind::Sosd(path) => write!(f, "sosd:{}", path.display())?,
            SpecKind::Lines(path) => write!(f, "lines:{}", path.display())?,
            kind => {
                let named = NAMED.into_iter().find(|(_, named)| named == kind);
                f.write_str(named.map_or("", |(name, _)| name))?;
            }
        }
        match self.count {
            Some(count) => write!(f, ":{}", count::format(count)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_one_that_was_meant() {
        for (text, meant) in
            [("ipv6", "ipv4"), ("unifrom:1M", "uniform"), ("Words", "words"), ("ycbs:5", "ycsb")]
        {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(&format!("did you mean `{meant}`?")), "{error}");
        }
        assert!(!"shakespeare".parse::<Spec>().unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn every_form_reads_and_shows_the_same() {
        let texts = "fb:16M fb wiki osm:200K books ipv4 uniform:1M normal:2G lognormal:1.5M sequential:7 \
             sosd:/a/b_uint32 sosd:b_uint64:2K words words:100K domains:1M paths:1M ycsb:60M binary:1M prefixes:1M \
             lines:/a/b.txt.gz lines:b.zst:3K";
        for text in texts.split(' ') {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
        let spec: Spec = "sosd:C:/x:y_uint64".parse().unwrap();
        assert_eq!(spec, Spec::new(SpecKind::Sosd("C:/x:y_uint64".into()), None));
    }

    #[test]
    fn errors_list_the_names_and_an_example() {
        let texts = "facebook fb: fb:x fb:0 fb:16MB sosd: sosd sosd:x:0 sosd::1M lines lines: lines::1M lines:x:0 \
             words:0 ycsb:x";
        for text in texts.split(' ').chain([""]) {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains("lognormal") && error.contains("fb:16M"), "{text}: {error}");
        }
    }
}
