//! The published SOSD files: names, sizes, checksums and URLs.

use crate::width::Width;

/// A published file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedFile {
    /// Its name, which gives the width.
    pub name: &'static str,
    /// The spec under which this crate finds it in the data folder, if it has a short one.
    pub spec: Option<&'static str>,
    /// Number of keys, duplicates counted.
    pub keys: u64,
    /// Width of the keys.
    pub width: Width,
    /// What the keys are.
    pub what: &'static str,
    /// MD5 of the decompressed file.
    pub md5: &'static str,
    /// Where it is, zstd-compressed.
    pub url: &'static str,
}

/// All published files that are known; those of one spec in the order in which they are taken.
pub const PUBLISHED: [PublishedFile; 7] = [
    PublishedFile {
        name: "fb_200M_uint64",
        spec: Some("fb"),
        keys: 200_000_000,
        width: Width::U64,
        what: "Facebook user ids",
        md5: "3b0f820caa0d62150e87ce94ec989978",
        url: "https://dataverse.harvard.edu/api/access/datafile/:persistentId?persistentId=doi:10.7910/DVN/JGVF9A/EATHF7",
    },
    PublishedFile {
        name: "wiki_ts_200M_uint64",
        spec: Some("wiki"),
        keys: 200_000_000,
        width: Width::U64,
        what: "Wikipedia edit times, 90,437,011 distinct",
        md5: "4f1402b1c476d67f77d2da4955432f7d",
        url: "https://dataverse.harvard.edu/api/access/datafile/:persistentId?persistentId=doi:10.7910/DVN/JGVF9A/SVN8PI",
    },
    PublishedFile {
        name: "books_200M_uint64",
        spec: Some("books"),
        keys: 200_000_000,
        width: Width::U64,
        what: "Amazon book popularity",
        md5: "aeedc7be338399ced89d0bb82287e024",
        url: "https://dataverse.harvard.edu/api/access/datafile/:persistentId?persistentId=doi:10.7910/DVN/JGVF9A/A6HDNT",
    },
    PublishedFile {
        name: "books_800M_uint64",
        spec: Some("books"),
        keys: 800_000_000,
        width: Width::U64,
        what: "Amazon book popularity",
        md5: "8708eb3e1757640ba18dcd3a0dbb53bc",
        url: "https://www.dropbox.com/s/y2u3nbanbnbmg7n/books_800M_uint64.zst?dl=1",
    },
    PublishedFile {
        name: "books_200M_uint32",
        spec: Some("books"),
        keys: 200_000_000,
        width: Width::U32,
        what: "Amazon book popularity",
        md5: "9f3e578671e5c0348cdddc9c68946770",
        url: "https://dataverse.harvard.edu/api/access/datafile/:persistentId?persistentId=doi:10.7910/DVN/JGVF9A/5YTV8K",
    },
    PublishedFile {
        name: "osm_cellids_200M_uint64",
        spec: Some("osm"),
        keys: 200_000_000,
        width: Width::U64,
        what: "OpenStreetMap cell ids",
        md5: "a7f6b8d2df09fcda5d9cfbc87d765979",
        url: "https://dataverse.harvard.edu/api/access/datafile/:persistentId?persistentId=doi:10.7910/DVN/JGVF9A/8FX9BV",
    },
    PublishedFile {
        name: "osm_cellids_800M_uint64",
        spec: Some("osm"),
        keys: 800_000_000,
        width: Width::U64,
        what: "OpenStreetMap cell ids",
        md5: "70670bf41196b9591e07d0128a281b9a",
        url: "https://www.dropbox.com/s/j1d4ufn4fyb4po2/osm_cellids_800M_uint64.zst?dl=1",
    },
];

/// The published file of a name, `.zst` and directories left aside by the caller.
pub fn by_name(name: &str) -> Option<&'static PublishedFile> {
    PUBLISHED.iter().find(|file| file.name == name)
}

impl PublishedFile {
    /// A shell command that downloads the file into `$FPCACHE_DATASETS`, or here if that is not
    /// set, and checks it. Needs curl, zstd and md5sum.
    pub fn download_command(&self) -> String {
        let (name, url, md5) = (self.name, self.url, self.md5);
        format!(
            "curl -fL '{url}' | zstd -d -o \"${{FPCACHE_DATASETS:-.}}/{name}\" && \
             (cd \"${{FPCACHE_DATASETS:-.}}\" && echo '{md5}  {name}' | md5sum -c)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn names_give_the_widths_and_checksums_are_whole() {
        for file in &PUBLISHED {
            assert_eq!(Width::of_file(Path::new(file.name)).unwrap(), file.width);
            assert!(file.md5.len() == 32 && file.md5.bytes().all(|b| b.is_ascii_hexdigit()));
            assert_eq!(by_name(file.name), Some(file));
            let command = file.download_command();
            assert!([file.name, file.md5, file.url].iter().all(|part| command.contains(part)));
        }
    }
}
