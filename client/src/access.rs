//! Credentials from the environment: tokens, certificates and trusted authorities.

use std::path::{Path, PathBuf};

use fpcache_fabric::tcp::{TcpAddress, TlsIdentity, TlsTrust, Token, TokenError};

use crate::error::ClientError;
use crate::url::Url;

/// A token, and the name of a file that has one.
const TOKEN: &str = "FPCACHE_TOKEN";
const TOKEN_FILE: &str = "FPCACHE_TOKEN_FILE";

/// Files of certificates, and of a key.
const TLS_CA: &str = "FPCACHE_TLS_CA";
const TLS_CERT: &str = "FPCACHE_TLS_CERT";
const TLS_KEY: &str = "FPCACHE_TLS_KEY";

/// The memory node at `address`. Of TLS, what the address does not say is as the environment does:
/// `FPCACHE_TLS_CA`, and `FPCACHE_TLS_CERT` with `FPCACHE_TLS_KEY`. Only for connecting: what is
/// told to others says nothing of this machine's files.
pub(crate) fn believing(address: &TcpAddress) -> TcpAddress {
    address.clone().trusting(trust_of(|name| std::env::var_os(name)))
}

fn trust_of(value: impl Fn(&str) -> Option<std::ffi::OsString>) -> TlsTrust {
    let file = |name| value(name).filter(|file| !file.is_empty()).map(PathBuf::from);
    let identity = file(TLS_CERT).zip(file(TLS_KEY));
    TlsTrust {
        authority: file(TLS_CA),
        identity: identity.map(|(certificate, key)| TlsIdentity { certificate, key }),
    }
}

/// The token to prove to the memory node at `url`: the one that is given, or that of the
/// environment, `FPCACHE_TOKEN` or the file that `FPCACHE_TOKEN_FILE` names. None where the
/// operating system tells who is there.
pub(crate) fn token_for(url: &Url, given: Option<Token>) -> Result<Option<Token>, ClientError> {
    match (url, given) {
        (Url::Shm(_), _) => Ok(None),
        (Url::Tcp(_), Some(token)) => Ok(Some(token)),
        (Url::Tcp(_), None) => Ok(of_environment(|name| std::env::var_os(name))?),
    }
}

fn of_environment(value: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Option<Token>, TokenError> {
    let value = |name| value(name).filter(|value| !value.is_empty());
    match (value(TOKEN), value(TOKEN_FILE)) {
        (Some(token), _) => {
            let malformed = |_| TokenError::malformed(&format!("the value of {TOKEN}"));
            token.to_string_lossy().parse().map(Some).map_err(malformed)
        }
        (None, Some(file)) => Token::from_file(Path::new(&file)).map(Some),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_address_does_not_say_of_tls_the_environment_does() {
        let of = |set: &[(&str, &str)]| {
            let find =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            let address: TcpAddress = "tcps://node-1:7400?ca=a.pem".parse().expect("an address");
            address.trusting(trust_of(find)).to_string()
        };
        assert_eq!(of(&[]), "tcps://node-1:7400?ca=a.pem");
        let both = [(TLS_CA, "b.pem"), (TLS_CERT, "c.pem"), (TLS_KEY, "k.pem")];
        assert_eq!(of(&both), "tcps://node-1:7400?ca=a.pem&cert=c.pem&key=k.pem");
        assert_eq!(
            of(&both[..2]),
            "tcps://node-1:7400?ca=a.pem",
            "a certificate is of no use without its key"
        );
        let plain: TcpAddress = "tcp://node-1:7400".parse().expect("an address");
        assert!(plain.trusting(trust_of(|_| Some("b.pem".into()))).trust().is_none());
    }

    #[test]
    fn the_environment_has_a_token_or_names_its_file() {
        let (a, b) = (Token::random().expect("a token"), Token::random().expect("a token"));
        let file = std::env::temp_dir().join(format!("fpcache-token-{}", &a.reveal()[..16]));
        std::fs::write(&file, b.reveal()).expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("its owner");
        let of = |token: Option<&str>, file: Option<&Path>| {
            of_environment(|name| match name {
                TOKEN => token.map(Into::into),
                _ => file.map(Into::into),
            })
        };
        assert_eq!(of(None, None).expect("nothing"), None);
        assert_eq!(of(Some(""), Some(&file)).expect("one"), Some(b));
        assert_eq!(of(Some(&a.reveal()), Some(&file)).expect("one"), Some(a));
        let error = of(Some("hush"), None).expect_err("no token").to_string();
        assert!(error.contains("FPCACHE_TOKEN") && !error.contains("hush"), "{error}");
        std::fs::remove_file(&file).expect("it is there");
        assert!(of(None, Some(&file)).is_err());
    }
}
