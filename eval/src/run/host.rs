//! The memory node of an experiment, and clients of it.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::time::Duration;

use anyhow::{Context, ensure};
use fpcache_client::{ClientConfig, CreateOptions, Nodes, TableClient, TableName, TableParameters};
use fpcache_datasets::{Bar, KeySet};

use crate::data::{DataKeys, DataSet};
use crate::node::Node;
use crate::run::options::RunArgs;
use crate::run::transport::Transport;
use crate::run::values::ValueBytes;
use crate::systems::SystemName;
use crate::systems::fpcache::{self, FpCache};

/// A memory node that holds a data set, or will with the first client.
#[derive(Debug)]
pub struct Host<K> {
    place: Place,
    parameters: TableParameters,
    values: ValueBytes,
    /// How long loading took, once it was done here.
    load: Option<Duration>,
    _keys: PhantomData<K>,
}

#[derive(Debug)]
enum Place {
    /// A second process of this program.
    Node(Node),
    /// Several such, each with a range of the keys.
    Nodes(Divided),
    /// One that others started, which holds the data set already.
    Url(String),
    /// Inside this process: every client has one of its own, of this many bytes.
    Local(u64),
}

impl<K: DataKeys> Host<K> {
    /// The memory node that the options ask for. `ordinal` tells those of this process apart. To be
    /// called by the main thread, as [`Node::start`].
    ///
    /// # Errors
    /// If the second process cannot be had.
    pub fn start(arguments: &RunArgs, dataset: &K::Set, ordinal: u32) -> anyhow::Result<Self> {
        let (parameters, values) = (arguments.table(&dataset.lengths()), arguments.value_bytes);
        let capacity = || arguments.region_bytes::<K>(&dataset.lengths(), dataset.len() as u64);
        let place = match (&arguments.url, arguments.transport) {
            (Some(url), _) => Place::Url(url.clone()),
            (None, Transport::Local) => Place::Local(capacity()),
            (None, _) if arguments.nodes > 1 => {
                let among = (arguments.nodes, arguments.transport);
                Place::Nodes(Divided::start::<K>(arguments, among, dataset, ordinal)?)
            }
            (None, over) => Place::Node(Node::start_over::<K>(&[over], arguments.node(capacity(), ordinal))?),
        };
        Ok(Self { place, parameters, values, load: None, _keys: PhantomData })
    }

    /// A memory node that others started, which holds the data set already.
    pub fn at(url: &str, parameters: TableParameters, values: ValueBytes) -> Self {
        Self { place: Place::Url(url.to_owned()), parameters, values, load: None, _keys: PhantomData }
    }

    /// Whether all clients use the same memory node, so that one costs nothing but its models.
    pub fn is_shared(&self) -> bool {
        !matches!(self.place, Place::Local(_))
    }

    /// A client with these settings, whatever the memory node holds.
    ///
    /// # Errors
    /// If the memory node is gone.
    pub fn connect(&self, config: ClientConfig) -> anyhow::Result<TableClient<K>> {
        Ok(match &self.place {
            Place::Node(node) => TableClient::connect_with(node.url(), config)?,
            Place::Nodes(nodes) => nodes.connect(config)?,
            Place::Url(url) => TableClient::connect_with(url, config)?,
            Place::Local(capacity) => {
                let capacity = usize::try_from(*capacity).unwrap_or(usize::MAX);
                TableClient::embedded_with(capacity, config)?
            }
        })
    }

    /// A client with these settings, of a memory node that holds the data set; the first one loads
    /// it.
    ///
    /// # Errors
    /// If the memory node is gone, cannot hold the data, or holds others; if the budget is too
    /// small.
    pub fn open(&mut self, dataset: &K::Set, config: ClientConfig, bar: &Bar) -> anyhow::Result<FpCache<K>> {
        let client = self.connect(config.clone())?;
        match &self.place {
            Place::Url(url) => holds_as_many::<K>(&client, url, dataset)?,
            Place::Node(_) | Place::Nodes(_) if self.load.is_some() => {}
            Place::Node(_) | Place::Nodes(_) | Place::Local(_) => {
                self.load = Some(fpcache::load(&client, dataset, self.values, self.parameters, bar)?);
                bar.during("waiting for merged pages", 1, || self.wait_for_pages());
            }
        }
        FpCache::open(client, SystemName::Fpcache.as_str(), &config, self.load)
    }

