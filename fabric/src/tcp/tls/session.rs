//! Sessions by rustls, over sockets that never block.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, Error, InvalidMessage,
    RootCertStore, ServerConfig, ServerConnection,
};

use super::{Fault, TlsError, TlsIdentity, TlsServing, TlsTrust};
use crate::tcp::address::TcpAddress;
use crate::tcp::private_file::{self, Unreadable};
use crate::tcp::socket::{self, Moved};

/// Bytes that a session takes before it has sent those of before.
const CHUNK: usize = 16 << 10;
/// Of this many bytes that came a part must have been the protocol's, or their sender only makes
/// work. The shortest frame of either side is 16 bytes in a record of 38; a handshake is a few
/// thousand.
const WINDOW: usize = 64 << 10;
const LEAST_PART: usize = 4;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates of a file.
fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = private_file::open_regular(path).map_err(|error| not_taken(what, path, &error))?;
    let found = CertificateDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(not_taken(what, path, &"there is none in it")),
        found => found.map_err(|error| not_taken(what, path, &error)),
    }
}

/// The private key of a file that no other user can read.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "a private key";
    let text = private_file::read(path).map_err(|error| match error {
        Unreadable::Exposed => TlsError(format!(
            "others may read or change {}, which holds a private key, or it belongs to another user: `chmod 600` it as the \
             user who runs this program",
            path.display()
        )),
        Unreadable::Failed(error) => not_taken(what, path, &error),
    })?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| not_taken(what, path, &error))
}

/// A certificate with its key.
fn shown(identity: &TlsIdentity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    Ok((certificates("a certificate", &identity.certificate)?, key(&identity.key)?))
}

const AUTHORITIES: &str = "the certificates of authorities";

/// The authorities of a file.
fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(AUTHORITIES, path)? {
        roots.add(certificate).map_err(|error| not_taken(AUTHORITIES, path, &error))?;
    }
    Ok(roots)
}

/// A file that cannot be used.
fn not_taken(what: &str, path: &Path, why: &dyn fmt::Display) -> TlsError {
    TlsError(format!("{what} cannot be taken from {}: {why}; it must be in PEM", path.display()))
}

fn unfit(identity: &TlsIdentity) -> impl Fn(Error) -> TlsError {
    let path = identity.certificate.display();
    move |why| {
        TlsError(format!("the certificate in {path} cannot be used: {why}; name the key that belongs to it"))
    }
}

fn no_authority(address: &str, why: &dyn fmt::Display) -> TlsError {
    TlsError(format!(
        "the system names no authorities whose certificates are to be believed: {why}; name one: {address}?ca=FILE, or \
         FPCACHE_TLS_CA"
    ))
}

/// How a client's sessions are begun.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct ClientSide(Arc<ClientConfig>);

impl ClientSide {
    /// Reads the files that `trust` names, or what the system believes.
    pub(in crate::tcp) fn of(trust: &TlsTrust, address: &str) -> Result<Self, TlsError> {
        let at = |error| TlsError(format!("{address}: {error}"));
        let roots = match &trust.authority {
            Some(path) => authorities(path).map_err(at)?,
            None => system_authorities(address)?,
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| no_authority(address, &error))?
            .with_root_certificates(roots);
        let mut config = match &trust.identity {
            Some(identity) => {
                let (chain, key) = shown(identity).map_err(at)?;
                config.with_client_auth_cert(chain, key).map_err(unfit(identity)).map_err(at)?
            }
            None => config.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// A session with the memory node at `address`, whose certificate is of this name or address.
    pub(in crate::tcp) fn session(&self, host: &str, address: &TcpAddress) -> Result<TlsSession, TlsError> {
        let remedy = "write a name or an address that a certificate can have";
        let wrong = |why: String| TlsError::handshake(address, &why, remedy);
        let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.to_string()))?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        connection.map(|one| TlsSession::of(one.into())).map_err(|error| wrong(error.to_string()))
    }
}

fn system_authorities(address: &str) -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        let why = found.errors.first().map_or_else(|| "none are installed".to_owned(), ToString::to_string);
        return Err(no_authority(address, &why));
    }
    Ok(roots)
}

/// How a memory node's sessions are begun.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct ServerSide(Arc<ServerConfig>);

