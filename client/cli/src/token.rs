//! `token`

use clap::{Args, Subcommand};
use fpcache_client::Token;

use crate::output::Outcome;

/// What is done about tokens.
#[derive(Debug, Args)]
pub(crate) struct TokenCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a new token, of 32 random bytes, and print it; no memory node is asked
    New,
}

impl TokenCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        match self.what {
            What::New => println!("{}", Token::random()?.reveal()),
        }
        Ok(Outcome::Done)
    }
}
