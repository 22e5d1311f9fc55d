//! Addresses of memory nodes on this machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const SCHEME: &str = "shm://";
/// What `sockaddr_un` takes, without the closing zero.
const MAX_PATH: usize = 107;

/// `shm://NAME`, a memory node of this user, or `shm:///absolute/path.sock`, one whose socket file lies elsewhere.
///
/// NAME is made of letters, digits, `.`, `_` and `-`. Its socket file is `$XDG_RUNTIME_DIR/fpcache/NAME.sock`, or
/// `/tmp/fpcache-UID/NAME.sock` where that variable is not set; the directory belongs to the user, mode 0700. Where
/// other users are to get in, the explicit path is needed, and the permissions of its directory are the operator's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShmAddress {
    place: Place,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Place {
    Named(String),
    Path(PathBuf),
}

/// An address that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Not of the form expected.
    #[error(
        "`{text}` is not a shared-memory address; write shm://NAME (letters, digits, `.`, `_`, `-`) \
         or shm:///absolute/path.sock"
    )]
    Malformed {
        /// What was given.
        text: String,
    },
    /// The socket file's path is longer than the operating system takes.
    #[error("socket path {path} has {len} bytes, the system takes {MAX_PATH}; choose a shorter name or path")]
    TooLong {
        /// The path.
        path: String,
        /// Its length in bytes.
        len: usize,
    },
}

impl ShmAddress {
    /// The memory node `name` of this user.
    ///
    /// # Errors
    /// If the name holds other characters than letters, digits, `.`, `_` and `-`.
    pub fn named(name: &str) -> Result<Self, AddressError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || !name.chars().all(fits) {
            return Err(AddressError::Malformed { text: name.to_owned() });
        }
        Ok(Self { place: Place::Named(name.to_owned()) })
    }

    /// The memory node whose socket file is `path`.
    ///
    /// # Errors
    /// If the path is not absolute.
    pub fn at_path(path: impl Into<PathBuf>) -> Result<Self, AddressError> {
        let path = path.into();
        if !path.is_absolute() || path.file_name().is_none() {
            return Err(AddressError::Malformed { text: path.display().to_string() });
        }
        Ok(Self { place: Place::Path(path) })
    }

    /// Whether the address is a name, so that only memory nodes of this user are meant.
    #[must_use]
    pub fn is_named(&self) -> bool {
        matches!(self.place, Place::Named(_))
    }

    /// The socket file, by the environment of this process.
    ///
    /// # Errors
    /// If the path is too long for a socket.
    pub fn socket_path(&self) -> Result<PathBuf, AddressError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        self.socket_path_in(runtime.as_deref(), rustix::process::geteuid().as_raw())
    }

    fn socket_path_in(&self, runtime: Option<&Path>, user: u32) -> Result<PathBuf, AddressError> {
        let path = match (&self.place, runtime) {
            (Place::Path(path), _) => path.clone(),
            (Place::Named(name), Some(runtime)) if runtime.is_absolute() => {
                runtime.join("fpcache").join(format!("{name}.sock"))
            }
            (Place::Named(name), _) => PathBuf::from(format!("/tmp/fpcache-{user}/{name}.sock")),
        };
        let len = path.as_os_str().len();
        if len > MAX_PATH {
            return Err(AddressError::TooLong { path: path.display().to_string(), len });
        }
        Ok(path)
    }
}

impl FromStr for ShmAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let malformed = || AddressError::Malformed { text: text.to_owned() };
        let rest = text.strip_prefix(SCHEME).ok_or_else(malformed)?;
        let address = if rest.starts_with('/') { Self::at_path(rest) } else { Self::named(rest) };
        address.map_err(|_| malformed())
    }
}

impl fmt::Display for ShmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Named(name) => write!(f, "{SCHEME}{name}"),
            Place::Path(path) => write!(f, "{SCHEME}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_written() {
        for text in ["shm://a", "shm://main-1.x_Y", "shm:///run/fp/a.sock"] {
            assert_eq!(text.parse::<ShmAddress>().unwrap().to_string(), text);
        }
        for text in ["", "a", "shm://", "shm://a/b", "shm://a b", "tcp://a", "shm:///", "shm://ä"] {
            assert!(text.parse::<ShmAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_lie_in_the_users_own_directory() {
        let address: ShmAddress = "shm://x".parse().unwrap();
        let path = |runtime: Option<&str>| address.socket_path_in(runtime.map(Path::new), 7).unwrap();
        assert_eq!(path(Some("/run/user/7")), Path::new("/run/user/7/fpcache/x.sock"));
        assert_eq!(path(None), Path::new("/tmp/fpcache-7/x.sock"));
        assert_eq!(path(Some("relative")), Path::new("/tmp/fpcache-7/x.sock"));
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_its_length() {
        let address = ShmAddress::named(&"n".repeat(100)).unwrap();
        let error = address.socket_path_in(None, 1).unwrap_err();
        assert!(matches!(error, AddressError::TooLong { len: 120, .. }), "{error}");
    }
}
