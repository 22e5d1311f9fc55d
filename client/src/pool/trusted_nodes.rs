//! The memory nodes that a client goes to, of those that a map names.
//!
//! Any client that may make a table over several memory nodes writes the URLs of its map, and every
//! client of the table reads them. So a map's URL says where a memory node is, and nothing that
//! only the client's own user may say: which users' memory nodes are believed, which files
//! certificates are read from, and that nothing is encrypted on the way. A URL that the client was
//! given itself, by its own user, is good as it is.

use fpcache_fabric::shm::ShmAddress;

use crate::error::ClientError;
use crate::url::Url;

/// The memory node that a map names, for a client that was given these.
pub(crate) fn follow(node: &str, given: &[Url]) -> Result<Url, ClientError> {
    let url: Url = node.parse()?;
    if given.contains(&url) {
        return Ok(url);
    }
    let refused = |why: String| Err(ClientError::NotFollowed { node: node.to_owned(), why });
    if url.for_others() != url {
        return refused(
            "it names files of this machine for TLS, which only the client's own URLs and environment may \
             (FPCACHE_TLS_CA, FPCACHE_TLS_CERT, FPCACHE_TLS_KEY): give the client that URL itself, or make the table \
             anew with URLs that name no files"
                .to_owned(),
        );
    }
    // What the client's own URL says of files is its user's.
    if let Some(own) = given.iter().find(|own| own.for_others() == url) {
        return Ok(own.clone());
    }
    if is_exposed(&url) && given.iter().any(is_encrypted) && !given.iter().any(is_exposed) {
        return refused(
            "nothing is encrypted on the way there, and the client was given tcps:// URLs: make the table anew with \
             tcps:// URLs, or give the client that URL, too"
                .to_owned(),
        );
    }
    if let Some(owner) = owner(&url)
        && Some(owner) != own_user()
        && !given.iter().any(|own| self::owner(own) == Some(owner))
    {
        return refused(format!(
            "it means a memory node of user {owner}, whom none of the client's own URLs names: give the client a URL of \
             that user's, too, if it is to be believed"
        ));
    }
    Ok(match url {
        // Who listens at a path is not asked, unless another has named it.
        Url::Shm(address) => Url::Shm(address.of_own_or_root()),
        url @ Url::Tcp(_) => url,
    })
}

/// The user of this process, who is meant by a name that names no other user.
fn own_user() -> Option<u32> {
    ShmAddress::named("own").ok()?.owner()
}

/// Whose memory node a URL means, where it depends on the user who reads it or is said.
fn owner(url: &Url) -> Option<u32> {
    match url {
        Url::Shm(address) => ShmAddress::owner(address),
        Url::Tcp(address) => address.owner(),
    }
}

fn is_encrypted(url: &Url) -> bool {
    matches!(url, Url::Tcp(address) if address.trust().is_some())
}

/// Whether what is said goes over a network as it is.
fn is_exposed(url: &Url) -> bool {
    !url.is_of_this_machine() && !is_encrypted(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::parse_list;

    fn followed(node: &str, given: &str) -> Result<String, String> {
        let given = parse_list(given).expect("good URLs");
        match follow(node, &given) {
            Ok(url) => Ok(url.to_string()),
            Err(ClientError::NotFollowed { node: named, why }) => {
                assert_eq!(named, node);
                Err(why)
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn refused(node: &str, given: &str, remedy: &str) {
        let why = followed(node, given).expect_err(node);
        assert!(why.contains(remedy), "{why}");
        assert_eq!(followed(node, &format!("{given},{node}")), Ok(node.to_owned()), "given itself");
    }

    fn goes(node: &str, given: &str) {
        assert_eq!(followed(node, given), Ok(node.to_owned()));
    }

    #[test]
    fn a_map_names_no_files_of_its_clients() {
        for part in ["ca=a.pem", "cert=c.pem&key=k.pem"] {
            refused(&format!("tcps://b:1?{part}"), "tcps://a:1", "FPCACHE_TLS_CA");
        }
        refused("tcps://a:1?ca=other.pem", "tcps://a:1?ca=own.pem", "name no files");
        // Those of the client's own URL count.
        assert_eq!(followed("tcps://a:1", "tcps://a:1?ca=own.pem"), Ok("tcps://a:1?ca=own.pem".to_owned()));
        goes("tcps://b:1", "tcps://a:1?ca=own.pem");
    }

    #[test]
    fn a_map_does_not_lead_out_of_tls() {
        for plain in ["tcp://b:1", "tcp://10.0.0.1:1", "rdma://b:1?gid=1"] {
            refused(plain, "tcps://a:1", "tcps://");
            goes(plain, "tcp://a:1");
            goes(plain, "shm://a");
        }
        for of_this_machine in ["tcp://127.0.0.1:1", "tcp://localhost:1", "shm://b", "tcp+unix:///run/b"] {
            goes(of_this_machine, "tcps://a:1");
        }
        goes("tcp://b:1", "tcps://a:1,tcp://c:1");
    }

    #[test]
    fn a_map_does_not_say_whose_memory_nodes_are_believed() {
        let own = rustix::process::geteuid().as_raw();
        let other = own + 1;
        refused(&format!("shm://b@{other}"), "shm://a", "user");
        refused(&format!("tcp+unix://{other}@/run/b"), "tcp+unix:///run/a", "user");
        goes(&format!("shm://b@{own}"), "tcp://a:1");
        goes(&format!("shm://b@{other}"), &format!("shm://a@{other}"));
        goes(&format!("tcp+unix://{other}@/run/b"), &format!("shm://a@{other}"));
        goes("shm://b", "tcp://a:1");
    }

    #[test]
    fn at_a_path_of_a_map_other_users_are_not_believed() {
        let given = parse_list("shm:///run/a").expect("a good URL");
        let path = |path: &str| follow(path, &given).expect("a path");
        assert_eq!(path("shm:///run/a"), given[0]);
        assert_ne!(path("shm:///run/b"), "shm:///run/b".parse().expect("a good URL"));
        goes("shm:///run/b", "shm:///run/a");
    }
}
