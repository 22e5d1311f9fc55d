//! `create`

use clap::Args;
use fpcache_client::Client;
use serde_json::json;

use crate::Outcome;
use crate::output::Output;
use crate::parameters::Parameters;

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    parameters: Parameters,
}

impl Create {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let parameters = self.parameters.checked()?;
        client.create(parameters)?;
        if output.is_json() {
            output.document(&json!({
                "url": client.name(),
                "fingerprint_bits": parameters.width.bits(),
                "value_bytes": parameters.value_bytes,
                "epsilon": parameters.epsilon,
                "fill": parameters.fill,
            }))?;
        }
        Ok(Outcome::Done)
    }
}
