//! Addresses of memory nodes on other machines, and of sockets that behave alike.

pub(crate) mod error;

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use super::resolving::resolve;
use super::tls::TlsTrust;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::rdma::{CardChoice, DEFAULT_PORT};
use crate::target::Target;
use error::{MAX_PATH, TcpAddressError};

const TCP: &str = "tcp://";
const TCPS: &str = "tcps://";
const RDMA: &str = "rdma://";
const UNIX: &str = "tcp+unix://";

/// `tcp://HOST:PORT`, where HOST is a name, an IPv4 address or an IPv6 address in brackets, or
/// `tcp+unix:///absolute/path.sock`, the same protocol over a unix socket
/// (`tcp+unix://UID@/path.sock` if the memory node is another user's than the client's own or
/// root's), or `rdma://HOST[:PORT][?dev=NAME&gid=INDEX&port=NUMBER&…]`, the same with reading by
/// network cards (see [`rdma`](crate::rdma)), or `tcps://HOST:PORT[?ca=FILE&cert=FILE&key=FILE]`,
/// the same beneath TLS, where a client may name the authority that it believes, and the
/// certificate that it shows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TcpAddress {
    place: HostOrPath,
    /// The options given with the place.
    way: Transport,
}

/// How bytes get there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Transport {
    Plain,
    /// READs go by network cards.
    Card(CardChoice),
    Tls(TlsTrust),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum HostOrPath {
    Host(String, u16),
    /// A socket file, and the user whose memory node is meant, if that is another one than the
    /// client's.
    Path(PathBuf, Option<u32>),
}

impl TcpAddress {
    /// The memory node that listens at this address of the internet.
    #[must_use]
    pub fn internet(address: SocketAddr) -> Self {
        let host = match address {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        };
        Self { place: HostOrPath::Host(host, address.port()), way: Transport::Plain }
    }

    /// The memory node whose socket file is `path`.
    ///
    /// # Errors
    /// If the path is not absolute, or too long for a socket.
    pub fn at_path(path: impl Into<PathBuf>) -> Result<Self, TcpAddressError> {
        let path = path.into();
        if !path.is_absolute() || path.file_name().is_none() {
            let why = "a socket file's path is absolute and has a name at its end".to_owned();
            return Err(TcpAddressError::Malformed { text: path.display().to_string(), why });
        }
        let len = path.as_os_str().len();
        if len > MAX_PATH {
            return Err(TcpAddressError::TooLong { path: path.display().to_string(), len });
        }
        Ok(Self { place: HostOrPath::Path(path, None), way: Transport::Plain })
    }

    /// Which network card reads there, if one does.
    #[must_use]
    pub fn card(&self) -> Option<&CardChoice> {
        match &self.way {
            Transport::Card(choice) => Some(choice),
            _ => None,
        }
    }

    /// The certificates that a client trusts there, if bytes are encrypted on the way.
    #[must_use]
    pub fn trust(&self) -> Option<&TlsTrust> {
        match &self.way {
            Transport::Tls(trust) => Some(trust),
            _ => None,
        }
    }

    /// The same; what it does not say of TLS is as `trust` says.
    #[must_use]
    pub fn trusting(self, trust: TlsTrust) -> Self {
        let way = match self.way {
            Transport::Tls(own) => Transport::Tls(own.or(trust)),
            way => way,
        };
        Self { way, ..self }
    }

    /// The same, without what it says of files of the machine on which it is read.
    #[must_use]
    pub fn without_files(&self) -> Self {
        let way = match &self.way {
            Transport::Tls(_) => Transport::Tls(TlsTrust::default()),
            way => way.clone(),
        };
        Self { way, ..self.clone() }
    }

    /// The host as certificates name it.
    pub(super) fn host(&self) -> Option<&str> {
        match &self.place {
            HostOrPath::Host(host, _) => Some(host.trim_start_matches('[').trim_end_matches(']')),
            HostOrPath::Path(..) => None,
        }
    }

    /// The same, where it was found.
    pub(super) fn found_at(&self, address: SocketAddr) -> Self {
        Self { way: self.way.clone(), ..Self::internet(address) }
    }

