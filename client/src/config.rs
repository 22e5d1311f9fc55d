//! Settings of clients and of new tables.

use std::time::Duration;

use fpcache::TableName;
use fpcache::cache::CacheConfig;
use fpcache::plan::{FabricCosts, PlanChoice};
use fpcache::sabotage::Sabotage;
use fpcache::table::TableOptions;
use fpcache_fabric::tcp::Token;

/// How long a memory node may be silent at least before it counts as gone.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// The settings of a client.
///
/// ```
/// use fpcache_client::{CacheConfig, ClientConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ClientConfig::default().with_table("orders".parse()?).with_cache(CacheConfig::of(64 << 20));
/// assert_eq!(config.table.as_str(), "orders");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The table; `default` by default. Embedded memory nodes have one table of any name.
    pub table: TableName,
    /// The plan for lookups.
    pub plan: PlanChoice,
    /// About how many lookups of all compute nodes are under way at a time at a memory node that is
    /// reached over a network; 1 by default. [`PlanChoice::Auto`] spares round trips where there
    /// are few, and bytes where there are many.
    pub concurrency: u32,
    /// The deadline of a call; [`with_deadline`](crate::TableClient::with_deadline) of a client
    /// sets another one for single calls. Values of many MiB take some milliseconds each. Scans and
    /// counts may take longer, as long as they make progress.
    ///
    /// A table that takes longer to fetch than a call has is fetched by several reads, which fail
    /// with [`ClientError::Deadline`](crate::ClientError::Deadline) meanwhile: after connecting, a
    /// restart of the memory node, or more changes than its log has room for. Writes over a network
    /// do not wait for it. Over a network a deadline should be at least that of some six round
    /// trips: calls with fewer may fail whenever they have to connect again.
    pub deadline: Duration,
    /// How long opening waits for a memory node that does not listen or answer yet; zero by
    /// default.
    pub wait: Duration,
    /// How long a thread spins for replies over sockets before it sleeps, as long as that pays off.
    /// Zero saves processor time but costs a wake-up for every batch.
    pub spin: Duration,
    /// The token for TCP; `None` for the one in the environment variable `FPCACHE_TOKEN`, or in the
    /// file that `FPCACHE_TOKEN_FILE` names, if any.
    pub token: Option<Token>,
    /// The budget for what this compute node keeps; `None` for all models and no hot cache.
    pub cache: Option<CacheConfig>,
    /// What about reading is broken on purpose.
    pub(crate) sabotage: Option<Sabotage>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            table: TableName::default(),
            plan: PlanChoice::Auto,
            concurrency: 1,
            deadline: Duration::from_secs(5),
            wait: Duration::ZERO,
            spin: Duration::from_micros(50),
            token: None,
            cache: None,
            sabotage: None,
        }
    }
}

impl ClientConfig {
    /// The same for another table.
    #[must_use]
    pub fn with_table(self, table: TableName) -> Self {
        Self { table, ..self }
    }

    /// The same with another plan.
    #[must_use]
    pub fn with_plan(self, plan: PlanChoice) -> Self {
        Self { plan, ..self }
    }

    /// The same where about `concurrency` lookups are under way at a time.
    #[must_use]
    pub fn with_concurrency(self, concurrency: u32) -> Self {
        Self { concurrency, ..self }
    }

    /// The same with another deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The same with another budget, or without one.
    #[must_use]
    pub fn with_cache(self, cache: impl Into<Option<CacheConfig>>) -> Self {
        Self { cache: cache.into(), ..self }
    }

    /// The same, but opening waits this long for a memory node that does not listen or answer yet.
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// The same, but threads that wait for replies over sockets spin this long before they sleep.
    #[must_use]
    pub fn with_spin(self, spin: Duration) -> Self {
        Self { spin, ..self }
    }

    /// The same with a token for TCP.
    #[must_use]
    pub fn with_token(self, token: impl Into<Option<Token>>) -> Self {
        Self { token: token.into(), ..self }
    }

    /// The same with something about reading broken on purpose, or nothing.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_sabotage(self, sabotage: impl Into<Option<Sabotage>>) -> Self {
        Self { sabotage: sabotage.into(), ..self }
    }

    /// How tables are read over a fabric of these costs.
    pub(crate) fn table_options(&self, costs: FabricCosts) -> TableOptions {
        let Self { plan, cache, sabotage, .. } = *self;
        TableOptions { costs, cache, sabotage, ..TableOptions::plan(plan) }
    }
}

/// Options for creating a table.
///
/// ```
/// let options = fpcache_client::CreateOptions::default().with_region_bytes(64 << 20);
/// assert_eq!(options.region_bytes, Some(64 << 20));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Maximum bytes of its region; `None` for the capacity of the memory node. A table takes
    /// memory as it needs it, up to this limit. Its change log takes 1/64 of the region (1/1024
    /// without this option), at most 4 MiB.
    pub region_bytes: Option<u64>,
}

impl CreateOptions {
    /// The same with another limit of the region's bytes, or without one.
    #[must_use]
    pub fn with_region_bytes(self, region_bytes: impl Into<Option<u64>>) -> Self {
        Self { region_bytes: region_bytes.into(), ..self }
    }
}
