//! The `devices` command: the RDMA devices of this machine.

use crate::output::{Outcome, Output};

/// Lists them, with their ports and the addresses (GIDs) of these.
#[cfg(feature = "rdma")]
pub(crate) fn list(output: &mut Output) -> anyhow::Result<Outcome> {
    use fpcache_fabric::rdma;
    use serde_json::{Value, json};

    let devices = rdma::devices()?;
    let used = rdma::resolve(&rdma::CardChoice::default()).ok();
    let is_used = |device: &rdma::DeviceInfo, port: &rdma::PortInfo, gid: &rdma::GidInfo| {
        let is = |index: Option<u8>, number: u32| index.map(u32::from) == Some(number);
        let names = |used: &rdma::CardChoice| used.device.as_ref() == Some(&device.name);
        used.as_ref().is_some_and(|used| names(used) && is(used.port, port.number) && is(used.gid, gid.index))
    };
    if output.is_json() {
        for device in &devices {
            let port = |port: &rdma::PortInfo| {
                let gid = |gid: &rdma::GidInfo| {
                    let is_default = is_used(device, port, gid);
                    json!({ "index": gid.index, "gid": gid.gid.to_string(), "protocol": gid.protocol, "default": is_default })
                };
                json!({ "port": port.number, "gids": port.gids.iter().map(gid).collect::<Vec<_>>() })
            };
            let ports: Vec<Value> = device.ports.iter().map(port).collect();
            output.element(&json!({ "device": device.name, "ports": ports, "trouble": device.trouble }))?;
        }
        output.end_array()?;
        return Ok(Outcome::Done);
    }
    for device in &devices {
        if let Some(trouble) = &device.trouble {
            output.row(&device.name, trouble)?;
        }
        for port in &device.ports {
            for gid in &port.gids {
                let note =
                    if is_used(device, port, gid) { "  (unless an address says otherwise)" } else { "" };
                let (index, protocol, address) = (gid.index, gid.protocol, gid.gid);
                let row = format_args!("port {}  gid {index:<3} {protocol}  {address}{note}", port.number);
                output.row(&device.name, row)?;
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
