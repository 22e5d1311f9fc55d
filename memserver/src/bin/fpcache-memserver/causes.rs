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
    use fpcache_fabric::FabricError;

    use super::*;

    #[test]
    fn causes_follow_in_their_order_and_each_is_said_once() {
        let error = Err::<(), _>(io::Error::other("disk full")).context("writing").context("saving");
        assert_eq!(in_one_line(&error.expect_err("an error")), "saving: writing: disk full");
        let error = FabricError::os("opening a socket", io::Error::other("no more of them"));
        assert_eq!(in_one_line(&error.into()), "opening a socket failed: no more of them");
    }
}
