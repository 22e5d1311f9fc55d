//! Errors as people read them: one line, with each cause once.

/// The error and its causes, joined by colons. A cause that the text before it has already is left
/// out: some errors tell what they come from, and have it as their source as well.
pub(crate) fn in_one_line(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut line, cause| {
        let cause = cause.to_string();
        if line.is_empty() {
            return cause;
        }
        if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
        line
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;
    use fpcache_client::{ClientError, FabricError};

    use super::*;

    #[test]
    fn what_an_error_says_of_its_cause_is_said_once() {
        let refused = || FabricError::os("opening a socket", io::Error::other("no more of them"));
        let away = ClientError::NodeAway { node: "tcp://node-1:7400".into(), source: refused() };
        let line = in_one_line(&away.into());
        assert_eq!(line.matches("no more of them").count(), 1, "{line}");
        assert!(line.contains("tcp://node-1:7400") && line.contains("opening a socket"), "{line}");
    }

    #[test]
    fn causes_that_are_not_said_follow_in_their_order() {
        let error = Err::<(), _>(io::Error::other("disk full")).context("writing").context("saving");
        assert_eq!(in_one_line(&error.expect_err("an error")), "saving: writing: disk full");
    }
}