    /// The socket file, where it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.place {
            HostOrPath::Path(path, _) => Some(path),
            HostOrPath::Host(..) => None,
        }
    }

    /// The user whose memory node is meant, where it is named.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        match self.place {
            HostOrPath::Path(_, owner) => owner,
            HostOrPath::Host(..) => None,
        }
    }

    /// The targets that the address means now, in the order to try. A name is asked for on a thread
    /// of its own, which may outlive the deadline.
    pub(super) fn targets_within(&self, deadline: Deadline) -> Result<Vec<Target>, FabricError> {
        let is_name = self.host().is_some_and(|host| host.parse::<IpAddr>().is_err());
        let left = deadline.remaining(Instant::now()).filter(|_| is_name);
        let answer = match left {
            None => self.targets(),
            Some(left) => {
                let address = self.clone();
                resolve(self.to_string(), move || address.addresses_of_host(), left)?.map(internet_targets)
            }
        };
        answer.map_err(|error| FabricError::TcpAddress(Box::new(error)))
    }

    /// The targets that the address means now, in the order to try. Asks the resolver, which may
    /// take its time.
    pub(super) fn targets(&self) -> Result<Vec<Target>, TcpAddressError> {
        match self.path() {
            Some(path) => Ok(vec![Target::Unix(path.to_owned())]),
            None => self.addresses_of_host().map(internet_targets),
        }
    }

    /// The addresses that its host has now, by the resolver; none of a socket file.
    fn addresses_of_host(&self) -> Result<Vec<SocketAddr>, TcpAddressError> {
        let HostOrPath::Host(host, port) = &self.place else { return Ok(Vec::new()) };
        let unknown = |why: String| TcpAddressError::UnknownHost { address: self.to_string(), why };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = (bare, *port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() { Err(unknown("it has no address".to_owned())) } else { Ok(found) }
    }
}

fn internet_targets(found: Vec<SocketAddr>) -> Vec<Target> {
    found.into_iter().map(Target::Internet).collect()
}

impl FromStr for TcpAddress {
    type Err = TcpAddressError;

    fn from_str(text: &str) -> Result<Self, TcpAddressError> {
        let malformed = |why: String| TcpAddressError::Malformed { text: text.to_owned(), why };
        if let Some(path) = text.strip_prefix(UNIX) {
            let (owner, path) = match path.split_once("@/") {
                // A path may have an @ too.
                Some((owner, _)) if !owner.starts_with('/') => {
                    let user =
                        owner.parse().map_err(|_| malformed(format!("`{owner}` is no user's number")))?;
                    (Some(user), &path[owner.len() + 1..])
                }
                _ => (None, path),
            };
            let mut address = Self::at_path(path).map_err(|error| match error {
                TcpAddressError::Malformed { why, .. } => malformed(why),
                other => other,
            })?;
            if let HostOrPath::Path(_, named) = &mut address.place {
                *named = owner;
            }
            return Ok(address);
        }
        let options = |rest| str::split_once(rest, '?').unwrap_or((rest, ""));
        let (rest, way) = if let Some((rest, card)) = text.strip_prefix(RDMA).map(options) {
            let choice = CardChoice::parse(card);
            (
                rest,
                Transport::Card(
                    choice.ok_or_else(|| malformed(wrong_options(RDMA, card, CardChoice::parse)))?,
                ),
            )
        } else if let Some((rest, trust)) = text.strip_prefix(TCPS).map(options) {
            let choice = TlsTrust::parse(trust);
            (
                rest,
                Transport::Tls(choice.ok_or_else(|| malformed(wrong_options(TCPS, trust, TlsTrust::parse)))?),
            )
        } else if let Some((rest, options)) = text.strip_prefix(TCP).map(options) {
            if text.contains('?') {
                return Err(malformed(format!("`?{options}` is no option of {TCP}, which has none")));
            }
            (rest, Transport::Plain)
        } else {
            return Err(malformed("it has no transport".to_owned()));
        };
        let default = matches!(way, Transport::Card(_)) && (rest.ends_with(']') || !rest.contains(':'));
        let (host, port) = match rest.rsplit_once(':') {
            _ if default => (rest, DEFAULT_PORT),
            Some((host, port)) => {
                (host, port.parse().map_err(|_| malformed(format!("`{port}` is no port, of 0 to 65535")))?)
            }
            None => return Err(malformed("it has no port".to_owned())),
        };
        let is_named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let fits = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok()),
            None => !host.is_empty() && host.chars().all(is_named),
        };
        if fits {
            Ok(Self { place: HostOrPath::Host(host.to_owned(), port), way })
        } else {
            Err(malformed(no_host(host)))
        }
    }
}

/// Why this is no host.
fn no_host(host: &str) -> String {
    match host {
        "" => "it has no host".to_owned(),
        _ if host.contains(':') && !host.starts_with('[') => {
            format!("`{host}` is no host: write an IPv6 address in brackets")
        }
        _ => format!("`{host}` is no host"),
    }
}

