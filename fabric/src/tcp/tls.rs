//! TLS beneath the protocol: certificates, and sessions over sockets that never block.
//!
//! Addresses `tcps://` have it. Only TLS 1.3 is spoken, without tickets: every socket shakes hands
//! anew. What the protocol says of tokens stays as it is; the certificate tells a client whom it
//! talks to, and the token tells the memory node what a client may do.

use std::fmt;
use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod session;

#[cfg(not(feature = "tls"))]
pub(super) use absent::{ClientSide, ServerSide, TlsSession};
#[cfg(feature = "tls")]
pub(super) use session::{ClientSide, ServerSide, TlsSession};

/// A certificate and its private key, files in PEM.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TlsIdentity {
    /// The certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The certificate that a memory node shows, and those that it asks of clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsServing {
    /// Its own certificate.
    pub identity: TlsIdentity,
    /// The certificates, in PEM, of the authorities one of which must have signed a client's;
    /// `None`: clients need none.
    pub client_authority: Option<PathBuf>,
}

/// The certificates that a client trusts, and its own.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct TlsTrust {
    /// The certificates, in PEM, of the authorities that are believed; `None`: those that the
    /// system believes.
    pub authority: Option<PathBuf>,
    /// Its own certificate, shown if asked for.
    pub identity: Option<TlsIdentity>,
}

impl TlsTrust {
    /// The same, with what is missing from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { authority: self.authority.or(other.authority), identity: self.identity.or(other.identity) }
    }

    /// The trust that an address gives: `ca=FILE&cert=FILE&key=FILE`, each or none. `None` if it is
    /// something else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mut authority, mut certificate, mut key) = (None, None, None);
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, file) = part.split_once('=')?;
            let place = match name {
                "ca" => &mut authority,
                "cert" => &mut certificate,
                "key" => &mut key,
                _ => return None,
            };
            if file.is_empty() || place.replace(PathBuf::from(file)).is_some() {
                return None;
            }
        }
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(TlsIdentity { certificate, key }),
            _ => return None,
        };
        Some(Self { authority, identity })
    }
}

/// As an address has it, with the question mark; nothing if all is as usual.
impl fmt::Display for TlsTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.identity.as_ref();
        let parts = [
            ("ca", self.authority.as_ref()),
            ("cert", identity.map(|identity| &identity.certificate)),
            ("key", identity.map(|identity| &identity.key)),
        ];
        let mut mark = '?';
        for (name, file) in parts {
            if let Some(file) = file {
                write!(f, "{mark}{name}={}", file.display())?;
                mark = '&';
            }
        }
        Ok(())
    }
}

/// Why there is no TLS, and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub(super) String);

impl TlsError {
    /// This program has none.
    pub(super) fn not_built(address: &str) -> Self {
        Self(format!(
            "{address} asks for TLS, which this program was built without; build it with `--features tls`, or use tcp://"
        ))
    }

    /// The handshake failed.
    pub(super) fn handshake(peer: &dyn fmt::Display, why: &str, remedy: &str) -> Self {
        Self(format!("no TLS with {peer}: {why}; {remedy}"))
    }
}

/// The fault that ended a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) why: String,
    /// The remedy for a client.
    pub(super) remedy: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_reads_back_as_written() {
        for text in ["", "?ca=/a.pem", "?cert=c.pem&key=k.pem", "?ca=/a.pem&cert=c.pem&key=k.pem"] {
            let trust = TlsTrust::parse(text.trim_start_matches('?')).unwrap();
            assert_eq!(trust.to_string(), text);
        }
        for text in ["ca", "ca=", "cert=a", "key=a", "ca=a&ca=b", "dev=a"] {
            assert_eq!(TlsTrust::parse(text), None, "{text}");
        }
        let both = TlsTrust::parse("ca=a").unwrap().or(TlsTrust::parse("ca=b&cert=c&key=k").unwrap());
        assert_eq!(both.to_string(), "?ca=a&cert=c&key=k");
    }
}
