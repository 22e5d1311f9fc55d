//! The keys of any data set as a stream of chunks, duplicates included.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::DatasetError;
use crate::generate::fb::{FbIds, MAX_KEYS};
use crate::generate::wiki::WikiTimes;
use crate::generate::{Spread, books, osm, synthetic};
use crate::options::{Duplicates, OpenOptions};
use crate::published::{PUBLISHED, PublishedFile};
use crate::random::Random;
use crate::shipped;
use crate::sosd::SosdReader;
use crate::spec::{KeyKind, Spec, SpecKind};

/// Keys of a stand-in without a count: those of the published file.
const PUBLISHED_KEYS: u64 = 200_000_000;
/// Keys of a synthetic distribution without a count.
pub(crate) const SYNTHETIC_KEYS: u64 = 1_000_000;
/// Keys read ahead of a sample.
const SAMPLE_STEP: usize = 1 << 15;

const PURPOSE_SAMPLE: u64 = 0x5A;

/// Where keys come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A published file, found in the data folder by its name, and with as many keys; its checksum
    /// is looked at by `fpcache-datasets verify` alone.
    Published,
    /// A generator calibrated to a published file.
    StandIn,
    /// Real keys inside this crate.
    Shipped,
    /// A file named by its path, or by the name of a published one that has other keys.
    File,
    /// A synthetic distribution.
    Generated,
}

impl Source {
    /// `published (unverified)`, `stand-in`, `shipped`, `file` or `generated`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published (unverified)",
            Self::StandIn => "stand-in",
            Self::Shipped => "shipped",
            Self::File => "file",
            Self::Generated => "generated",
        }
    }

    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::StandIn | Self::Generated => "generating",
            _ => "reading",
        }
    }
}

/// A data set's keys, ascending, in chunks; equal keys follow each other.
pub struct KeyStream {
    source: Source,
    key_bytes: usize,
    total: u64,
    notes: Vec<String>,
    keys: Keys,
    sample: Option<Sample>,
    /// Keys that the sample is taken from next.
    ahead: Vec<u64>,
}

enum Keys {
    File(SosdReader),
    Fb(FbIds),
    Wiki(Box<WikiTimes>),
    Spread(Spread),
    Range(Range<u64>),
    Ready(std::vec::IntoIter<u64>),
}

impl Spec {
    /// The keys in chunks. Files and the stand-ins need a small buffer only, `uniform`, `normal`
    /// and `lognormal` hold all keys.
    ///
    /// Equal keys are given out as they come, unless `options.duplicates` is
    /// [`Duplicates::Refuse`], which makes a file's an error. `options.progress` is not used.
    ///
    /// # Errors
    /// [`DatasetError`] of any kind; later ones come from [`KeyStream::fill`].
    pub fn stream(&self, options: &OpenOptions<'_>) -> Result<KeyStream, DatasetError> {
        if let Some(asked) = options.key_bytes.filter(|&bytes| bytes != 8 && self.key_kind() == KeyKind::U64)
        {
            let cause = "its keys are u64, of 8 bytes; leave the length out".to_owned();
            return Err(DatasetError::KeyBytes { name: self.to_string(), asked, cause });
        }
        let Origin { source, key_bytes, available, keys, notes } = self.source(options)?;
        let total = self.count().unwrap_or(available);
        if total > available {
            return Err(DatasetError::TooMany { name: self.to_string(), available, asked: total });
        }
        let sample = (total < available).then(|| Sample::new(total, available, options.seed));
        Ok(KeyStream { source, key_bytes, total, notes, keys, sample, ahead: Vec::new() })
    }

    fn source(&self, options: &OpenOptions<'_>) -> Result<Origin, DatasetError> {
        let synthetic = self.count().unwrap_or(SYNTHETIC_KEYS);
        let size = usize::try_from(synthetic).unwrap_or(usize::MAX);
        let seed = options.seed;
        let generated = |keys| Origin {
            source: Source::Generated,
            key_bytes: 8,
            available: synthetic,
            keys,
            notes: Vec::new(),
        };
        let ready = |keys: Option<Vec<u64>>| match keys {
            Some(keys) => Ok(generated(Keys::Ready(keys.into_iter()))),
            None => {
                let bytes = synthetic.saturating_mul(8);
                Err(DatasetError::OutOfMemory { name: self.to_string(), keys: synthetic, bytes })
            }
        };
        match self.kind() {
            SpecKind::Sosd(path) => Origin::file(Source::File, path, options),
            SpecKind::Fb => self.published("fb", options, |count| Keys::Fb(FbIds::new(count, seed))),
            SpecKind::Wiki => {
                self.published("wiki", options, |count| Keys::Wiki(Box::new(WikiTimes::new(count, seed))))
            }
            SpecKind::Osm => self.published("osm", options, |count| Keys::Spread(osm::osm(count, seed))),
            SpecKind::Books => {
                self.published("books", options, |count| Keys::Spread(books::books(count, seed)))
            }
            SpecKind::Ipv4 => {
                let keys = shipped::ipv4();
                let available = keys.len() as u64;
                let keys = Keys::Ready(keys.into_iter());
                Ok(Origin { source: Source::Shipped, key_bytes: 8, available, keys, notes: Vec::new() })
            }
            SpecKind::Uniform => ready(synthetic::uniform(size, seed)),
            SpecKind::Normal => ready(synthetic::normal(size, seed)),
            SpecKind::Lognormal => ready(synthetic::lognormal(size, seed)),
            SpecKind::Sequential => Ok(generated(Keys::Range(0..synthetic))),
            _ => {
                let (name, is) = (self.to_string(), self.key_kind());
                Err(DatasetError::WrongKind { name, is, asked: KeyKind::U64 })
            }
        }
    }