    fn wait_for_pages(&self) {
        match &self.place {
            Place::Node(node) => node.wait_for_pages(),
            Place::Nodes(nodes) => nodes.0.iter().for_each(Node::wait_for_pages),
            Place::Url(_) | Place::Local(_) => {}
        }
    }

    /// Adds to an error that the memory node has ended, if there is one and it has.
    pub fn explain_any(host: Option<&mut Self>, error: anyhow::Error) -> anyhow::Error {
        match host {
            Some(host) => host.explain(error),
            None => error,
        }
    }

    /// Adds to an error that the memory node has ended, if so.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match &mut self.place {
            Place::Node(node) => node.explain(error),
            Place::Nodes(nodes) => nodes.0.iter_mut().fold(error, |error, node| node.explain(error)),
            Place::Url(_) | Place::Local(_) => error,
        }
    }
}

/// Memory nodes with a table that is divided among them.
#[derive(Debug)]
pub struct Divided(Vec<Node>);

impl Divided {
    /// `count` memory nodes, reached in this way, with an empty table that is divided at the data
    /// set's keys, as many to each. To be called by the main thread, as [`Node::start`].
    ///
    /// # Errors
    /// If there are fewer keys, or a process cannot be had.
    pub fn start<K: DataKeys>(
        arguments: &RunArgs,
        (count, way): (u32, Transport),
        dataset: &K::Set,
        ordinal: u32,
    ) -> anyhow::Result<Self> {
        /// More than there are ordinals of other memory nodes.
        const FIRST: u32 = 1000;
        let len = dataset.len();
        ensure!(
            len >= count as usize,
            "{} has {len} keys, too few for {count} memory nodes: have more of these or fewer of those",
            dataset.name()
        );
        let capacity = arguments.region_bytes::<K>(&dataset.lengths(), (len as u64).div_ceil(count.into()));
        let start = |number| {
            let ordinal = FIRST + ordinal * count + number;
            Node::start_over::<K>(&[way], arguments.node(capacity, ordinal))
        };
        let nodes = Self((0..count).map(start).collect::<anyhow::Result<_>>()?);
        let mut buffer = Vec::new();
        let split_at: Vec<K::Owned> = (1..count as usize)
            .map(|i| dataset.key(i * len / count as usize, &mut buffer).borrow().to_owned())
            .collect();
        let table = Nodes::at(&nodes.urls())?;
        table.begin::<K>(&Self::table()?, &split_at, CreateOptions::default())?.finish()?;
        Ok(nodes)
    }

    /// A client of the table.
    ///
    /// # Errors
    /// If a memory node is gone.
    pub fn connect<K: DataKeys>(&self, config: ClientConfig) -> anyhow::Result<TableClient<K>> {
        Ok(TableClient::connect_with(&self.urls(), config.with_table(Self::table()?))?)
    }

    /// The memory nodes' processes.
    pub fn process_ids(&self) -> Vec<u32> {
        self.0.iter().map(Node::process_id).collect()
    }

    fn table() -> anyhow::Result<TableName> {
        Ok("divided".parse()?)
    }

    fn urls(&self) -> String {
        self.0.iter().map(Node::url).collect::<Vec<_>>().join(",")
    }
}

fn holds_as_many<K: DataKeys>(client: &TableClient<K>, url: &str, dataset: &K::Set) -> anyhow::Result<()> {
    let held = client.table().with_context(|| format!("opening the memory node {url}"))?.record.keys;
    ensure!(
        held == dataset.len() as u64,
        "the memory node {url} holds {held} keys, {} has {}: load that data set into it (fpcache-cli --url {url} load \
         {}), or name the one it holds",
        dataset.name(),
        dataset.len(),
        dataset.name(),
    );
    Ok(())
}
