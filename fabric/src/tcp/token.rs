//! Tokens: secrets by which clients are let in, with the rights that a token has.
//!
//! A token is 32 random bytes, written as 64 hexadecimal digits. An observer of an exchange can try
//! guesses at leisure, which is hopeless against random bytes, and against nothing else.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::private_file::{self, Unreadable};
use crate::error::FabricError;
use crate::random::random_bits;

/// Bytes of a token, of a nonce and of a proof.
pub(super) const BYTES: usize = 32;
/// Different bytes that a token has at least. Of 32 random ones hardly ever fewer than 24 differ;
/// of digits typed to try things out, most are alike.
const LEAST_DIFFERENT: usize = 8;
/// Tokens that a memory node knows at most: each is tried where one is proven.
const MAX_TOKENS: usize = 64;

/// A secret that a compute node and a memory node share. Its [`Debug`](fmt::Debug) does not show
/// it.
#[derive(Clone, Copy)]
pub struct Token([u8; BYTES]);

/// The rights of a client that proves a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Read, and nothing else.
    Read,
    /// Everything.
    Write,
}

/// Why a text or a file holds no token, and the remedy. It never shows what was found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(String);

impl TokenError {
    /// Not 64 hexadecimal digits, or digits that are clearly not random.
    #[must_use]
    pub fn malformed(what: &str) -> Self {
        Self(format!(
            "{what} is no token: one has 64 hexadecimal digits that are random; make one with `fpcache-cli token new`"
        ))
    }

    /// A client was given a memory node's file.
    fn several(path: &Path, count: usize) -> Self {
        Self(format!(
            "{} has {count} tokens, as a memory node's file does, and a client proves one: give it a file with that token \
             alone, for example of `sed -n 's/^write //p' FILE | head -n 1`",
            path.display()
        ))
    }

    /// A line of a file of tokens says something else.
    fn line(place: &str, line: usize) -> Self {
        Self(format!(
            "line {line} of {place} is no `write TOKEN` or `read TOKEN`, where a token has 64 hexadecimal digits; make one \
             with `fpcache-cli token new`"
        ))
    }

    /// A file of tokens has none, too many, or one twice.
    fn count(place: &str, what: &str) -> Self {
        Self(format!(
            "{place} has {what}: write a line `write TOKEN` or `read TOKEN` for each of 1 to {MAX_TOKENS} tokens"
        ))
    }
}

impl Token {
    /// A new one, of the operating system's random numbers.
    ///
    /// # Errors
    /// If the operating system gives none.
    pub fn random() -> Result<Self, FabricError> {
        nonce().map(Self)
    }

    /// The token of a file that has one, for a client: 64 digits, perhaps with `write` or `read`
    /// before them.
    ///
    /// # Errors
    /// It cannot be read, others could read it, or it does not have one token.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let text = read_private(path)?;
        let mut lines = lines(&text).map(|(_, line)| line);
        let malformed = || TokenError::malformed(&format!("the content of {}", path.display()));
        match (lines.next(), lines.next()) {
            (Some(line), None) => {
                let words: Vec<&str> = line.split_whitespace().collect();
                match words[..] {
                    [word] | ["write" | "read", word] => word.parse().map_err(|_| malformed()),
                    _ => Err(malformed()),
                }
            }
            _ => Err(match TokenSet::parse(&text, "") {
                Ok(set) => TokenError::several(path, set.len()),
                Err(_) => malformed(),
            }),
        }
    }

    /// Its 64 digits, to be shown to its keeper.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The proof of it, over these bytes, by a side of this role.
    pub(super) fn prove(&self, role: &Role, bytes: &[&[u8]]) -> [u8; BYTES] {
        self.digest(role, bytes).finalize().into_bytes().into()
    }

    /// Whether these bytes prove it. Takes as long whatever they are.
    pub(super) fn is_proven(&self, role: &Role, bytes: &[&[u8]], proof: &[u8; BYTES]) -> bool {
        self.digest(role, bytes).verify_slice(proof).is_ok()
    }

    fn digest(&self, role: &Role, bytes: &[&[u8]]) -> Hmac<Sha256> {
        // Shorter than a block, to which HMAC pads keys with zeros.
        let mut key = hmac::digest::Key::<Hmac<Sha256>>::default();
        key[..BYTES].copy_from_slice(&self.0);
        let mut digest = <Hmac<Sha256> as Mac>::new(&key);
        digest.update(&role.0);
        bytes.iter().for_each(|bytes| digest.update(bytes));
        digest
    }
}

