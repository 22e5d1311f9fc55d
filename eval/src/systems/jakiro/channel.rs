//! A channel of RF-RPC to a partition, over any transport.

use std::sync::Arc;
use std::time::Duration;

use fpcache_fabric::{Connection, Deadline, SystemClock, shm, tcp};
use fpcache_rf_rpc::{Client, ClientOptions, Mode, Results, Sent};

const PATIENCE: Duration = Duration::from_secs(30);

/// A channel, with at most one batch under way.
pub struct Channel {
    client: Way,
    sent: Option<Sent>,
}

enum Way {
    Mapped(Box<Client<shm::ShmConnection>>),
    Sockets(Box<Client<tcp::TcpConnection>>),
}

impl Channel {
    /// Opens one; with a mode, all results come that way.
    pub fn open(address: &str, mode: Option<Mode>) -> anyhow::Result<Self> {
        let client = match address.starts_with("shm:") {
            true => {
                let connection = shm::connect(&address.parse()?, shm::ConnectOptions::default())?;
                // A fetch takes tens of nanoseconds there.
                Way::Mapped(Box::new(client(connection, 200, mode)?))
            }
            false => {
                let connection = tcp::connect(&address.parse()?, tcp::ConnectOptions::default())?;
                Way::Sockets(Box::new(client(connection, 5, mode)?))
            }
        };
        Ok(Self { client, sent: None })
    }

    /// Sends requests of one RPC.
    pub fn send(&mut self, rpc: u16, requests: &[Vec<u8>]) -> anyhow::Result<()> {
        let deadline = Deadline::after(PATIENCE);
        self.sent = Some(match &mut self.client {
            Way::Mapped(client) => client.send(rpc, requests, deadline)?,
            Way::Sockets(client) => client.send(rpc, requests, deadline)?,
        });
        Ok(())
    }

    /// Receives the results of what was sent last.
    pub fn receive(&mut self, results: &mut Results) -> anyhow::Result<()> {
        let (Some(sent), deadline) = (self.sent.take(), Deadline::after(PATIENCE)) else { return Ok(()) };
        match &mut self.client {
            Way::Mapped(client) => client.recv(sent, results, deadline)?,
            Way::Sockets(client) => client.recv(sent, results, deadline)?,
        }
        Ok(())
    }
}

fn client<C: Connection>(connection: C, retries: u32, fixed: Option<Mode>) -> anyhow::Result<Client<C>> {
    let options = ClientOptions { retries, fixed, ..ClientOptions::default() };
    Ok(Client::open(connection, options, Arc::new(SystemClock), Deadline::after(PATIENCE))?)
}
