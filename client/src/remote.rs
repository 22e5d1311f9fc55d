//! Memory nodes whose regions are read over sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::plan::FabricCosts;
use fpcache_fabric::tcp::{ConnectOptions, TcpAddress, Token, connect};
use fpcache_fabric::{Deadline, FabricError, RegionName, TcpConnection};

use crate::access::believing;
use crate::config::{ClientConfig, LEAST_PATIENCE};
use crate::core::Connector;
use crate::open_table::Node;
use crate::url::Url;

/// A table of a memory node that is reached over TCP or a unix socket.
#[derive(Clone)]
pub(crate) struct RemoteNode {
    address: TcpAddress,
    table: TableName,
    token: Option<Token>,
    /// How long the memory node may be silent before it counts as gone.
    patience: Duration,
    /// How long a waiting thread spins before it sleeps.
    spin: Duration,
    /// Lookups that are in flight at once.
    concurrency: u32,
    /// Whether it was connected to before. From then on a network card that cannot be used is no
    /// reason to go without the table: sockets read it.
    was_reached: Arc<AtomicBool>,
}

impl RemoteNode {
    pub(crate) fn at(address: TcpAddress, config: &ClientConfig) -> Self {
        // Calls have their deadlines; the connection is not given up for every moment for which a
        // memory node is busy.
        let patience = config.deadline.max(LEAST_PATIENCE);
        let ClientConfig { table, token, spin, concurrency, .. } = *config;
        let (address, was_reached) = (believing(&address), Arc::default());
        Self { address, table, token, patience, spin, concurrency, was_reached }
    }

    /// How long a waiting thread spins before it sleeps.
    #[cfg(feature = "tokio")]
    pub(crate) fn spin(&self) -> Duration {
        self.spin
    }
}

impl Node for RemoteNode {
    fn beside(&self, config: &ClientConfig) -> Self {
        let token = config.token.or(self.token);
        Self { token, ..Self::at(self.address.clone(), config) }
    }

    fn place(&self) -> Option<(Url, TableName)> {
        Some((Url::Tcp(self.address.clone()), self.table))
    }

    fn token(&self) -> Option<Token> {
        self.token
    }

    /// With as many lookups in flight as the client says it has.
    fn costs(&self) -> FabricCosts {
        let costs = if self.address.card().is_some() { FabricCosts::RDMA } else { FabricCosts::TCP };
        costs.at_concurrency(self.concurrency)
    }
}

impl Connector for RemoteNode {
    type Connection = TcpConnection;

    const IS_FAR: bool = true;

    fn listed_kind(&self, deadline: Deadline) -> Option<KeyKind> {
        self.kind_in_list(deadline)
    }

    fn connect(&self, deadline: Deadline) -> Result<TcpConnection, FabricError> {
        // No name of a table is longer than one of a region.
        let region = RegionName::new(self.table.as_str()).unwrap_or_default();
        let options = ConnectOptions {
            region,
            deadline,
            patience: self.patience,
            spin: self.spin,
            token: self.token,
            needs_card: !self.was_reached.load(Ordering::Relaxed),
            ..Default::default()
        };
        let connection = connect(&self.address, options)?;
        self.was_reached.store(true, Ordering::Relaxed);
        Ok(connection)
    }
}
