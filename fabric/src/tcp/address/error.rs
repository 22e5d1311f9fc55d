//! Errors of addresses over TCP.

/// What `sockaddr_un` takes, without the closing zero.
pub(super) const MAX_PATH: usize = 107;

/// An address that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpAddressError {
    /// Not of the form expected.
    #[error(
        "`{text}` is not an address over sockets: {why}; write {}tcp://HOST:PORT, for example tcp://127.0.0.1:7400",
        form(text)
    )]
    Malformed {
        /// The text given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The socket file's path is longer than the operating system takes.
    #[error("socket path {path} has {len} bytes, the system takes {MAX_PATH}; choose a shorter path")]
    TooLong {
        /// The path.
        path: String,
        /// Its length in bytes.
        len: usize,
    },
    /// The host is unknown.
    #[error(
        "the host of {address} cannot be found: {why}; correct the name, or write its address; if it was found before, try again"
    )]
    UnknownHost {
        /// The address asked for.
        address: String,
        /// The resolver's message.
        why: String,
    },
}

/// How to write an address like this one, where that is not as over TCP.
fn form(text: &str) -> &'static str {
    match text.split_once("://") {
        Some(("tcps", _)) => "tcps://HOST:PORT[?ca=FILE&cert=FILE&key=FILE] or ",
        Some(("tcp+unix", _)) => "tcp+unix:///absolute/path.sock or ",
        Some(("rdma", _)) => {
            "rdma://HOST[:PORT][?dev=NAME&gid=INDEX&port=NUMBER&tc=CLASS&sl=LEVEL&pkey=INDEX] or "
        }
        _ => "",
    }
}
