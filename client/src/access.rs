//! The token by which a client gets in.

use std::path::Path;

use fpcache_fabric::tcp::{Token, TokenError};

use crate::error::ClientError;
use crate::url::Url;

/// A token, and the name of a file that has one.
const TOKEN: &str = "FPCACHE_TOKEN";
const TOKEN_FILE: &str = "FPCACHE_TOKEN_FILE";

/// The token to prove to the memory node at `url`: the one that is given, or that of the environment, `FPCACHE_TOKEN` or the
/// file that `FPCACHE_TOKEN_FILE` names. None where the operating system tells who is there.
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
            let malformed = |_| TokenError::Malformed(format!("the value of {TOKEN}"));
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
