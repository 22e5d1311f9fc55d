//! URLs of memory nodes.

use std::fmt;
use std::str::FromStr;

use fpcache::plan::FabricCosts;
use fpcache_fabric::shm::ShmAddress;
use fpcache_fabric::tcp::TcpAddress;

/// Where a memory node is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Url {
    /// `shm://NAME`: shared memory of this machine.
    Shm(ShmAddress),
    /// `tcp://HOST:PORT`, or `tcp+unix:///absolute/path.sock`: sockets.
    /// `rdma://HOST[:PORT][?dev=NAME&gid=INDEX&port=NUMBER&…]`: sockets, and network cards for
    /// reading.
    Tcp(TcpAddress),
}

/// A text that names no memory node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UrlError {
    message: String,
}

impl UrlError {
    /// Of a text whose transport is none.
    fn of_transport(url: &str, why: &str) -> Self {
        Self {
            message: format!(
                "`{url}` is not the URL of a memory node: {why}; write shm://NAME, for example shm://fpcache, or \
                 tcp://HOST:PORT, for example tcp://127.0.0.1:7400"
            ),
        }
    }
}

/// Memory nodes, with commas between their URLs.
pub(crate) fn parse_list(urls: &str) -> Result<Vec<Url>, UrlError> {
    // A path may have a comma: one that a URL follows is none of a path.
    let mut list: Vec<String> = Vec::new();
    for part in urls.split(',') {
        match list.last_mut() {
            Some(before) if !part.contains("://") => {
                before.push(',');
                before.push_str(part);
            }
            _ => list.push(part.trim().to_owned()),
        }
    }
    list.iter().map(|url| url.parse()).collect()
}

impl Url {
    /// What READs over it are reckoned to cost, for [tuning](crate::tuning) a table.
    #[must_use]
    pub fn costs(&self) -> FabricCosts {
        match self {
            Self::Shm(_) => FabricCosts::MAPPED_MEMORY,
            Self::Tcp(address) if address.card().is_some() => FabricCosts::RDMA,
            Self::Tcp(_) => FabricCosts::TCP,
        }
    }

    /// The same for everybody: without what it says of files of this machine.
    pub(crate) fn for_others(&self) -> Self {
        match self {
            Self::Shm(_) => self.clone(),
            Self::Tcp(address) => Self::Tcp(address.without_files()),
        }
    }

    /// Whether it means a memory node of the machine on which it is read, whichever that is.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        let text = match self {
            Self::Shm(_) => return true,
            Self::Tcp(address) => address.to_string(),
        };
        let Some((scheme, place)) = text.split_once("://") else { return false };
        let place = place.split('?').next().unwrap_or(place);
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        scheme.contains("unix")
            || host == "localhost"
            || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(s: &str) -> Result<Self, UrlError> {
        // An address that is none names itself and says what is wrong.
        match s.split_once("://") {
            Some(("shm", _)) => s
                .parse()
                .map(Self::Shm)
                .map_err(|error| UrlError { message: format!("{error}; for example shm://fpcache") }),
            Some(("tcp" | "tcps" | "tcp+unix" | "rdma", _)) => {
                s.parse().map(Self::Tcp).map_err(|error| UrlError {
                    message: format!("{error}, or for shared memory shm://NAME, for example shm://fpcache"),
                })
            }
            Some((scheme, _)) => {
                Err(UrlError::of_transport(s, &format!("the transport `{scheme}` is not supported")))
            }
            None => Err(UrlError::of_transport(s, "it has no transport")),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(address) => address.fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_print_as_they_are_read() {
        for text in [
            "shm://fpcache",
            "tcp://127.0.0.1:7400",
            "tcp://[::1]:1",
            "tcp+unix:///run/fp.sock",
            "rdma://node-1:7471?gid=1",
        ] {
            let url: Url = text.parse().expect("a good name");
            assert_eq!(url.to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_once() {
        for (text, why) in [
            ("tcp://127.0.0.1", "no port"),
            ("shm://a b", "shm://NAME"),
            ("udp://a", "`udp` is not supported"),
            ("fpcache", "no transport"),
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(error.contains(why) && error.len() < 300, "{error}");
            assert_eq!(error.matches(&format!("`{text}`")).count(), 1, "{error}");
        }
    }

    #[test]
    fn lists_of_urls_are_read_in_their_order() {
        let text = "tcp://127.0.0.1:7400,tcp+unix:///run/a,b.sock,shm://x";
        let list = parse_list(text).expect("good names");
        let shown: Vec<String> = list.iter().map(Url::to_string).collect();
        assert_eq!(shown, ["tcp://127.0.0.1:7400", "tcp+unix:///run/a,b.sock", "shm://x"]);
        assert!(parse_list("tcp://127.0.0.1:7400,").is_err() && parse_list("").is_err());
    }

    #[test]
    fn addresses_of_whichever_machine_are_told_from_those_of_one() {
        let is_own = |text: &str| text.parse::<Url>().expect("a good name").is_of_this_machine();
        for own in ["shm://x", "tcp+unix:///run/x", "tcp://127.0.0.3:1", "tcp://[::1]:1", "tcp://localhost:1"]
        {
            assert!(is_own(own), "{own}");
        }
        for other in
            ["tcp://10.0.0.1:1", "tcp://[fe80::1]:1", "tcp://node-1:7400", "rdma://node-1:7471?gid=1"]
        {
            assert!(!is_own(other), "{other}");
        }
    }

    #[test]
    fn bad_urls_say_why_and_show_a_good_one() {
        for bad in ["fpcache", "tcp://host", "udp://host:1", "shm://", "shm://a b"] {
            let message = bad.parse::<Url>().expect_err(bad).to_string();
            assert!(message.contains(bad) && message.contains("shm://fpcache"), "{message}");
        }
    }
}
