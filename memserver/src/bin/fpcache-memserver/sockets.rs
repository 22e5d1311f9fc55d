//! How sockets are served, as the command line has it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use fpcache_datasets::time;
use fpcache_fabric::tcp::{ListenOptions, TcpAddress, TlsIdentity, TlsServing};
use fpcache_memserver::capacity;
use fpcache_memserver::daemon::TokenSource;

/// Where lines of tokens are, if not in a file.
const TOKENS: &str = "FPCACHE_NODE_TOKENS";

#[derive(Debug, Args)]
#[command(next_help_heading = "Sockets")]
pub(crate) struct SocketArguments {
    /// Threads that serve sockets [default: the cores but one]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    io_threads: Option<u16>,

    /// How long such a thread goes on looking for more before it sleeps, while that pays off, as in 50us; 0s saves processor time,
    /// and costs a wake-up for every batch [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    spin: Option<Duration>,

    /// Connections over sockets at once: a client has one, and one more for each of its threads that read [default: 1024]. Each
    /// may have a frame of 64 KiB and a request of 1 MiB on its way
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<usize>,

    /// What requests longer than 16 KiB may take of the memory together while they arrive; others wait [default: 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = capacity::parse)]
    request_memory: Option<u64>,

    /// How long a connection may take to greet, and to prove its token, before it is hung up on [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    greeting_time: Option<Duration>,

    /// How long a frame may take to arrive [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    frame_time: Option<Duration>,

    /// How long replies may wait for whoever asked to read them [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    read_time: Option<Duration>,

    /// How long a client over sockets may do nothing, as in 10m [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    idle_time: Option<Duration>,

    /// The certificate that is shown at tcps://, in PEM, with those between it and the authority. SIGHUP has it read again
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Let nobody in at tcps:// without a certificate of one of the authorities in this file, in PEM
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TLS_CLIENT_CA", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// A file of this user alone with the tokens by which clients get in over TCP: a line `write TOKEN` or `read TOKEN` for each, made
    /// by `fpcache-cli token new`. SIGHUP has it read again. Without it FPCACHE_NODE_TOKENS may have such lines, or the same with `;`
    /// between. Addresses that other machines reach need tokens
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Let nobody in without a token over the loopback interface either
    #[arg(long)]
    require_token: bool,
}

impl SocketArguments {
    /// How sockets at these addresses are served.
    pub(crate) fn serving(&self, addresses: &[TcpAddress]) -> anyhow::Result<ListenOptions> {
        let tls = self.tls();
        let is_encrypted = addresses.iter().any(|address| address.trust().is_some());
        ensure!(tls.is_none() || is_encrypted, "--tls-cert is of no use without --listen tcps://HOST:PORT");
        let default = ListenOptions::default();
        let memory = self.request_memory.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(ListenOptions {
            io_threads: self.io_threads.map_or(default.io_threads, usize::from),
            spin: self.spin.unwrap_or(default.spin),
            max_connections: self.max_connections.unwrap_or(default.max_connections),
            request_memory: memory.unwrap_or(default.request_memory),
            greeting_time: self.greeting_time.unwrap_or(default.greeting_time),
            frame_time: self.frame_time.unwrap_or(default.frame_time),
            read_time: self.read_time.unwrap_or(default.read_time),
            idle_time: self.idle_time.or(default.idle_time),
            require_token: self.require_token,
            tls,
            ..default
        })
    }

    /// Where the tokens are.
    pub(crate) fn tokens(&self) -> Option<TokenSource> {
        let of_environment = || std::env::var(TOKENS).ok().filter(|text| !text.is_empty());
        match &self.token_file {
            Some(file) => Some(TokenSource::File(file.clone())),
            None => of_environment().map(|text| TokenSource::Text { text, place: TOKENS }),
        }
    }

    /// What is shown at addresses with TLS.
    fn tls(&self) -> Option<TlsServing> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        let client_authority = self.tls_client_ca.clone();
        Some(TlsServing { identity: TlsIdentity { certificate, key }, client_authority })
    }
}

/// A time in which a peer is to be able to do something.
fn patience(text: &str) -> Result<Duration, String> {
    /// Less would end every connection over a slow line.
    const LEAST: Duration = Duration::from_millis(10);
    match time::parse(text)? {
        time if time < LEAST => Err(format!("give clients at least {LEAST:?}")),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_get_some_time() {
        assert!(patience("0s").is_err() && patience("9ms").is_err());
        assert_eq!(patience("10ms"), Ok(Duration::from_millis(10)));
    }
}
