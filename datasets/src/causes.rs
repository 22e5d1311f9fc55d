//! Errors as people read them: one line, with each cause once.

use std::error::Error;

/// An error and its causes, the error first, joined by colons. A cause that the text before it has
/// already is left out: some errors tell what they come from, and have it as their source as well.
pub fn in_one_line<'e>(causes: impl Iterator<Item = &'e (dyn Error + 'static)>) -> String {
    causes.fold(String::new(), |mut line, cause| {
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

    use super::*;

    /// An error that tells its cause, or does not.
    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("opening a socket failed: {0}")]
        Told(#[source] io::Error),
        #[error("saving")]
        Untold(#[source] Box<Failed>),
    }

    fn line(error: &(dyn Error + 'static)) -> String {
        let mut next = Some(error);
        in_one_line(std::iter::from_fn(move || {
            let error = next?;
            next = error.source();
            Some(error)
        }))
    }

    #[test]
    fn causes_follow_in_their_order_and_each_is_said_once() {
        let told = || Failed::Told(io::Error::other("no more of them"));
        assert_eq!(line(&told()), "opening a socket failed: no more of them");
        assert_eq!(line(&Failed::Untold(told().into())), "saving: opening a socket failed: no more of them");
    }
}
