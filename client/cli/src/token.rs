//! The `token` command.

use clap::{Args, Subcommand};
use fpcache_client::Token;
use serde_json::json;

use crate::output::{Outcome, Output};

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
    pub(crate) fn run(&self, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.what {
            What::New => {
                let token = Token::random()?.reveal();
                match output.is_json() {
                    true => output.document(&json!({ "token": token }))?,
                    false => output.line(token)?,
                }
            }
        }
        Ok(Outcome::Done)
    }
}
