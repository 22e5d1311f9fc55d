//! The systems by name.

use crate::Sizes;

/// A system that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemName {
    /// FPCache.
    FpCache,
    /// FPCache's segments READ as ranges, without fingerprints.
    Range,
    /// The same behind Bloom filters on compute nodes.
    Bloom,
    /// The same behind cuckoo filters.
    Cuckoo,
    /// SMART.
    Smart,
    /// CHIME.
    Chime,
    /// ROLEX.
    Rolex,
    /// Sherman.
    Sherman,
    /// DMTree.
    DmTree,
}

impl SystemName {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::FpCache,
        Self::Range,
        Self::Bloom,
        Self::Cuckoo,
        Self::Smart,
        Self::Chime,
        Self::Rolex,
        Self::Sherman,
        Self::DmTree,
    ];

    /// As options and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FpCache => "fpcache",
            Self::Range => "range",
            Self::Bloom => "bloom",
            Self::Cuckoo => "cuckoo",
            Self::Smart => "smart",
            Self::Chime => "chime",
            Self::Rolex => "rolex",
            Self::Sherman => "sherman",
            Self::DmTree => "dmtree",
        }
    }

    /// About how many bytes of this machine a record takes while the system is measured.
    pub const fn host_bytes(self, sizes: Sizes) -> usize {
        match self {
            // The region as it is, of whose slots 80 % are filled at least unless told otherwise;
            // what of it is free takes no memory before it is written.
            Self::FpCache => (sizes.key + sizes.value + 16) * 13 / 10,
            Self::Smart => 120,
            // Filters of six compute nodes, and the one they are copies of.
            Self::Bloom | Self::Cuckoo => 65,
            Self::Chime => 45,
            Self::Range => 40,
            Self::DmTree => 42,
            Self::Rolex | Self::Sherman => 30,
        }
    }
}

impl std::str::FromStr for SystemName {
    type Err = UnknownSystem;

    fn from_str(text: &str) -> Result<Self, UnknownSystem> {
        Self::ALL.into_iter().find(|name| name.name() == text).ok_or_else(|| UnknownSystem(text.to_owned()))
    }
}

/// A name that is no system's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown system `{0}`: use one of {list}", list = SystemName::ALL.map(SystemName::name).join(", "))]
pub struct UnknownSystem(String);