/// The side that proves, so that a proof cannot be sent back to its sender.
pub(super) struct Role([u8; 16]);

/// The compute node.
pub(super) const CLIENT: Role = Role(*b"fpcache client 1");
/// The memory node.
pub(super) const NODE: Role = Role(*b"fpcache server 1");

/// Fresh random bytes.
pub(super) fn nonce() -> Result<[u8; BYTES], FabricError> {
    let mut bytes = [0; BYTES];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&random_bits()?.to_le_bytes());
    }
    Ok(bytes)
}

impl PartialEq for Token {
    /// Takes as long whatever they are.
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits: Option<[u8; 2 * BYTES]> = digits.and_then(|digits| digits.try_into().ok());
        let digits = digits.ok_or_else(|| TokenError::malformed("what was given"))?;
        let bytes: [u8; BYTES] = std::array::from_fn(|at| digits[2 * at] << 4 | digits[2 * at + 1]);
        let is_new = |at: &usize| !bytes[..*at].contains(&bytes[*at]);
        if (0..BYTES).filter(is_new).count() < LEAST_DIFFERENT {
            return Err(TokenError::malformed("a token that can be guessed"));
        }
        Ok(Self(bytes))
    }
}

/// The tokens that a memory node lets in, and what with. None: it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSet {
    tokens: Vec<(Token, Rights)>,
}

impl TokenSet {
    /// Those of a file with a line `write TOKEN` or `read TOKEN` for each, and comments after `#`.
    ///
    /// # Errors
    /// It cannot be read, others could read it, or it has something else.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        Self::parse(&read_private(path)?, &path.display().to_string())
    }

    /// Those of a text such as a file has, where a `;` ends a line too. `place` is what errors call
    /// it.
    ///
    /// # Errors
    /// It has something else.
    pub fn parse(text: &str, place: &str) -> Result<Self, TokenError> {
        let count = |what| TokenError::count(place, what);
        let mut set = Self::default();
        for (line, words) in lines(text) {
            let wrong = || TokenError::line(place, line);
            let (role, token) = words.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let rights = match role {
                "write" => Rights::Write,
                "read" => Rights::Read,
                _ => return Err(wrong()),
            };
            let token: Token = token.trim().parse().map_err(|_| wrong())?;
            if set.tokens.iter().any(|(other, _)| *other == token) {
                return Err(count("a token twice"));
            }
            set.tokens.push((token, rights));
        }
        match set.tokens.len() {
            0 => Err(count("no token")),
            1..=MAX_TOKENS => Ok(set),
            _ => Err(count("too many tokens")),
        }
    }

    /// The same with another one.
    #[must_use]
    pub fn with(mut self, token: Token, rights: Rights) -> Self {
        self.tokens.push((token, rights));
        self
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether this one is among them, with these rights.
    pub(super) fn has(&self, token: &Token, rights: Rights) -> bool {
        self.tokens.contains(&(*token, rights))
    }

    /// The token that is proven by this, and what with. All are tried, whichever it is.
    pub(super) fn proven(&self, bytes: &[&[u8]], proof: &[u8; BYTES]) -> Option<(Token, Rights)> {
        self.tokens.iter().fold(None, |found, (token, rights)| {
            if token.is_proven(&CLIENT, bytes, proof) { Some((*token, *rights)) } else { found }
        })
    }
}

/// The lines of a text, without comments and empty ones, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().zip(1..).flat_map(|(line, number)| line.split(';').map(move |l| (number, l)));
    numbered
        .map(|(number, line)| (number, line.split('#').next().unwrap_or_default().trim()))
        .filter(|(_, line)| !line.is_empty())
}

