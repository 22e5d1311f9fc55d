//! Opening a table that may have to be created first.

use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::layout::TableParameters;

use crate::client::{TableClient, Transport};
use crate::config::{ClientConfig, CreateOptions};
use crate::error::ClientError;
use crate::one_node::with_direct;
use crate::tables::Tables;
use crate::url::{Url, parse_list};

impl<K: BuildKeys> TableClient<K> {
    /// Opens the table that the settings name, and creates it with these parameters if it does not
    /// exist: what a service calls at start-up. Any number of processes may do so at once.
    ///
    /// A table that is there is opened as it is, with whatever parameters and records it has; one
    /// that is there without parameters, because who created it has not set them, gets these. The
    /// table may be one over several memory nodes; one is created by
    /// [`Nodes::create`](crate::Nodes::create), which may be called at every start-up, too.
    ///
    /// Of several memory nodes the first creates it, once every one of them has answered that it
    /// has no such table: while one does not answer, this fails, because that one may have it. So
    /// it does while a table of the name over several memory nodes is being created, loaded or
    /// dropped. All processes must name them in the same order.
    ///
    /// The models of a table at one memory node are fetched, too, if the deadline of the settings
    /// leaves time for it: lookups, whose deadlines may be shorter, find them here.
    ///
    /// ```
    /// use fpcache_client::{ByteClient, ClientConfig, ClientError, RecordShape, TableParameters};
    ///
    /// fn open(url: &str) -> Result<ByteClient, ClientError> {
    ///     let parameters = TableParameters::default().with_shape(RecordShape::varying(200));
    ///     let config = ClientConfig::default().with_table("sessions".parse()?);
    ///     ByteClient::open_or_create(url, config, parameters, Default::default())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Parameters`](ClientError::Parameters) if they are out of range;
    /// [`OtherKeys`](ClientError::OtherKeys) if the table has keys of the other kind; there is no
    /// memory for it;
    /// [`TableNotWhole`](ClientError::TableNotWhole), which passes, unless what makes or drops the
    /// table was broken off: then its text says what to do, and who repeats the call should end
    /// after some time; or as for [`connect_with`](Self::connect_with).
    pub fn open_or_create(
        url: &str,
        config: ClientConfig,
        parameters: TableParameters,
        options: CreateOptions,
    ) -> Result<Self, ClientError> {
        parameters.validate::<K>()?;
        let client = match Self::connect_with(url, config.clone()) {
            Err(ClientError::NoSuchTable { .. }) => Self::create_and_connect(url, config.clone(), options)?,
            opened => opened?,
        };
        // Those of a table over several memory nodes are set when it is created.
        if let Transport::One(direct) = &client.transport {
            with_direct!(direct, core => core.ensure_parameters(parameters, config.deadline))?;
        }
        Ok(client)
    }

    fn create_and_connect(
        url: &str,
        config: ClientConfig,
        options: CreateOptions,
    ) -> Result<Self, ClientError> {
        // At the first, and at no other if that is gone by now: another process would find none
        // there.
        let urls = parse_list(url)?;
        let first = urls.first().map_or_else(String::new, Url::to_string);
        let tables = Tables::connect_with(&first, config.clone())?;
        match tables.create_if_missing(&config.table, KeyKind::of::<K>(), options) {
            // Another client may have created one over several memory nodes: the name is seen when
            // it is opened.
            Ok(_) | Err(ClientError::TableExists { .. }) => Self::connect_with(url, config),
            Err(error) => Err(error),
        }
    }
}
