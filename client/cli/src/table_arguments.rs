//! The memory node and the table that a command is about.

use std::time::Duration;

use fpcache_client::{BuildKeys, ClientConfig, ClientError, Nodes, TableClient, TableName, Tables, Token};

/// The location of a table, and the time limit of requests.
#[derive(Clone, Debug)]
pub(crate) struct TableArguments {
    pub(crate) url: String,
    /// Whether the URL is from the command line, and not from the environment or the default.
    pub(crate) is_url_explicit: bool,
    pub(crate) table: TableName,
    pub(crate) deadline: Duration,
    /// The token for TCP; if `None`, the one of the environment.
    pub(crate) token: Option<Token>,
}

impl TableArguments {
    /// The memory node's tables.
    pub(crate) fn tables(&self) -> Result<Tables, ClientError> {
        Tables::connect_with(&self.url, self.config())
    }

    /// The same table at these memory nodes.
    pub(crate) fn at(&self, nodes: &Nodes) -> Self {
        Self { url: nodes.to_string(), ..self.clone() }
    }

    /// The memory nodes in the URL, for tables over several.
    pub(crate) fn nodes(&self) -> Result<Nodes, ClientError> {
        Nodes::at_with(&self.url, self.config())
    }

    /// Each of the memory nodes in the URL alone.
    pub(crate) fn each(&self) -> Result<Vec<Self>, ClientError> {
        let urls = self.nodes()?;
        Ok(urls.urls().map(|url| Self { url: url.to_string(), ..self.clone() }).collect())
    }

    /// Why its memory node could not be asked, with its URL.
    pub(crate) fn why(&self, error: &ClientError) -> String {
        let said = error.to_string();
        if said.contains(&self.url) { said } else { format!("{}: {said}", self.url) }
    }

    /// A client of the table.
    pub(crate) fn client<K: BuildKeys>(&self) -> Result<TableClient<K>, ClientError> {
        TableClient::connect_with(&self.url, self.config())
    }

    /// The settings of its clients.
    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig::default().with_table(self.table).with_deadline(self.deadline).with_token(self.token)
    }
}
