//! Encodings of the content of files: plain or compressed.

use std::path::Path;

/// How a file's content is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
    Zstd,
}

impl Encoding {
    /// What the name's last suffix says.
    pub(super) fn of_name(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::Plain,
        }
    }

    /// What the first bytes say: gzip with its only method (RFC 1952, §2.3), or a zstd frame,
    /// skippable or not (RFC 8878, §3.1).
    pub(super) fn of_content(start: &[u8]) -> Self {
        match start {
            [0x1F, 0x8B, 0x08, ..] => Self::Gzip,
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}
