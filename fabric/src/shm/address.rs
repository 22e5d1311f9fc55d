//! Addresses of memory nodes on this machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const SCHEME: &str = "shm://";
/// What `sockaddr_un` takes, without the closing zero.
const MAX_PATH: usize = 107;

/// `shm://NAME`, a memory node of this user, `shm://NAME@UID`, one of the user with this numeric
/// id, or `shm:///absolute/path.sock`, one whose socket file lies elsewhere.
///
/// NAME is made of letters, digits, `.`, `_` and `-`. The socket file of a memory node that lets no
/// other user in is `$XDG_RUNTIME_DIR/fpcache/NAME.sock`, or `/tmp/fpcache-UID/NAME.sock` where
/// that variable is not set; the directory belongs to the user, mode 0700. One that lets others in
/// listens at `/tmp/fpcache-shared-UID/NAME.sock`, in a directory that only its owner may write or
/// list and every user may pass through, mode 0711. A client that connects by a name asks the
/// operating system who listens, and leaves if it is not the user that the name says. Of an
/// explicit path the permissions are the operator's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShmAddress {
    place: PathOrName,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum PathOrName {
    /// A name, of this user unless another one is given.
    Named(String, Option<u32>),
    /// Any listener there, or only this user or root.
    Path(PathBuf, Listens),
}

/// The listeners that are believed at a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Listens {
    Anybody,
    OwnOrRoot,
}

/// An address that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Not of the form expected.
    #[error(
        "`{text}` is not a shared-memory address; write shm://NAME (letters, digits, `.`, `_`, `-`), shm://NAME@UID for \
         another user's memory node, or shm:///absolute/path.sock"
    )]
    Malformed {
        /// The text given.
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
        Self::named_by(name, None)
    }

    /// The memory node `name` of the user with this id, which must let this one in.
    ///
    /// # Errors
    /// As for [`named`](Self::named).
    pub fn of_user(name: &str, user: u32) -> Result<Self, AddressError> {
        Self::named_by(name, Some(user))
    }

    fn named_by(name: &str, user: Option<u32>) -> Result<Self, AddressError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || !name.chars().all(fits) {
            return Err(AddressError::Malformed { text: name.to_owned() });
        }
        Ok(Self { place: PathOrName::Named(name.to_owned(), user) })
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
        Ok(Self { place: PathOrName::Path(path, Listens::Anybody) })
    }

    /// Whose memory node is meant, where the address is a name.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        match self.place {
            PathOrName::Named(_, user) => Some(user.unwrap_or_else(this_user)),
            PathOrName::Path(..) => None,
        }
    }

    /// The same, for a client that got it from another source: at a path it believes this user and
    /// root alone.
    #[must_use]
    pub fn of_own_or_root(self) -> Self {
        match self.place {
            PathOrName::Path(path, _) => Self { place: PathOrName::Path(path, Listens::OwnOrRoot) },
            named @ PathOrName::Named(..) => Self { place: named },
        }
    }

    /// Whether a memory node of this user is the one that is meant, for a client of the user `own`.
    pub(super) fn believes(&self, user: u32, own: u32) -> bool {
        match self.place {
            PathOrName::Named(_, owner) => user == owner.unwrap_or(own),
            PathOrName::Path(_, Listens::OwnOrRoot) => user == own || user == 0,
            PathOrName::Path(_, Listens::Anybody) => true,
        }
    }

    /// The socket file of a memory node, by the environment of this process: where no other user is
    /// let in, unless the address names one.
    ///
    /// # Errors
    /// If the path is too long for a socket.
    pub fn socket_path(&self) -> Result<PathBuf, AddressError> {
        self.socket_path_in(runtime().as_deref(), this_user())
    }

    /// The socket file of a memory node that lets others in.
    ///
    /// # Errors
    /// If the path is too long for a socket.
    pub fn shared_socket_path(&self) -> Result<PathBuf, AddressError> {
        let path = match &self.place {
            PathOrName::Path(path, _) => path.clone(),
            PathOrName::Named(name, user) => {
                let user = user.unwrap_or_else(this_user);
                PathBuf::from(format!("/tmp/fpcache-shared-{user}/{name}.sock"))
            }
        };
        fits(path)
    }

    /// Where a client looks for the socket file, in this order.
    pub(super) fn places(&self) -> Result<Vec<PathBuf>, AddressError> {
        self.places_in(runtime().as_deref(), this_user())
    }

    fn places_in(&self, runtime: Option<&Path>, user: u32) -> Result<Vec<PathBuf>, AddressError> {
        let mut places = vec![self.socket_path_in(runtime, user)?];
        // A memory node of this user that runs as a service, or this process that does, may lack
        // the variable that the other has.
        let usual = PathBuf::from(format!("/run/user/{user}"));
        let of_others = [self.socket_path_in(Some(&usual), user), self.socket_path_in(None, user)];
        for place in [self.shared_socket_path()].into_iter().chain(of_others).flatten() {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        Ok(places)
    }

    fn socket_path_in(&self, runtime: Option<&Path>, user: u32) -> Result<PathBuf, AddressError> {
        match (&self.place, runtime) {
            (PathOrName::Path(..) | PathOrName::Named(_, Some(_)), _) => self.shared_socket_path(),
            (PathOrName::Named(name, None), Some(runtime)) if runtime.is_absolute() => {
                fits(runtime.join("fpcache").join(format!("{name}.sock")))
            }
            (PathOrName::Named(name, None), _) => {
                fits(PathBuf::from(format!("/tmp/fpcache-{user}/{name}.sock")))
            }
        }
    }

    /// The same without the user that it names: what a memory node of that user calls itself.
    pub(super) fn without_user(&self) -> Self {
        match &self.place {
            PathOrName::Named(name, _) => Self { place: PathOrName::Named(name.clone(), None) },
            PathOrName::Path(..) => self.clone(),
        }
    }

    /// The same as other users write it, if it is a name of this user's.
    pub(super) fn for_others(&self) -> Option<Self> {
        match &self.place {
            PathOrName::Named(name, _) => {
                Some(Self { place: PathOrName::Named(name.clone(), Some(this_user())) })
            }
            PathOrName::Path(..) => None,
        }
    }

    /// Whether it names a user.
    pub(super) fn names_user(&self) -> bool {
        matches!(self.place, PathOrName::Named(_, Some(_)))
    }
}

