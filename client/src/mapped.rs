//! Memory nodes whose regions are mapped into this process, wherever they run.

use std::sync::Arc;

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache_fabric::shm::{ConnectOptions, ShmAddress, connect};
use fpcache_fabric::{Deadline, FabricError, MappedConnection, RegionName};

use crate::client::ClientConfig;
use crate::core::{Connector, Core};
#[cfg(feature = "embedded")]
use crate::embedded::EmbeddedNode;
use crate::error::ClientError;
use crate::tables::{Tables, not_there};

/// Where a table lies. All connections are of one type, so that reading is compiled once.
#[derive(Clone)]
pub(crate) enum MappedNode {
    /// In another process.
    Elsewhere(ShmNode),
    /// In this process, whose memory node has one table.
    #[cfg(feature = "embedded")]
    Here(EmbeddedNode),
}

/// A table of a memory node that is reached over shared memory.
#[derive(Clone)]
pub(crate) struct ShmNode {
    address: ShmAddress,
    table: TableName,
}

impl MappedNode {
    pub(crate) fn at(address: ShmAddress, table: TableName) -> Self {
        Self::Elsewhere(ShmNode { address, table })
    }

    /// The table of this name of the same memory node.
    pub(crate) fn of_table(&self, table: TableName) -> Self {
        match self {
            Self::Elsewhere(ShmNode { address, .. }) => Self::at(address.clone(), table),
            #[cfg(feature = "embedded")]
            Self::Here(node) => Self::Here(node.clone()),
        }
    }

    /// A client of the table, whose keys must be of its kind; or the error that says which tables there are instead.
    pub(crate) fn open<K: BuildKeys>(self, config: &ClientConfig) -> Result<Arc<Core<K, Self>>, ClientError> {
        let core = match (Core::connect(self.clone(), config.table_options(), config.deadline), &self) {
            (Err(ClientError::NoSuchTable { .. }), Self::Elsewhere(ShmNode { address, table })) => {
                return Err(not_there(address, table.as_str(), config.deadline));
            }
            (connected, _) => connected?,
        };
        match self.kind_of(&core, config) {
            Some(theirs) if !theirs.is::<K>() => Err(ClientError::OtherKeys { theirs, own: K::NAME }),
            // What cannot be told now is told by the first call.
            _ => Ok(core),
        }
    }

    /// What the keys of a table are, as far as it can be told.
    fn kind_of<K: BuildKeys>(&self, core: &Core<K, Self>, config: &ClientConfig) -> Option<KeyKind> {
        let told = core.key_kind(config.deadline).ok()?;
        match self {
            // The region of a table without parameters does not say.
            Self::Elsewhere(ShmNode { address, table }) if told.is_none() => {
                let tables = Tables::at(address.clone(), config.deadline).ok()?;
                Some(tables.find(table).ok()??.kind)
            }
            _ => told,
        }
    }
}

impl Connector for MappedNode {
    type Connection = MappedConnection;

    fn connect(&self, deadline: Deadline) -> Result<MappedConnection, FabricError> {
        match self {
            Self::Elsewhere(ShmNode { address, table }) => {
                // No name of a table is longer than one of a region.
                let region = RegionName::new(table.as_str()).unwrap_or_default();
                connect(address, ConnectOptions { region, deadline, ..Default::default() })
            }
            #[cfg(feature = "embedded")]
            Self::Here(node) => node.connect(),
        }
    }
}
