//! Access control of the daemon: sockets, tokens and certificates.

use std::path::PathBuf;

use fpcache_fabric::tcp::{AccessKeeper, Listener, TlsServing, TokenError, TokenSet};
use tracing::{error, info};

/// Where the tokens are by which clients get in over TCP.
#[derive(Clone)]
pub enum TokenSource {
    /// In a file of the daemon's user: a line `write TOKEN` or `read TOKEN` for each, which is read
    /// again on `SIGHUP`.
    File(PathBuf),
    /// In a text like that, from the place of this name.
    Text {
        /// The text.
        text: String,
        /// What errors call the place.
        place: &'static str,
    },
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            // The text has secrets.
            Self::Text { place, .. } => f.debug_struct("Text").field("place", place).finish_non_exhaustive(),
        }
    }
}

impl TokenSource {
    /// The tokens that are there now.
    ///
    /// # Errors
    /// They cannot be read, others could read them, or there is something else.
    pub fn read(&self) -> Result<TokenSet, TokenError> {
        match self {
            Self::File(path) => TokenSet::from_file(path),
            Self::Text { text, place } => TokenSet::parse(text, place),
        }
    }
}

/// Reads again what lets clients in.
#[derive(Debug)]
pub(super) struct Rereading {
    tokens: Option<TokenSource>,
    tls: Option<TlsServing>,
    keeper: AccessKeeper,
}

impl Rereading {
    /// What reads it again for this listener, if there is something that can change.
    pub(super) fn of(
        tokens: Option<&TokenSource>,
        tls: Option<&TlsServing>,
        listener: &Listener,
    ) -> Option<Self> {
        let tokens = tokens.filter(|source| matches!(source, TokenSource::File(_))).cloned();
        let tls = tls.cloned();
        let is_any = tokens.is_some() || tls.is_some();
        is_any.then(|| Self { tokens, tls, keeper: listener.access_keeper() })
    }

    /// Has the tokens that are there now let clients in, and no others, and shows the certificate
    /// that is there now; says so. What cannot be read stays as it was.
    pub(super) fn read_again(&self) {
        match self.tokens.as_ref().map(TokenSource::read) {
            None => {}
            Some(Ok(tokens)) => {
                let count = tokens.len();
                self.keeper.replace_tokens(tokens);
                info!("reloaded the token file: {count} tokens");
            }
            Some(Err(error)) => error!("keeping the old tokens: {error}"),
        }
        match self.tls.as_ref().map(|tls| self.keeper.replace_certificate(tls)) {
            None => {}
            Some(Ok(())) => info!("reloaded the certificate"),
            Some(Err(error)) => error!("keeping the old certificate: {error}"),
        }
    }
}
