//! Where a daemon's tokens are.

use std::path::PathBuf;

use crate::tell::tell;
use fpcache_fabric::tcp::{AccessKeeper, Listener, TokenError, TokenSet};

/// Where the tokens are by which clients get in over TCP.
#[derive(Clone)]
pub enum TokenSource {
    /// In a file of the daemon's user: a line `write TOKEN` or `read TOKEN` for each, which is read again on `SIGHUP`.
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

    /// What reads them again for this listener, if they are where they can change.
    pub(super) fn rereading(self, listener: &Listener) -> Option<Rereading> {
        match self {
            Self::File(_) => Some(Rereading { source: self, keeper: listener.access_keeper() }),
            Self::Text { .. } => None,
        }
    }
}

/// Reads tokens again.
#[derive(Debug)]
pub(super) struct Rereading {
    source: TokenSource,
    keeper: AccessKeeper,
}

impl Rereading {
    /// Has the tokens that are there now let clients in, and no others; says so. Those of before stay if they cannot be read.
    pub(super) fn read_again(&self) {
        match self.source.read() {
            Ok(tokens) => {
                let count = tokens.len();
                self.keeper.replace_tokens(tokens);
                tell!("fpcache-memserver: {count} tokens let clients in from now on");
            }
            Err(error) => tell!("fpcache-memserver: the tokens stay as they were: {error}"),
        }
    }
}
