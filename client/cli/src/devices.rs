//! `devices`: the RDMA devices of this machine.

use crate::output::{Outcome, Output};

/// Lists them, with their ports and the addresses (GIDs) of these.
#[cfg(feature = "rdma")]
pub(crate) fn list(output: &mut Output) -> anyhow::Result<Outcome> {
    use fpcache_fabric::rdma;
    use serde_json::{Value, json};

    let devices = rdma::devices()?;
    if output.is_json() {
        let listed: Vec<Value> = devices
            .iter()
            .map(|device| {
                let ports: Vec<Value> = device
                    .ports
                    .iter()
                    .map(|port| {
                        let gid = |gid: &rdma::GidInfo| json!({ "index": gid.index, "gid": gid.gid.to_string(), "protocol": gid.protocol });
                        json!({ "port": port.number, "gids": port.gids.iter().map(gid).collect::<Vec<_>>() })
                    })
                    .collect();
                json!({ "device": device.name, "ports": ports, "trouble": device.trouble })
            })
            .collect();
        output.document(&Value::Array(listed))?;
        return Ok(Outcome::Done);
    }
    for device in &devices {
        if let Some(trouble) = &device.trouble {
            output.row(&device.name, trouble)?;
        }
        for port in &device.ports {
            for gid in &port.gids {
                output.row(
                    &device.name,
                    format_args!("port {}  gid {:<3} {}  {}", port.number, gid.index, gid.protocol, gid.gid),
                )?;
            }
        }
    }
    Ok(Outcome::Done)
}

/// Says how this program is to be built to list them.
#[cfg(not(feature = "rdma"))]
pub(crate) fn list(_: &mut Output) -> anyhow::Result<Outcome> {
    Err(fpcache_fabric::RdmaError::NotBuilt.into())
}
