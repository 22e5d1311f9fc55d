//! Deep file paths, with one long prefix shared by all and many shared by some.

use std::io::Write;

use super::distinct::distinct;
use super::vocabulary::Vocabulary;
use crate::bytes::arena::KeyArena;
use crate::progress::Progress;
use crate::random::Random;

const PURPOSE_PATHS: u64 = 0x33;

/// What every path begins with: 51 bytes.
const ROOT: &[u8] = b"/srv/storage/volume-07/workspaces/mainline/checkout";
/// Folders below the root, at most.
const DEEPEST: u8 = 9;
/// A new folder lies in one of this many made last, half the time: trees grow in places.
const RECENT: u64 = 40;
/// Common words are much more common in names than others.
const SKEW: f64 = 3.0;

/// Folders that most trees have.
const FOLDERS: [&str; 24] = [
    "src",
    "lib",
    "test",
    "tests",
    "include",
    "docs",
    "assets",
    "build",
    "config",
    "data",
    "examples",
    "scripts",
    "tools",
    "vendor",
    "internal",
    "common",
    "core",
    "utils",
    "resources",
    "images",
    "locale",
    "main",
    "modules",
    "bin",
];
/// Suffixes of files with names.
const SUFFIXES: [&str; 16] = [
    "rs", "c", "h", "py", "java", "js", "ts", "go", "cpp", "json", "md", "txt", "xml", "html", "css", "yaml",
];
/// Beginnings and ends of files with numbers.
const NUMBERED: [(&str, &str); 6] = [
    ("part-", ".parquet"),
    ("frame_", ".png"),
    ("IMG_", ".jpg"),
    ("chunk.", ".bin"),
    ("shard-", ".idx"),
    ("page", ".html"),
];

/// `count` distinct ascending paths below one root: a tree that grows in places, of folders with
/// one to 300 files each that are named in one of five ways (by words, numbers, dates, hashes or
/// versions). A million of them have 115 bytes on average, of which all share 52 and neighbours
/// 103. `None` without memory for them.
///
/// About 1 µs per key, and 12 bytes per folder, of which there is one for some fifteen files, while
/// they are made.
pub fn paths(count: usize, seed: u64, progress: Option<&dyn Progress>) -> Option<KeyArena> {
    let mut tree = Tree::new(seed);
    distinct(count, progress, |key| tree.next_path(key))
}

/// A folder: where it lies and what it is called.
struct Folder {
    /// `None` lies below the root.
    parent: Option<u32>,
    /// The index of one of [`FOLDERS`], else what its words are drawn by.
    name: u32,
    depth: u8,
}

