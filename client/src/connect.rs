//! Constructors of clients: connecting, sharing a connection, embedding a memory node.

use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
#[cfg(feature = "sim")]
use fpcache::plan::FabricCosts;
use fpcache_fabric::FabricError;

use crate::access::token_for;
#[cfg(doc)]
use crate::client::Client;
use crate::client::{TableClient, Transport};
use crate::config::ClientConfig;
#[cfg(feature = "sim")]
use crate::core::Core;
use crate::error::ClientError;
use crate::mapped::MappedNode;
use crate::one_node::{Shared, SharedCore};
use crate::open_table::Node;
use crate::pool::{Looked, Pool};
use crate::remote::RemoteNode;
use crate::url::{Url, parse_list};
use crate::waiting::retry_while_away;

impl<K: BuildKeys> TableClient<K> {
    /// Connects to the table `default` of the memory node at `url`, for example `shm://fpcache`.
    ///
    /// # Errors
    /// As for [`connect_with`](Self::connect_with).
    pub fn connect(url: &str) -> Result<Self, ClientError> {
        Self::connect_with(url, ClientConfig::default())
    }

    /// Connects with settings, to the table that they name. Its keys must be of this client's kind.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// use fpcache_client::{ByteClient, ClientConfig};
    /// let config = ClientConfig::default().with_table("paths".parse()?);
    /// let paths = ByteClient::connect_with("tcp://127.0.0.1:7400", config)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An invalid URL, no memory node there or one of another release, no such table or one that is
    /// not whole, no permission, or [`OtherKeys`](ClientError::OtherKeys).
    pub fn connect_with(url: &str, config: ClientConfig) -> Result<Self, ClientError> {
        Self::connect_at(&parse_list(url)?, &config)
    }

    /// Connects to the first of these memory nodes that has the table, or a range of it, once one
    /// of them listens. Fails with [`NoSuchTable`](ClientError::NoSuchTable) only if every one of
    /// them answers that it has none.
    fn connect_at(urls: &[Url], config: &ClientConfig) -> Result<Self, ClientError> {
        // Waiting for one must not keep the others from being asked, nor take their time.
        let now = config.clone().with_wait(Duration::ZERO);
        retry_while_away(config.wait, || Self::connect_now(urls, &now))
    }

    fn connect_now(urls: &[Url], config: &ClientConfig) -> Result<Self, ClientError> {
        let names: Vec<String> = urls.iter().map(Url::to_string).collect();
        let (begun, mut failure) = (Instant::now(), None);
        for (at, url) in urls.iter().enumerate() {
            // One that is silent leaves the others their share of the time.
            let left = config.deadline.saturating_sub(begun.elapsed());
            match Self::open_one(url, config, left / (urls.len() - at) as u32) {
                Ok(direct) => return Ok(Self::of(Transport::One(direct), &names.join(","), config)),
                Err(error) => {
                    // Of ranges that are closed, others may have the map.
                    let may_be_over =
                        matches!(error, ClientError::NoSuchTable { .. } | ClientError::TableClosed { .. });
                    failure = Some(choose_failure(failure, error));
                    if !may_be_over {
                        continue;
                    }
                    match Pool::open(urls, config, config.deadline.saturating_sub(begun.elapsed()))? {
                        Looked::Found(pool) => {
                            return Ok(Self::of(Transport::Pool(pool), &names.join(","), config));
                        }
                        Looked::Unknown(error) => failure = Some(choose_failure(failure, error)),
                        Looked::Nothing => {}
                    }
                }
            }
        }
        let no_url = || ClientError::from(FabricError::DeadlinePassed { waiting_for: "a URL" });
        Err(failure.unwrap_or_else(no_url))
    }

    /// Connects to a table of one memory node.
    fn open_one(url: &Url, config: &ClientConfig, within: Duration) -> Result<SharedCore<K>, ClientError> {
        let config = &config.clone().with_token(token_for(url, config.token)?);
        let now = &config.clone().with_deadline(within);
        Ok(match url {
            Url::Shm(address) => SharedCore::Mapped(MappedNode::at(address.clone(), config.table).open(now)?),
            Url::Tcp(address) => SharedCore::Remote(RemoteNode::at(address.clone(), config).open(now)?),
        })
    }

    /// A client over this connection, for the table of these settings.
    pub(crate) fn of(transport: Transport<K, Shared>, name: &str, config: &ClientConfig) -> Self {
        Self { transport, name: name.into(), table: config.table, deadline: config.deadline }
    }

    /// Starts a memory node with `capacity` bytes in this process, and returns a client of its only
    /// table. It ends with the last handle.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    #[cfg(feature = "embedded")]
    pub fn embedded(capacity: usize) -> Result<Self, ClientError> {
        Self::embedded_with(capacity, ClientConfig::default())
    }

    /// As [`embedded`](Self::embedded), with settings.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    #[cfg(feature = "embedded")]
    pub fn embedded_with(capacity: usize, config: ClientConfig) -> Result<Self, ClientError> {
        let node = MappedNode::Here(crate::embedded::EmbeddedNode::start::<K>(capacity)?);
        let transport = Transport::One(SharedCore::Mapped(node.open(&config)?));
        Ok(Self::of(transport, "embedded", &config))
    }

    /// Another client of the same memory node, with its own settings and connections, for the table
    /// that the settings name.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn beside(&self, config: ClientConfig) -> Result<Self, ClientError> {
        let direct = match &self.transport {
            Transport::Pool(pool) => {
                let token = config.token.or(pool.token());
                let config = config.with_token(token);
                return Self::connect_at(pool.urls(), &config);
            }
            Transport::One(direct) => direct,
        };
        let direct = match direct {
            SharedCore::Mapped(core) => SharedCore::Mapped(core.connector().beside(&config).open(&config)?),
            SharedCore::Remote(core) => SharedCore::Remote(core.connector().beside(&config).open(&config)?),
            #[cfg(feature = "sim")]
            SharedCore::Simulated(core) => {
                let options = config.table_options(FabricCosts::MAPPED_MEMORY);
                SharedCore::Simulated(Core::connect(core.connector().clone(), options, config.deadline)?)
            }
        };
        Ok(Self::of(Transport::One(direct), &self.name, &config))
    }

    /// A client of a memory node in a simulated world, for one process of that world.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    #[cfg(feature = "sim")]
    pub fn simulated(
        sim: &fpcache_sim::Sim,
        node: fpcache_sim::NodeId,
        config: ClientConfig,
    ) -> Result<Self, ClientError> {
        let connector = crate::simulated::SimulatedNode::new(sim, node);
        let core =
            Core::connect(connector, config.table_options(FabricCosts::MAPPED_MEMORY), config.deadline)?;
        Ok(Self::of(Transport::One(SharedCore::Simulated(core)), "simulated", &config))
    }
}

/// Of the failures at two memory nodes the first, but one that has no such table says nothing of
/// another that does not answer, and that may have it.
fn choose_failure(first: Option<ClientError>, next: ClientError) -> ClientError {
    match first {
        Some(first) if !matches!(first, ClientError::NoSuchTable { .. }) => first,
        Some(first) if matches!(next, ClientError::NoSuchTable { .. }) => first,
        _ => next,
    }
}