impl ServerSide {
    /// Reads the files that `serving` names.
    pub(in crate::tcp) fn of(serving: &TlsServing) -> Result<Self, TlsError> {
        let TlsServing { identity, client_authority } = serving;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unfit(identity))?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                let verifier = verifier.map_err(|error| not_taken(AUTHORITIES, path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = shown(identity)?;
        let mut config = builder.with_single_cert(chain, key).map_err(unfit(identity))?;
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// A session with a client that has connected; `None` if there can be none, which takes a clock
    /// that cannot be read.
    pub(in crate::tcp) fn session(&self) -> Option<TlsSession> {
        ServerConnection::new(Arc::clone(&self.0)).ok().map(|one| TlsSession::of(one.into()))
    }
}

/// One end of an encrypted connection.
#[derive(Debug)]
pub(in crate::tcp) struct TlsSession {
    connection: Connection,
    fault: Option<Fault>,
    /// Bytes that have come in the present window, and how many of the protocol's were among them.
    came: usize,
    of_protocol: usize,
}

impl TlsSession {
    fn of(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(CHUNK));
        Self { connection, fault: None, came: 0, of_protocol: 0 }
    }

    /// Takes bytes to send, if those of before have left.
    pub(in crate::tcp) fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Moved {
        match self.push_out(socket) {
            Moved::Gone => return Moved::Gone,
            _ if self.is_unsent() => return Moved::Nothing,
            _ => {}
        }
        let taken = match self.connection.writer().write(&bytes[..bytes.len().min(CHUNK)]) {
            Ok(0) => return Moved::Nothing,
            Ok(taken) => taken,
            Err(_) => return Moved::Gone,
        };
        match self.push_out(socket) {
            Moved::Gone => Moved::Gone,
            _ => Moved::Bytes(taken),
        }
    }

    /// Receives what is there: less than there is room for only if the socket was empty. Shakes
    /// hands on the way.
    pub(in crate::tcp) fn receive(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Moved {
        // Bytes that came before it was found were given out.
        if self.fault.is_some() {
            return Moved::Gone;
        }
        let mut have = 0;
        loop {
            let ended = match self.connection.reader().read(&mut into[have..]) {
                // The peer has said that it ends.
                Ok(0) => true,
                Ok(more) => {
                    have += more;
                    self.of_protocol += more;
                    if have == into.len() {
                        return Moved::Bytes(have);
                    }
                    continue;
                }
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            };
            let received = if ended { Moved::Gone } else { self.take_in(socket) };
            return match received {
                Moved::Bytes(_) => continue,
                _ if have > 0 => Moved::Bytes(have),
                nothing => nothing,
            };
        }
    }

    /// Receives encrypted bytes and looks at them.
    fn take_in(&mut self, socket: BorrowedFd<'_>) -> Moved {
        let bytes = match self.connection.read_tls(&mut Wire(socket)) {
            Ok(0) => return Moved::Gone,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Moved::Nothing,
            Err(_) => return Moved::Gone,
        };
        if let Err(fault) = self.weigh(bytes) {
            self.fault.get_or_insert(fault);
            return Moved::Gone;
        }
        let looked = self.connection.process_new_packets();
        // Also what tells the peer that something is wrong.
        let pushed = self.push_out(socket);
        match looked {
            Ok(_) if pushed == Moved::Gone => Moved::Gone,
            Ok(_) => Moved::Bytes(bytes),
            Err(error) => {
                self.fault.get_or_insert_with(|| fault_of(&error));
                Moved::Gone
            }
        }
    }

    /// Counts bytes that have come. Records without content, or with next to none, cost more than
    /// what they bring: a sender of many of them would have this end work without end.
    fn weigh(&mut self, bytes: usize) -> Result<(), Fault> {
        self.came += bytes;
        if self.came < WINDOW {
            return Ok(());
        }
        let is_enough = self.of_protocol >= self.came / LEAST_PART;
        (self.came, self.of_protocol) = (0, 0);
        match is_enough {
            true => Ok(()),
            false => Err(Fault {
                why: "it sends records with next to nothing in them".to_owned(),
                remedy: "see who answers there",
            }),
        }
    }

    /// Sends encrypted bytes that wait.
    pub(in crate::tcp) fn push_out(&mut self, socket: BorrowedFd<'_>) -> Moved {
        let mut all = 0;
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Wire(socket)) {
                Ok(sent) => all += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Moved::Gone,
            }
        }
        if all > 0 { Moved::Bytes(all) } else { Moved::Nothing }
    }

