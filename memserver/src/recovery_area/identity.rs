//! The owner of a recovery area, as recorded in it.

use fpcache::layout::LAYOUT_VERSION;
use fpcache_fabric::FileIdentity;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: u64 = u64::from_le_bytes(*b"FPNOTES2");
pub(super) const IDENTITY_BYTES: usize = 120;
/// Where the checksum lies in it.
const CHECKSUM: usize = IDENTITY_BYTES - 8;

/// Whose recovery area this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Which start of the machine they were written in, or
    /// [`UNKNOWN_BOOT`](crate::store::UNKNOWN_BOOT), with which no other process goes on; memory
    /// that is no file does not survive another start.
    pub(crate) boot: [u8; 16],
    /// Of the region, the recovery area, the log and the snapshots that belong together.
    pub(crate) lineage: u64,
    /// Of the memory node, and of the one before it: its region may have either while the node
    /// begins.
    pub(crate) incarnation: u64,
    pub(crate) before: u64,
    /// The files of region and recovery area; zeros for memory that is no file.
    pub(crate) files: [FileIdentity; 2],
    /// Bytes of the region that may be used in ordinary life.
    pub(crate) limit: u64,
}

/// Why the identity that was written to a recovery area cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnreadableIdentity {
    /// Another release has.
    #[error("it was written with region layout version {found}, this program uses version {LAYOUT_VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// Its bytes are not what was written.
    #[error("its identity is damaged")]
    Damaged,
}

/// What one of the two places for identities holds.
pub(super) enum StoredIdentity {
    /// Nothing was ever written.
    Nothing,
    /// Of which life, with which version of the layout, and what.
    Identity(u32, u32, Identity),
    /// Something else.
    Damaged,
}

impl Identity {
    /// The bytes of the identity in this life.
    pub(super) fn encode(&self, life: u32) -> [u8; IDENTITY_BYTES] {
        let mut b = [0; IDENTITY_BYTES];
        b[..8].copy_from_slice(&MAGIC.to_le_bytes());
        b[8..12].copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
        b[12..16].copy_from_slice(&life.to_le_bytes());
        b[16..32].copy_from_slice(&self.boot);
        b[32..40].copy_from_slice(&self.lineage.to_le_bytes());
        b[40..48].copy_from_slice(&self.incarnation.to_le_bytes());
        b[48..56].copy_from_slice(&self.before.to_le_bytes());
        let files = self.files.iter().flat_map(|file| [file.device, file.inode, file.born]);
        for (at, word) in (56..).step_by(8).zip(files.chain([self.limit])) {
            b[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let checksum = xxh3_64(&b[..CHECKSUM]);
        b[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        b
    }
}

impl StoredIdentity {
    pub(super) fn in_bytes(b: &[u8; IDENTITY_BYTES]) -> Self {
        if *b == [0; IDENTITY_BYTES] {
            return Self::Nothing;
        }
        let word = |at: usize| b[at..].first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
        if word(0) != MAGIC || word(CHECKSUM) != xxh3_64(&b[..CHECKSUM]) {
            return Self::Damaged;
        }
        let (version, life) = (word(8) as u32, (word(8) >> 32) as u32);
        let file = |at: usize| FileIdentity { device: word(at), inode: word(at + 8), born: word(at + 16) };
        let identity = Identity {
            boot: b[16..].first_chunk().copied().unwrap_or_default(),
            lineage: word(32),
            incarnation: word(40),
            before: word(48),
            files: [file(56), file(80)],
            limit: word(104),
        };
        Self::Identity(life, version, identity)
    }
}
