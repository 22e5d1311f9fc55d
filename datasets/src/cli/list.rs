//! The `list` command.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{Table, presets};
use fpcache_datasets::count::{human, human_bytes};
use fpcache_datasets::published::{PUBLISHED, PublishedFile};
use fpcache_datasets::sosd::{HEADER_BYTES, SosdReader};
use serde::Serialize;

use super::outcome::{Failure, Outcome};

#[derive(Args)]
pub(super) struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Folder with published files.
    #[arg(long = "datasets-dir", env = "FPCACHE_DATASETS", value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
}

#[derive(Serialize)]
struct Listing {
    datasets: Vec<Known>,
    published: Vec<Published>,
}

#[derive(Serialize)]
struct Known {
    name: &'static str,
    /// Keys without a count; none for a file of which that is not known.
    keys: Option<u64>,
    /// `u64` or `bytes`.
    key_kind: &'static str,
    what: &'static str,
    source: &'static str,
}

#[derive(Serialize)]
struct Published {
    name: &'static str,
    keys: u64,
    key_bytes: usize,
    bytes: u64,
    what: &'static str,
    md5: &'static str,
    url: &'static str,
    /// Where it was found.
    path: Option<PathBuf>,
    /// How many keys the file says that it has; a published one's are `keys`. None if it cannot be
    /// read.
    keys_found: Option<u64>,
    command: String,
}

impl List {
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        let published: Vec<Published> = PUBLISHED.iter().map(|file| self.published(file)).collect();
        let known = |name, keys, what, source| Known { name, keys, key_kind: "u64", what, source };
        // What stands for a published set: the first file that is found, a part of it say, or a
        // stand-in.
        let set = |name, what| {
            let mut files = PUBLISHED.iter().zip(&published).filter(|(file, _)| file.spec == Some(name));
            match files.find(|(_, row)| row.path.is_some()) {
                Some((file, row)) if row.keys_found == Some(file.keys) => {
                    known(name, row.keys_found, what, "published")
                }
                // One that cannot be read stands for it all the same.
                Some((_, row)) => known(name, row.keys_found, what, "file"),
                None => known(name, Some(200_000_000), what, "stand-in"),
            }
        };
        let bytes = |name, keys, what, source| Known { name, keys, key_kind: "bytes", what, source };
        let datasets = vec![
            set("fb", "Facebook user ids"),
            set("wiki", "Wikipedia edit times, with duplicates"),
            set("osm", "OpenStreetMap cell ids"),
            set("books", "Amazon book popularities"),
            known("ipv4", Some(385_602), "starts of real IPv4 ranges", "shipped"),
            known("uniform", Some(1_000_000), "uniform over 64 bits", "generated"),
            known("normal", Some(1_000_000), "normal over 63 bits", "generated"),
            known("lognormal", Some(1_000_000), "lognormal, mu 0, sigma 2", "generated"),
            known("sequential", Some(1_000_000), "0, 1, 2, …", "generated"),
            known("sosd:PATH", None, "SOSD file *_uint32 or *_uint64, also .zst", "file"),
            bytes("words", Some(663_473), "English words", "shipped"),
            bytes("domains", Some(1_000_000), "host names, made up", "generated"),
            bytes("paths", Some(1_000_000), "deep paths with a long shared prefix", "generated"),
            bytes("ycsb", Some(1_000_000), "record keys of YCSB: user and a hash", "generated"),
            bytes("binary", Some(1_000_000), "random bytes, zeros among them", "generated"),
            bytes("prefixes", Some(1_000_000), "keys that are prefixes of one another", "generated"),
            bytes("lines:PATH", None, "lines of a file, also .gz or .zst", "file"),
        ];
        let listing = Listing { datasets, published };
        let text = if self.json { serde_json::to_string_pretty(&listing)? + "\n" } else { listing.text()? };
        Ok(text.into())
    }

    fn published(&self, file: &PublishedFile) -> Published {
        let places = self.data_dir.iter().flat_map(|folder| {
            [folder.join(file.name), folder.join(format!("{}.zst", file.name))].into_iter()
        });
        let path = places.into_iter().find(|path| path.is_file());
        // What cannot be read is told by who opens it.
        let keys_found = path.as_deref().and_then(|path| Some(SosdReader::open(path).ok()?.count()));
        Published {
            name: file.name,
            keys: file.keys,
            key_bytes: file.width.bytes(),
            bytes: HEADER_BYTES + file.keys * file.width.bytes() as u64,
            what: file.what,
            md5: file.md5,
            url: file.url,
            path,
            keys_found,
            command: file.download_command(),
        }
    }
}

impl Listing {
    fn text(&self) -> Result<String, Failure> {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["NAME", "KEYS", "KIND", "WHAT", "SOURCE"]);
        for known in &self.datasets {
            let keys = known.keys.map_or_else(|| "all".to_owned(), human);
            table.add_row([known.name, &keys, known.key_kind, known.what, known.source]);
        }
        let mut text = format!("{}\n\n", table.trim_fmt());
        text.push_str(
            "KEYS is the number of keys without a count; NAME:COUNT takes fewer, as in fb:16M\n\
             or sosd:PATH:1M. fb, wiki, osm and books mean a published file where\n\
             $FPCACHE_DATASETS holds one, else a calibrated stand-in.\n\n\
             Published files; paste the command to download and check one:\n",
        );
        for file in &self.published {
            let (keys, size) = (human(file.keys), human_bytes(file.bytes));
            write!(text, "\n{}: {}, {keys} keys, {size}", file.name, file.what)?;
            match file.path.as_ref().map(|path| (path.display(), file.keys_found)) {
                Some((path, None)) => writeln!(text, "; {path} cannot be read")?,
                Some((path, Some(found))) if found == file.keys => writeln!(text, ", found at {path}")?,
                Some((path, Some(found))) => writeln!(text, "; {path} has {} keys", human(found))?,
                None => writeln!(text)?,
            }
            writeln!(text, "  {}", file.command)?;
        }
        Ok(text)
    }
}