fn runtime() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn fits(path: PathBuf) -> Result<PathBuf, AddressError> {
    let len = path.as_os_str().len();
    if len > MAX_PATH {
        return Err(AddressError::TooLong { path: path.display().to_string(), len });
    }
    Ok(path)
}

impl FromStr for ShmAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let malformed = || AddressError::Malformed { text: text.to_owned() };
        let rest = text.strip_prefix(SCHEME).ok_or_else(malformed)?;
        let address = match rest.split_once('@') {
            _ if rest.starts_with('/') => Self::at_path(rest),
            Some((name, user)) => Self::of_user(name, user.parse().map_err(|_| malformed())?),
            None => Self::named(rest),
        };
        address.map_err(|_| malformed())
    }
}

impl fmt::Display for ShmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            PathOrName::Named(name, None) => write!(f, "{SCHEME}{name}"),
            PathOrName::Named(name, Some(user)) => write!(f, "{SCHEME}{name}@{user}"),
            PathOrName::Path(path, _) => write!(f, "{SCHEME}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_written() {
        for text in ["shm://a", "shm://main-1.x_Y", "shm://a@1001", "shm:///run/fp/a@b.sock"] {
            assert_eq!(text.parse::<ShmAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "a",
            "shm://",
            "shm://a/b",
            "shm://a b",
            "tcp://a",
            "shm:///",
            "shm://ä",
            "shm://a@",
            "shm://a@b",
            "shm://@1",
        ] {
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
        let others: ShmAddress = "shm://x@8".parse().unwrap();
        assert_eq!(others.owner(), Some(8));
        assert_eq!(others.places().unwrap(), [Path::new("/tmp/fpcache-shared-8/x.sock")]);
    }

    #[test]
    fn a_client_looks_where_a_memory_node_of_its_user_listens_whichever_environment_that_has() {
        let address: ShmAddress = "shm://x".parse().unwrap();
        for of_node in [None, Some("/run/user/7")] {
            let listens = address.socket_path_in(of_node.map(Path::new), 7).unwrap();
            for of_client in [None, Some("/run/user/7"), Some("/elsewhere")] {
                let places = address.places_in(of_client.map(Path::new), 7).unwrap();
                assert!(places.contains(&listens), "{of_node:?}, {of_client:?}");
                assert_eq!(places[0], address.socket_path_in(of_client.map(Path::new), 7).unwrap());
            }
        }
    }

    #[test]
    fn who_is_believed_at_a_path_depends_on_who_has_named_it() {
        let own = this_user();
        let other = own + 1;
        let path: ShmAddress = "shm:///run/x".parse().unwrap();
        assert!([own, other, 0].iter().all(|user| path.believes(*user, own)));
        let named_by_others = path.of_own_or_root();
        assert_eq!([own, other, 0].map(|user| named_by_others.believes(user, own)), [true, false, true]);
        for (name, user) in [("shm://x".to_owned(), own), (format!("shm://x@{other}"), other)] {
            let name: ShmAddress = name.parse().unwrap();
            let believed = [own, other].map(|found| name.believes(found, own));
            assert_eq!(believed, [user == own, user == other]);
            assert_eq!(name.clone().of_own_or_root(), name);
        }
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_its_length() {
        let address = ShmAddress::named(&"n".repeat(100)).unwrap();
        let error = address.socket_path_in(None, 1).unwrap_err();
        assert!(matches!(error, AddressError::TooLong { len: 120, .. }), "{error}");
    }
}