    /// The first published file of a name that is in the data folder and has enough keys, else the
    /// first there is, else a stand-in.
    fn published(
        &self,
        name: &str,
        options: &OpenOptions<'_>,
        stand_in: impl FnOnce(u64) -> Keys,
    ) -> Result<Origin, DatasetError> {
        let known: Vec<&PublishedFile> = PUBLISHED.iter().filter(|file| file.spec == Some(name)).collect();
        let folder = options.data_dir.as_deref();
        if let Some(folder) = folder {
            // A misspelt one would quietly mean a stand-in.
            std::fs::read_dir(folder).map_err(|source| DatasetError::Io {
                path: folder.to_owned(),
                action: "reading the folder of data sets",
                source,
            })?;
        }
        let found: Vec<_> = known.iter().filter_map(|file| Some((*file, find(folder, file.name)?))).collect();
        let enough = found.iter().find(|(file, _)| self.count().is_none_or(|count| count <= file.keys));
        if let Some((file, path)) = enough.or(found.first()) {
            let mut origin = Origin::file(Source::Published, path, options)?;
            if origin.available != file.keys {
                // A part of it, say, under its name: what is measured over it is not comparable.
                origin.source = Source::File;
                origin.notes.push(format!(
                    "{self}: {} has {} keys, the published one {}",
                    path.display(),
                    origin.available,
                    file.keys
                ));
            } else if known.first().is_some_and(|first| first.name != file.name) {
                origin.notes.push(format!("{self}: the published {}", file.name));
            }
            return Ok(origin);
        }
        let available = self.count().unwrap_or(PUBLISHED_KEYS).min(MAX_KEYS);
        let folder = match folder {
            Some(folder) => format!("not in {}", folder.display()),
            None => "$FPCACHE_DATASETS is not set".to_owned(),
        };
        let file = known.first().map_or("a published file", |file| file.name);
        let note = format!("{self}: a stand-in for {file} ({folder}; see `fpcache-datasets list`)");
        let keys = stand_in(available);
        Ok(Origin { source: Source::StandIn, key_bytes: 8, available, keys, notes: vec![note] })
    }
}

/// Keys before a sample is taken of them, and where they come from.
struct Origin {
    source: Source,
    key_bytes: usize,
    available: u64,
    keys: Keys,
    notes: Vec<String>,
}

impl Origin {
    fn file(source: Source, path: &Path, options: &OpenOptions<'_>) -> Result<Self, DatasetError> {
        let mut reader = SosdReader::open(path)?;
        if options.duplicates == Some(Duplicates::Refuse) {
            reader.refuse_duplicates();
        }
        let (key_bytes, available) = (reader.width().bytes(), reader.count());
        Ok(Self { source, key_bytes, available, keys: Keys::File(reader), notes: Vec::new() })
    }
}

/// A published file in the data folder, plain before compressed.
fn find(folder: Option<&Path>, name: &str) -> Option<PathBuf> {
    let folder = folder?;
    [folder.join(name), folder.join(format!("{name}.zst"))].into_iter().find(|path| path.is_file())
}

impl KeyStream {
    /// Keys to come in all, duplicates counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Where they come from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Bytes of a key on disk: 4 or 8.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Things to announce.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// All keys at once, where they are in memory already and unsampled: [`Spec::open`] takes them
    /// without a copy.
    pub(crate) fn take_ready(&mut self) -> Option<Vec<u64>> {
        match &mut self.keys {
            // Collecting an untouched `IntoIter` gives back its vector.
            Keys::Ready(keys) if self.sample.is_none() => Some(std::mem::take(keys).collect()),
            _ => None,
        }
    }

    /// Appends up to `limit` keys to `out` and returns how many. Zero means the end, reached
    /// without error.
    ///
    /// # Errors
    /// [`DatasetError`] of kind `Io`, `BadFile` or `Duplicates`, from files.
    pub fn fill(&mut self, out: &mut Vec<u64>, limit: usize) -> Result<usize, DatasetError> {
        let Some(sample) = &mut self.sample else { return self.keys.fill(out, limit) };
        let start = out.len();
        while out.len() == start {
            self.ahead.clear();
            if self.keys.fill(&mut self.ahead, limit.min(SAMPLE_STEP))? == 0 {
                break;
            }
            out.extend(self.ahead.iter().filter(|_| sample.takes_next()));
        }
        Ok(out.len() - start)
    }
}

impl Keys {
    fn fill(&mut self, out: &mut Vec<u64>, limit: usize) -> Result<usize, DatasetError> {
        let start = out.len();
        match self {
            Self::File(reader) => return reader.fill(out, limit),
            Self::Fb(ids) => out.extend(ids.take(limit)),
            Self::Wiki(times) => out.extend(times.take(limit)),
            Self::Spread(keys) => out.extend(keys.take(limit)),
            Self::Range(range) => out.extend(range.take(limit)),
            Self::Ready(keys) => out.extend(keys.take(limit)),
        }
        Ok(out.len() - start)
    }
}

/// A uniform sample without replacement in one pass, in order and of an exact size: selection
/// sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S).
pub(crate) struct Sample {
    random: Random,
    wanted: u64,
    left: u64,
}

impl Sample {
    pub(crate) fn new(wanted: u64, available: u64, seed: u64) -> Self {
        Self { random: Random::new(seed, PURPOSE_SAMPLE), wanted, left: available }
    }

    /// Whether the next key belongs to the sample.
    pub(crate) fn takes_next(&mut self) -> bool {
        let takes = self.random.below(self.left) < self.wanted;
        self.wanted -= u64::from(takes);
        self.left -= 1;
        takes
    }
}