/// Why these options, each of which may be parsed alone, are none.
fn wrong_options<T>(scheme: &str, options: &str, parse: fn(&str) -> Option<T>) -> String {
    // A certificate and its key are none without each other.
    let of_two = |part: &str| part.starts_with("cert=") || part.starts_with("key=");
    let is_wrong = |part: &&str| parse(part).is_none() && (!of_two(part) || scheme != TCPS);
    match options.split('&').find(is_wrong) {
        Some(part) => format!("`{part}` is no option of {scheme}"),
        None => format!("of the options in `?{options}` one is missing or there twice"),
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            HostOrPath::Host(host, port) => match &self.way {
                Transport::Plain => write!(f, "{TCP}{host}:{port}"),
                Transport::Card(card) => write!(f, "{RDMA}{host}:{port}{card}"),
                Transport::Tls(trust) => write!(f, "{TCPS}{host}:{port}{trust}"),
            },
            HostOrPath::Path(path, None) => write!(f, "{UNIX}{}", path.display()),
            HostOrPath::Path(path, Some(user)) => write!(f, "{UNIX}{user}@{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn addresses_read_back_as_written() {
        for text in [
            "tcp://127.0.0.1:7400",
            "tcp://[::1]:0",
            "tcp://node-1.example:65535",
            "tcp+unix:///run/fpcache.sock",
            "tcp+unix:///run/a@/b.sock",
            "tcp+unix://1000@/run/fpcache.sock",
            "rdma://node-1:7471",
            "tcps://node-1:7400",
            "tcps://[::1]:1?ca=/etc/ca.pem&cert=c.pem&key=k.pem",
            "rdma://[::1]:1?dev=rxe0&gid=1&port=1",
        ] {
            assert_eq!(text.parse::<TcpAddress>().unwrap().to_string(), text);
        }
        let short: TcpAddress = "rdma://node-1?gid=1&dev=mlx5_0".parse().unwrap();
        assert_eq!(short.to_string(), "rdma://node-1:7471?dev=mlx5_0&gid=1");
        let six: TcpAddress = "rdma://[::1]".parse().unwrap();
        assert_eq!(six.to_string(), "rdma://[::1]:7471");
        for text in [
            "",
            "rdma://",
            "rdma://host:1?gid=x",
            "rdma://host:1?mtu=4096",
            "tcp://host:1?dev=a",
            "tcp://",
            "tcps://host",
            "tcps://host:1?ca",
            "tcps://host:1?cert=a.pem",
            "tcps://host:1?dev=a",
            "tcp://host",
            "tcp://:1",
            "tcp://host:65536",
            "tcp://host:x",
            "tcp://::1:7400",
            "tcp://[host]:1",
            "tcp://a b:1",
            "tcp://user@host:1",
            "tcp+unix://relative",
            "tcp+unix:///",
            "tcp+unix://somebody@/run/a.sock",
            "tcp+unix://1000@",
            "shm://a",
        ] {
            let error = text.parse::<TcpAddress>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("tcp://127.0.0.1:7400"), "{error}");
            assert!(error.len() < 300, "{error}");
        }
        let long = format!("tcp+unix:///{}", "a".repeat(107)).parse::<TcpAddress>().unwrap_err();
        assert!(matches!(long, TcpAddressError::TooLong { len: 108, .. }), "{long}");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said() {
        for (text, why) in [
            ("tcp://127.0.0.1", "it has no port"),
            ("tcp://127.0.0.1:99999", "`99999` is no port"),
            ("tcp://127.0.0.1:7400/", "`7400/` is no port"),
            ("tcp://127.0.0.1:7400?foo=1", "`?foo=1` is no option of tcp://"),
            ("tcp://::1:7400", "IPv6 address in brackets"),
            ("tcp://:1", "it has no host"),
            ("tcp://a b:1", "`a b` is no host"),
            ("tcps://host:1?ca=a&dev=b", "`dev=b` is no option of tcps://"),
            ("tcps://host:1?cert=a.pem", "one is missing"),
            ("rdma://host:1?gid=1&mtu=4096", "`mtu=4096` is no option of rdma://"),
            ("rdma://host:1?gid=1&gid=2", "there twice"),
            ("tcp+unix://relative", "path is absolute"),
            ("tcp+unix://me@/run/a.sock", "`me` is no user's number"),
        ] {
            let error = text.parse::<TcpAddress>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn hosts_that_nobody_knows_are_named() {
        let address: TcpAddress = "tcp://no-such-host.invalid:1".parse().unwrap();
        let error = address.targets().unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid:1") && error.contains("cannot be found"), "{error}");
        let error = address.targets_within(Deadline::after(Duration::from_secs(60))).unwrap_err();
        assert!(matches!(error, FabricError::TcpAddress(_)), "{error}");
        // It may be one that is not known for a moment, as while its machine restarts.
        assert_eq!(error.kind(), ErrorKind::Reconnect);
        let wrong: TcpAddressError = "tcp://".parse::<TcpAddress>().unwrap_err();
        assert_eq!(FabricError::TcpAddress(Box::new(wrong)).kind(), ErrorKind::Invalid);
        let six: TcpAddress = "tcp://[::1]:7".parse().unwrap();
        assert_eq!(six.targets().unwrap(), [Target::Internet("[::1]:7".parse().unwrap())]);
    }
}