fn read_private(path: &Path) -> Result<String, TokenError> {
    let path_shown = path.display();
    private_file::read(path).map_err(|error| match error {
        Unreadable::Exposed => TokenError(format!(
            "others may read or change {path_shown}, which holds tokens, or it belongs to another user: `chmod 600` it as the \
             user who runs this program"
        )),
        Unreadable::Failed(source) => TokenError(format!(
            "the tokens in {path_shown} cannot be read: {source}; correct the path or its permissions"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const A: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const B: &str = "FF0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn tokens_read_back_and_do_not_show() {
        let token: Token = A.parse().unwrap();
        assert_eq!((token.reveal(), format!("{token:?}")), (A.to_owned(), "Token(..)".to_owned()));
        assert_ne!(token, B.parse().unwrap());
        assert_ne!(Token::random().unwrap(), Token::random().unwrap());
        for bad in [
            "",
            "secret",
            &A[1..],
            &format!("{A}0"),
            &format!(" {A}"),
            &A.replace('f', "g"),
            &"0".repeat(64),
            &"ab".repeat(32),
        ] {
            let error = bad.parse::<Token>().unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits") && !error.contains("secret"), "{error}");
        }
    }

    /// HMAC-SHA256 of RFC 2104 and RFC 6234, computed by another program.
    #[test]
    fn a_proof_has_the_documented_bytes() {
        let token: Token = A.parse().unwrap();
        let proof = token.prove(&CLIENT, &[b"hello", b"challenge"]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "e811dd2369780048cf89926b96dca34a6eb526e0af1f2ea0d4bbab7b7ac20550");
        assert!(token.is_proven(&CLIENT, &[b"hellochallenge"], &proof));
        assert!(!token.is_proven(&NODE, &[b"hello", b"challenge"], &proof), "no reflection");
        assert!(!token.is_proven(&CLIENT, &[b"hello", b"challengf"], &proof), "no replay");
        assert!(!B.parse::<Token>().unwrap().is_proven(&CLIENT, &[b"hello", b"challenge"], &proof));
        let set = TokenSet::default().with(B.parse().unwrap(), Rights::Write).with(token, Rights::Read);
        assert_eq!(set.proven(&[b"hellochallenge"], &proof), Some((token, Rights::Read)));
        assert_eq!(set.proven(&[b"hallochallenge"], &proof), None);
    }

    #[test]
    fn lines_say_who_may_do_what() {
        let set = TokenSet::parse(&format!("# both\n\nwrite {A} # the loader\n  read\t{B}"), "it").unwrap();
        let (a, b) = (A.parse().unwrap(), B.parse().unwrap());
        assert_eq!(set, TokenSet::default().with(a, Rights::Write).with(b, Rights::Read));
        assert!(set.has(&a, Rights::Write) && !set.has(&b, Rights::Write));
        assert_eq!(TokenSet::parse(&format!("write {A}; read {B}"), "it").unwrap(), set);
        let bad = [
            ("", "no token"),
            ("#", "no token"),
            (A, "line 1"),
            (&format!("write {A}\nadmin {B}"), "line 2"),
            ("write x", "line 1"),
            (&format!("write {A}\nread {A}"), "twice"),
        ];
        for (text, why) in bad {
            let error = TokenSet::parse(text, "this place").unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("this place") && !error.contains(A), "{error}");
        }
    }

    #[test]
    fn a_clients_file_has_the_words_that_a_memory_nodes_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (word, is_good) in [("write", true), ("read", true), ("readonly", false), ("writes", false)] {
            std::fs::write(&path, format!("{word} {A}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(Token::from_file(&path).is_ok(), is_good, "{word}");
            assert_eq!(TokenSet::from_file(&path).is_ok(), is_good, "{word}");
        }
    }

    #[test]
    fn files_that_others_can_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("write {A}\n")).unwrap();
        let allow = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (mode, is_good) in [(0o600, true), (0o640, true), (0o644, false), (0o620, false), (0o604, false)]
        {
            allow(mode);
            assert_eq!(TokenSet::from_file(&path).is_ok(), is_good, "{mode:o}");
            assert_eq!(Token::from_file(&path).is_ok(), is_good, "{mode:o}");
        }
        allow(0o600);
        for (text, is_good) in
            [(format!("{A}\n"), true), (format!("{A}\n{B}\n"), false), (format!("x {A}"), false)]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Token::from_file(&path).is_ok(), is_good);
        }
        std::fs::write(&path, format!("write {A}\n read {B} # a reader\n")).unwrap();
        let error = Token::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("has 2 tokens") && error.contains("sed -n"), "{error}");
        assert!(!error.contains("token new") && !error.contains(&A[..8]), "{error}");
        std::fs::write(&path, format!("write {A}\n# {}", "x".repeat(64 << 10))).unwrap();
        let error = TokenSet::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("more than 64 KiB"), "{error}");
        // This pipe has no writer.
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let error = TokenSet::from_file(&pipe).unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
        let error = Token::from_file(&folder.path().join("nowhere")).unwrap_err().to_string();
        assert!(error.contains("nowhere"), "{error}");
    }
}
