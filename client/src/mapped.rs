//! Memory nodes whose regions are mapped into this process.

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache_fabric::shm::{ConnectOptions, ShmAddress, connect};
use fpcache_fabric::{Deadline, FabricError, MappedConnection, RegionName};

use crate::config::ClientConfig;
use crate::core::Connector;
#[cfg(feature = "embedded")]
use crate::embedded::EmbeddedNode;
use crate::open_table::Node;
use crate::url::Url;

/// Where a table lies. All connections are of one type, so that reading is compiled once.
#[derive(Clone)]
pub(crate) enum MappedNode {
    /// In another process.
    Elsewhere { address: ShmAddress, table: TableName },
    /// In this process, whose memory node has one table.
    #[cfg(feature = "embedded")]
    Here(EmbeddedNode),
}

impl MappedNode {
    pub(crate) fn at(address: ShmAddress, table: TableName) -> Self {
        Self::Elsewhere { address, table }
    }
}

impl Node for MappedNode {
    fn beside(&self, config: &ClientConfig) -> Self {
        match self {
            Self::Elsewhere { address, .. } => Self::at(address.clone(), config.table),
            #[cfg(feature = "embedded")]
            Self::Here(node) => Self::Here(node.clone()),
        }
    }

    fn place(&self) -> Option<(Url, TableName)> {
        match self {
            Self::Elsewhere { address, table } => Some((Url::Shm(address.clone()), *table)),
            #[cfg(feature = "embedded")]
            Self::Here(_) => None,
        }
    }
}

impl Connector for MappedNode {
    type Connection = MappedConnection;

    const IS_MAPPED: bool = true;

    fn listed_kind(&self, deadline: Deadline) -> Option<KeyKind> {
        self.kind_in_list(deadline)
    }

    fn connect(&self, deadline: Deadline) -> Result<MappedConnection, FabricError> {
        match self {
            Self::Elsewhere { address, table } => {
                // No name of a table is longer than one of a region.
                let region = RegionName::new(table.as_str()).unwrap_or_default();
                connect(address, ConnectOptions { region, deadline, ..Default::default() })
            }
            #[cfg(feature = "embedded")]
            Self::Here(node) => node.connect(),
        }
    }
}
