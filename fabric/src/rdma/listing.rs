//! The devices of this machine, by the safe half of the binding.

use std::net::Ipv6Addr;

use super::RdmaError;

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Its ports that have addresses.
    pub ports: Vec<PortInfo>,
    /// Why nothing more can be said of it, such as that its first port is down.
    pub trouble: Option<String>,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// From 1.
    pub number: u32,
    /// Its table of addresses.
    pub gids: Vec<GidInfo>,
}

/// An address of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GidInfo {
    /// Its place in the table.
    pub index: u32,
    /// It itself.
    pub gid: Ipv6Addr,
    /// Its protocol: InfiniBand, RoCE v1 or RoCE v2.
    pub protocol: &'static str,
}

/// The devices of this machine.
///
/// # Errors
/// [`Unusable`](RdmaError::Unusable) if the kernel has no verbs or no device.
pub fn devices() -> Result<Vec<DeviceInfo>, RdmaError> {
    let list = ibverbs::devices().map_err(|error| RdmaError::no_device(&error))?;
    if list.is_empty() {
        return Err(RdmaError::no_device(&"the kernel lists none"));
    }
    Ok(list.iter().map(|device| describe(&device)).collect())
}

fn describe(device: &ibverbs::Device<'_>) -> DeviceInfo {
    let name = device.name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let context = match device.open() {
        Ok(context) => context,
        Err(error) => return DeviceInfo { name, ports: Vec::new(), trouble: Some(error.to_string()) },
    };
    let mut ports: Vec<PortInfo> = Vec::new();
    for entry in context.gid_table() {
        let bits = u128::from(entry.gid.subnet_prefix()) << 64 | u128::from(entry.gid.interface_id());
        let protocol = match entry.gid_type {
            ibverbs_sys::IBV_GID_TYPE_IB => "InfiniBand",
            ibverbs_sys::IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
            ibverbs_sys::IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
            _ => "unknown",
        };
        let gid = GidInfo { index: entry.gid_index, gid: Ipv6Addr::from_bits(bits), protocol };
        match ports.iter_mut().find(|port| port.number == entry.port_num) {
            Some(port) => port.gids.push(gid),
            None => ports.push(PortInfo { number: entry.port_num, gids: vec![gid] }),
        }
    }
    DeviceInfo { name, ports, trouble: None }
}