    /// Whether encrypted bytes wait for the socket.
    pub(in crate::tcp) fn is_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether no byte of the protocol can be sent yet.
    pub(in crate::tcp) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The fault that ended it, if TLS has.
    pub(in crate::tcp) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

fn fault_of(error: &Error) -> Fault {
    let remedy = match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            return Fault {
                why: "it does not speak TLS".to_owned(),
                remedy: "write tcp:// if that is as it should be",
            };
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "name the authority that has signed its certificate: tcps://HOST:PORT?ca=FILE, or FPCACHE_TLS_CA"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "write one of the names in its certificate",
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it lets in who has a certificate: tcps://HOST:PORT?cert=FILE&key=FILE, or FPCACHE_TLS_CERT and FPCACHE_TLS_KEY"
        }
        _ => "see that both have certificates that are valid and trusted",
    };
    Fault { why: error.to_string(), remedy }
}

/// A socket as rustls takes it.
struct Wire<'s>(BorrowedFd<'s>);

fn moved(moved: Moved) -> io::Result<usize> {
    match moved {
        Moved::Bytes(bytes) => Ok(bytes),
        Moved::Nothing => Err(io::ErrorKind::WouldBlock.into()),
        Moved::Gone => Ok(0),
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        moved(socket::receive(self.0, into))
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match moved(socket::send(self.0, bytes)) {
            Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
            sent => sent,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::PermissionsExt;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn file(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/tls").join(name)
    }

    /// Both ends of a connection that has shaken hands.
    fn ends() -> ((TlsSession, OwnedFd), (TlsSession, OwnedFd)) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets");
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("node.key");
        std::fs::copy(file("node.key"), &key).expect("copied");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("its owner");
        let identity = TlsIdentity { certificate: file("node.pem"), key };
        let node = ServerSide::of(&TlsServing { identity, client_authority: None }).expect("a certificate");
        let trust = TlsTrust { authority: Some(file("authority.pem")), identity: None };
        let client = ClientSide::of(&trust, "a test").expect("an authority");
        let mut node = node.session().expect("a session");
        let mut client =
            client.session("localhost", &"tcps://localhost:1".parse().unwrap()).expect("a session");
        while node.is_handshaking() || client.is_handshaking() {
            client.push_out(b.as_fd());
            assert_eq!(node.receive(a.as_fd(), &mut [0; 8]), Moved::Nothing);
            assert_eq!(client.receive(b.as_fd(), &mut [0; 8]), Moved::Nothing);
        }
        ((node, a), (client, b))
    }

    /// Sends messages of `bytes` bytes until the other end has had enough, or for a while; how
    /// many.
    fn messages_taken(bytes: usize) -> usize {
        let ((mut node, a), (mut client, b)) = ends();
        let (message, mut input) = (vec![7; bytes], vec![0; 64 << 10]);
        for sent in 0..20_000 {
            assert_eq!(client.send(b.as_fd(), &message), Moved::Bytes(bytes));
            match node.receive(a.as_fd(), &mut input) {
                Moved::Bytes(came) => assert_eq!(came, bytes),
                _ => {
                    assert!(node.fault().is_some_and(|fault| fault.why.contains("next to nothing")));
                    return sent;
                }
            }
        }
        20_000
    }

    #[test]
    fn what_was_found_wrong_ends_a_connection_whatever_came_before_it() {
        let mut input = vec![0; 64 << 10];
        let mut found_after_others = 0;
        for first in 0..8 {
            let ((mut node, a), (mut client, b)) = ends();
            // Where in a look it is found depends on how many there were before.
            (0..first * 30).for_each(|_| assert_eq!(client.send(b.as_fd(), &[7]), Moved::Bytes(1)));
            let moved = loop {
                let moved = node.receive(a.as_fd(), &mut input);
                if node.fault().is_some() {
                    break moved;
                }
                while client.send(b.as_fd(), &[7]) == Moved::Bytes(1) {}
            };
            found_after_others += usize::from(matches!(moved, Moved::Bytes(_)));
            while client.send(b.as_fd(), &[7]) == Moved::Bytes(1) {}
            assert_eq!(node.receive(a.as_fd(), &mut input), Moved::Gone);
        }
        assert!(found_after_others > 0);
    }

    #[test]
    fn records_with_next_to_nothing_in_them_end_a_connection() {
        // 23 bytes on the way, of one.
        assert!(messages_taken(1) < 3000);
        // The shortest reply there is goes on for ever.
        assert_eq!(messages_taken(16), 20_000);
    }
}
