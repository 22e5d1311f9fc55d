//! How a client behaves.

use std::time::Duration;

use fpcache::TableName;
use fpcache::cache::CacheConfig;
use fpcache::read::{FabricCosts, PlanChoice};
use fpcache::table::TableOptions;
use fpcache_fabric::tcp::Token;

/// How a client behaves.
///
/// ```
/// use fpcache_client::{CacheConfig, ClientConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ClientConfig::default().with_table("orders".parse()?).with_cache(CacheConfig::of(64 << 20));
/// assert_eq!(config.table.as_str(), "orders");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Which table of the memory node; `default` unless told. Embedded memory nodes have one, whatever it is called.
    pub table: TableName,
    /// Which plan lookups use.
    pub plan: PlanChoice,
    /// How long a call may take before it fails; [`with_deadline`](crate::TableClient::with_deadline) of a client
    /// changes it for single calls. Values of many MiB take some milliseconds each. Scans and counts may take longer, as long as they get on.
    pub deadline: Duration,
    /// How long opening waits for a memory node that does not listen yet; not at all unless told.
    pub wait: Duration,
    /// How long a thread that waits for a memory node over sockets looks before it sleeps, while that pays off. Zero saves processor
    /// time, and costs a wake-up for every batch.
    pub spin: Duration,
    /// The token by which the client gets in over TCP; `None`: that of the environment, `FPCACHE_TOKEN`, or the one in the file
    /// that `FPCACHE_TOKEN_FILE` names, if any.
    pub token: Option<Token>,
    /// What this compute node may keep; `None`: all models, and no hot cache.
    pub cache: Option<CacheConfig>,
    /// What about reading is broken on purpose.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<fpcache::sabotage::Sabotage>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            table: TableName::default(),
            plan: PlanChoice::Auto,
            deadline: Duration::from_secs(5),
            wait: Duration::ZERO,
            spin: Duration::from_micros(50),
            token: None,
            cache: None,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}

impl ClientConfig {
    /// The same of another table.
    #[must_use]
    pub fn with_table(self, table: TableName) -> Self {
        Self { table, ..self }
    }

    /// The same with another choice of plans.
    #[must_use]
    pub fn with_plan(self, plan: PlanChoice) -> Self {
        Self { plan, ..self }
    }

    /// The same with another deadline of calls.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The same with a budget for what this compute node may keep, or without one.
    #[must_use]
    pub fn with_cache(self, cache: impl Into<Option<CacheConfig>>) -> Self {
        Self { cache: cache.into(), ..self }
    }

    /// The same, but opening waits as long for a memory node that is not there yet.
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// The same, but threads that wait for a memory node over sockets look as long before they sleep.
    #[must_use]
    pub fn with_spin(self, spin: Duration) -> Self {
        Self { spin, ..self }
    }

    /// The same with a token to get in by over TCP.
    #[must_use]
    pub fn with_token(self, token: impl Into<Option<Token>>) -> Self {
        Self { token: token.into(), ..self }
    }

    /// The same with something about reading broken on purpose.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn with_sabotage(self, sabotage: fpcache::sabotage::Sabotage) -> Self {
        Self { sabotage: Some(sabotage), ..self }
    }

    /// How tables are read over a fabric of these costs.
    pub(crate) fn table_options(&self, costs: FabricCosts) -> TableOptions {
        TableOptions {
            costs,
            cache: self.cache,
            #[cfg(feature = "sabotage")]
            sabotage: self.sabotage,
            ..TableOptions::plan(self.plan)
        }
    }
}
