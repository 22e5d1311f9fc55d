//! Command-line options for serving sockets.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use clap::builder::BoolishValueParser;
use fpcache_datasets::time;
use fpcache_fabric::tcp::{ListenOptions, TcpAddress, TlsIdentity, TlsServing};
use fpcache_memserver::capacity;
use fpcache_memserver::daemon::TokenSource;

/// Environment variable with the lines of tokens, if they are not in a file.
const TOKENS: &str = "FPCACHE_NODE_TOKENS";

#[derive(Debug, Args)]
#[command(next_help_heading = "Sockets")]
pub(crate) struct SocketArguments {
    /// Threads that serve sockets [default: one fewer than the cores]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256), env = "FPCACHE_IO_THREADS")]
    io_threads: Option<u16>,

    /// How long such a thread spins for more requests before it sleeps, as long as that pays off;
    /// 0s saves processor time but costs a wake-up for every batch [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = time::parse, env = "FPCACHE_SPIN")]
    spin: Option<Duration>,

    /// Limit of connections over sockets: a client has one, plus one for each of its reading
    /// threads, and fpcache-cli up to three. Each may be sending a frame of 64 KiB and a request of
    /// 1 MiB [default: 1024]
    #[arg(long, value_name = "COUNT", env = "FPCACHE_MAX_CONNECTIONS")]
    max_connections: Option<usize>,

    /// Memory for requests longer than 16 KiB while they are received; further ones wait [default:
    /// 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = capacity::parse, env = "FPCACHE_REQUEST_MEMORY")]
    request_memory: Option<u64>,

    /// Time limit for the handshake of a connection [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = patience, env = "FPCACHE_GREETING_TIME")]
    greeting_time: Option<Duration>,

    /// Time limit for receiving a frame [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = patience, env = "FPCACHE_FRAME_TIME")]
    frame_time: Option<Duration>,

    /// Time limit for a client to read its replies [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = patience, env = "FPCACHE_READ_TIME")]
    read_time: Option<Duration>,

    /// Time after which an idle connection is closed, such as 10m [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = patience, env = "FPCACHE_IDLE_TIME")]
    idle_time: Option<Duration>,

    /// With --listen rdma://: how long clients may believe what they know of the reuse of memory,
    /// so that absent keys cost them no extra round trip; memory that is reused waits for as long.
    /// 0s if the clock of this machine may stop while its network card goes on, as that of a
    /// virtual machine that is paused [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = lease, env = "FPCACHE_CARD_LEASE")]
    card_lease: Option<Duration>,

    /// Certificate chain for tcps://, in PEM. Reloaded on SIGHUP
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its private key, in PEM, readable by this user only
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Require client certificates at tcps://, issued by one of the authorities in this PEM file
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TLS_CLIENT_CA", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// File with the tokens of clients over TCP, readable by this user only: a line `write TOKEN`
    /// or `read TOKEN` for each, created with `fpcache-cli token new`. Reloaded on SIGHUP. Without
    /// it, FPCACHE_NODE_TOKENS may hold the lines, separated by newlines or `;`. Addresses that
    /// other machines can reach need tokens
    #[arg(long, value_name = "FILE", env = "FPCACHE_NODE_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Require tokens over the loopback interface, too
    #[arg(long, value_parser = BoolishValueParser::new(), env = "FPCACHE_REQUIRE_TOKEN")]
    require_token: bool,
}

impl SocketArguments {
    /// How sockets at these addresses are served.
    pub(crate) fn serving(&self, addresses: &[TcpAddress]) -> anyhow::Result<ListenOptions> {
        let tls = self.tls();
        let is_encrypted = addresses.iter().any(|address| address.trust().is_some());
        ensure!(tls.is_none() || is_encrypted, "--tls-cert needs --listen tcps://HOST:PORT");
        let is_of_tokens = |address: &TcpAddress| !address.to_string().starts_with("tcp+unix://");
        ensure!(
            !self.require_token || addresses.iter().any(is_of_tokens),
            "--require-token needs --listen tcp://HOST:PORT: users of this machine's shared memory and unix sockets have no tokens"
        );
        ensure!(
            self.max_connections != Some(0) || addresses.is_empty(),
            "--max-connections 0: no client could connect to {}; allow one or more, or omit that --listen",
            addresses.first().map_or_else(String::new, ToString::to_string)
        );
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

    /// The lease of clients that read by network cards at these addresses, if one is asked for.
    pub(crate) fn card_lease(&self, addresses: &[TcpAddress]) -> anyhow::Result<Option<Duration>> {
        let has_cards = addresses.iter().any(|address| address.card().is_some());
        ensure!(self.card_lease.is_none() || has_cards, "--card-lease needs --listen rdma://HOST:PORT");
        Ok(self.card_lease)
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

/// Parses the length of a lease.
fn lease(text: &str) -> Result<Duration, String> {
    /// Writes may wait for one.
    const LONGEST: Duration = Duration::from_secs(1);
    match time::parse(text)? {
        time if time > LONGEST => Err(format!("writes may have to wait for it: give at most {LONGEST:?}")),
        time => Ok(time),
    }
}

/// Parses a time limit for a peer.
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

    /// The first let nobody in, the second was of no effect.
    #[test]
    fn options_that_make_no_sense_at_the_addresses_are_refused() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            sockets: SocketArguments,
        }
        let serving = |option: &str, addresses: &[&str]| {
            let words = ["memserver"].into_iter().chain(option.split(' '));
            let only: Only = clap::Parser::try_parse_from(words).expect("options");
            let addresses: Vec<TcpAddress> =
                addresses.iter().map(|address| address.parse().expect("an address")).collect();
            only.sockets.serving(&addresses).map(drop).map_err(|error| error.to_string())
        };
        let tcp = ["tcp+unix:///run/a.sock", "tcp://127.0.0.1:7400"];
        assert!(serving("--max-connections 0", &tcp).is_err_and(|why| why.contains("no client")));
        assert_eq!(serving("--max-connections 0", &[]), Ok(()));
        assert_eq!(serving("--max-connections 1", &tcp), Ok(()));
        for without in [&tcp[..1], &[]] {
            assert!(serving("--require-token", without).is_err_and(|why| why.contains("--listen tcp://")));
        }
        assert_eq!(serving("--require-token", &tcp), Ok(()));
    }

    #[test]
    fn writes_wait_for_a_second_at_most() {
        assert!(lease("2s").is_err());
        assert_eq!((lease("0s"), lease("500us")), (Ok(Duration::ZERO), Ok(Duration::from_micros(500))));
    }

    #[test]
    fn peers_get_some_time() {
        assert!(patience("0s").is_err() && patience("9ms").is_err());
        assert_eq!(patience("10ms"), Ok(Duration::from_millis(10)));
    }
}