/// How the files of a folder are called.
enum Naming {
    Words(&'static str),
    Numbers { start: &'static str, end: &'static str, next: u64 },
    Dates { stem: Vec<u8>, day: u64 },
    Hashes,
    Versions,
}

struct Tree {
    random: Random,
    vocabulary: Vocabulary,
    folders: Vec<Folder>,
    /// The folder that files are made in, as text.
    current: Vec<u8>,
    naming: Naming,
    left: u64,
}

impl Tree {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed, PURPOSE_PATHS),
            vocabulary: Vocabulary::new(),
            folders: Vec::new(),
            current: Vec::new(),
            naming: Naming::Hashes,
            left: 0,
        }
    }

    fn next_path(&mut self, path: &mut Vec<u8>) {
        if self.left == 0 {
            self.next_folder();
        }
        self.left -= 1;
        path.extend_from_slice(&self.current);
        path.push(b'/');
        self.write_name(path);
    }

    /// Makes a folder and decides what is in it.
    fn next_folder(&mut self) {
        let made = self.folders.len() as u64;
        let random = &mut self.random;
        let parent = match random.below(2) {
            _ if made == 0 => None,
            0 => Some(made - 1 - random.below(RECENT.min(made))),
            _ => Some(random.below(made)),
        };
        let depth = parent.map_or(1, |parent| self.folders[parent as usize].depth + 1);
        let (parent, depth) = if depth > DEEPEST { (None, 1) } else { (parent, depth) };
        // Common names more often near the root.
        let is_common = random.below(u64::from(depth) + 2) < 2;
        let name = if is_common { random.below(FOLDERS.len() as u64) } else { random.bits() >> 32 };
        // Folders are counted in 32 bits: more than 4 billion of them fit into no memory.
        let parent = parent.map(|parent| parent as u32);
        self.folders.push(Folder { parent, name: name as u32, depth });
        self.write_folder();
        self.decide_files();
    }

    /// Writes the path of the newest folder.
    fn write_folder(&mut self) {
        self.current.clear();
        self.current.extend_from_slice(ROOT);
        let mut names = Vec::new();
        let mut next = self.folders.last();
        while let Some(folder) = next {
            names.push(folder.name);
            next = folder.parent.map(|parent| &self.folders[parent as usize]);
        }
        for name in names.into_iter().rev() {
            self.current.push(b'/');
            match FOLDERS.get(name as usize) {
                Some(common) => self.current.extend_from_slice(common.as_bytes()),
                None => {
                    // A name is made from its number each time that it is written.
                    let mut random = Random::new(u64::from(name), PURPOSE_PATHS);
                    self.current.extend_from_slice(self.vocabulary.draw(&mut random, SKEW));
                    if random.below(3) == 0 {
                        self.current.push(b'-');
                        self.current.extend_from_slice(self.vocabulary.draw(&mut random, SKEW));
                    }
                }
            }
        }
    }

    fn decide_files(&mut self) {
        let random = &mut self.random;
        let (naming, most) = match random.below(20) {
            0..9 => (Naming::Words(SUFFIXES[random.below(SUFFIXES.len() as u64) as usize]), 30),
            9..12 => {
                let (start, end) = NUMBERED[random.below(NUMBERED.len() as u64) as usize];
                (Naming::Numbers { start, end, next: random.below(3) * 1_000 }, 300)
            }
            12..15 => {
                let stem = self.vocabulary.draw(random, SKEW).to_vec();
                (Naming::Dates { stem, day: random.below(3_000) }, 100)
            }
            15..17 => (Naming::Hashes, 60),
            _ => (Naming::Versions, 20),
        };
        self.naming = naming;
        // Few folders have many files: the product of two uniform numbers has a quarter of the most
        // on average.
        let most = most as f64 * random.open_fraction() * random.open_fraction();
        self.left = 1 + most as u64;
    }

    fn write_name(&mut self, path: &mut Vec<u8>) {
        let Self { random, vocabulary, .. } = self;
        // Writing to a vector does not fail.
        let _ = match &mut self.naming {
            Naming::Words(suffix) => {
                path.extend_from_slice(vocabulary.draw(random, SKEW));
                for _ in 0..random.below(3) {
                    path.push(b'_');
                    path.extend_from_slice(vocabulary.draw(random, SKEW));
                }
                write!(path, ".{suffix}")
            }
            Naming::Numbers { start, end, next } => {
                *next += 1;
                write!(path, "{start}{next:05}{end}")
            }
            Naming::Dates { stem, day } => {
                *day += 1;
                path.extend_from_slice(stem);
                let (year, month, day) = (2015 + *day / 336, 1 + *day % 336 / 28, 1 + *day % 28);
                write!(path, "-{year}-{month:02}-{day:02}.log.gz")
            }
            Naming::Hashes => {
                write!(path, "{:016x}{:016x}{:06x}", random.bits(), random.bits(), random.bits() >> 40)
            }
            Naming::Versions => {
                path.extend_from_slice(vocabulary.draw(random, SKEW));
                let (major, minor, patch) = (random.below(5), random.below(20), random.below(10));
                write!(path, "-{major}.{minor}.{patch}.jar")
            }
        };
    }
}
