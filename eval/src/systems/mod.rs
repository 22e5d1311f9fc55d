//! The systems that are measured, behind one trait.
//!
//! A system is a type that implements [`System`]. The passes of
//! [`measure`](mod@crate::run::measure) are compiled for each, so that measured loops have no
//! dynamic dispatch.

pub mod fpcache;
pub mod jakiro;
#[cfg(feature = "lmdb")]
pub mod lmdb;
pub mod maps;
pub mod memcached;
pub mod redis;
pub mod server;
pub mod socket;
pub mod tasks;

use std::time::Duration;

use clap::ValueEnum;
use fpcache_client::{CacheConfig, CacheStats, Found, PlanChoice, TableParameters};

use crate::data::DataKeys;

/// The systems there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SystemName {
    /// FPCache: keys in a memory node, a reader per thread
    Fpcache,
    /// The same memory node, by a handle that threads share
    FpcacheClient,
    /// A hash map in this process: hashbrown with CityHash64
    Hashmap,
    /// An ordered map in this process: the standard library's BTreeMap
    Btreemap,
    /// Jakiro, of the RF-RPC paper: a hash table in a second process, asked by RF-RPC
    Jakiro,
    /// The same server, whose results it sends instead of having them fetched
    JakiroReply,
    /// In a model of network cards: fpcache's segments READ as ranges
    Range,
    /// The same behind Bloom filters on compute nodes
    Bloom,
    /// The same behind cuckoo filters
    Cuckoo,
    /// In a model of network cards: SMART
    Smart,
    /// CHIME
    Chime,
    /// ROLEX
    Rolex,
    /// Sherman
    Sherman,
    /// DMTree
    Dmtree,
}

impl SystemName {
    /// As options and reports spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fpcache => "fpcache",
            Self::FpcacheClient => "fpcache-client",
            Self::Hashmap => "hashmap",
            Self::Btreemap => "btreemap",
            Self::Jakiro => "jakiro",
            Self::JakiroReply => "jakiro-reply",
            Self::Range => "range",
            Self::Bloom => "bloom",
            Self::Cuckoo => "cuckoo",
            Self::Smart => "smart",
            Self::Chime => "chime",
            Self::Rolex => "rolex",
            Self::Sherman => "sherman",
            Self::Dmtree => "dmtree",
        }
    }

    /// Whether it runs in a model of network cards alone.
    pub const fn is_modelled(self) -> bool {
        match self {
            Self::Fpcache
            | Self::FpcacheClient
            | Self::Hashmap
            | Self::Btreemap
            | Self::Jakiro
            | Self::JakiroReply => false,
            Self::Range
            | Self::Bloom
            | Self::Cuckoo
            | Self::Smart
            | Self::Chime
            | Self::Rolex
            | Self::Sherman
            | Self::Dmtree => true,
        }
    }
}

/// A loaded system that answers lookups.
pub trait System: Sync {
    /// Its keys.
    type Keys: DataKeys;
    /// One thread's way to look things up.
    type Reader<'a>: Reader<Self::Keys>
    where
        Self: 'a;

    /// As reports spell it.
    fn name(&self) -> &str;

    /// What it is made of.
    fn facts(&self) -> Facts;

    /// A reader for the calling thread.
    fn reader(&self) -> Self::Reader<'_>;

    /// What the compute node keeps and how far that helped, if it keeps anything within a budget.
    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>> {
        Ok(None)
    }

    /// Empties the hot cache, if there is one.
    fn clear_cache(&self) {}

    /// Processor time that the process which serves it has had so far, if that is another one and
    /// it can be told.
    fn server_cpu(&self) -> Option<Duration> {
        None
    }
}

/// Looks keys up and leaves the answers in buffers of its own, which it keeps: no call allocates
/// once they have grown to the size of the answers.
pub trait Reader<K: DataKeys> {
    /// The value of `key`, copied into this reader.
    fn get(&mut self, key: K::View<'_>) -> anyhow::Result<Option<&[u8]>>;

    /// As [`get`](Self::get), and what it cost, for systems that read from a memory node.
    fn get_with_cost(&mut self, key: K::View<'_>) -> anyhow::Result<(Option<&[u8]>, Option<Found>)> {
        Ok((self.get(key)?, None))
    }

    /// Looks up a group of keys.
    fn get_many(&mut self, keys: &[K::View<'_>]) -> anyhow::Result<()>;

    /// The value of the `index`-th key of the last group.
    fn answer(&self, index: usize) -> Option<&[u8]>;

    /// What the `index`-th key of the last group cost, for systems that read from a memory node.
    fn cost(&self, index: usize) -> Option<Found> {
        let _ = index;
        None
    }
}

/// What a loaded system is made of. What does not apply to it is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Seconds until the data were in the memory node.
    pub load: Option<Duration>,
    /// Time until this process could look up: building a map, or fetching directory and models.
    pub build: Duration,
    /// How a server of its own is reached, if it is not a memory node's table.
    pub transport: Option<&'static str>,
    /// Choices of the table in the memory node.
    pub table: Option<TableParameters>,
    /// How keys are read.
    pub plan: Option<PlanChoice>,
    /// The budget of the compute node and how it is used.
    pub cache: Option<CacheConfig>,
    /// Segments in the memory node.
    pub segments: Option<u64>,
    /// Bytes in use at the memory node.
    pub memory_node_bytes: Option<u64>,
    /// Bytes of models and directory in this process.
    pub model_bytes: Option<u64>,
    /// All bytes the system holds in this process; with a budget, what is used of it by the end
    /// counts instead.
    pub process_bytes: u64,
}
