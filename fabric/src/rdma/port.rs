//! The present state of a device's port: its addresses move when its interface's do, and its number
//! and MTU when its network changes.

use std::ptr::NonNull;

use ibverbs_sys as ffi;

use super::error::succeeded;
use super::wire::QueuePairInfo;
use super::{CardChoice, RdmaError};

/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u32 = 2;

/// `IBV_QPF_GRH_REQUIRED`.
const GRH_REQUIRED: u8 = 1;

/// A port, with one of its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) gid_index: u8,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    /// 1 to 5 for 256 to 4096 bytes.
    pub(super) mtu: u8,
    pub(super) is_ethernet: bool,
    /// Whether its packets need a global header in any case.
    pub(super) wants_global: bool,
}

impl Port {
    /// The chosen port of the device whose context this is, which is open.
    pub(super) fn look(
        context: NonNull<ffi::ibv_context>,
        device: &str,
        choice: &CardChoice,
    ) -> Result<Self, RdmaError> {
        let number = choice.port.unwrap_or(1);
        let attributes = port_attributes(context, device, number)?;
        if let Some(pkey) = choice.pkey.filter(|pkey| *pkey >= attributes.pkey_tbl_len) {
            return Err(RdmaError::Unusable(format!(
                "port {number} of {device} has no partition key at index {pkey}, only {}; \
                 /sys/class/infiniband/{device}/ports/{number}/pkeys has them",
                attributes.pkey_tbl_len
            )));
        }
        let (gid_index, gid) = choose_gid(context, device, number, choice.gid)?;
        Ok(Self {
            number,
            gid_index,
            gid,
            lid: attributes.lid,
            // The library's numbers are 1 to 5; what it adds one day is no less than the last.
            mtu: attributes.active_mtu.clamp(1, 5) as u8,
            is_ethernet: u32::from(attributes.link_layer) == ETHERNET,
            wants_global: attributes.flags & GRH_REQUIRED != 0,
        })
    }
}

impl Port {
    /// Whether packets to an address need a global header: over Ethernet, where the port asks for
    /// it, and to other subnets, which are the first half of an address.
    fn needs_global(&self, other: &[u8; 16]) -> bool {
        self.is_ethernet || self.wants_global || self.gid[..8] != other[..8]
    }

    /// How packets get from here to the other end, as was asked for on this side or the other.
    pub(super) fn way_to(&self, other: &QueuePairInfo, asked: &CardChoice) -> ffi::ibv_ah_attr {
        let mut way = ffi::ibv_ah_attr { port_num: self.number, dlid: other.lid, ..Default::default() };
        way.sl = asked.service_level.unwrap_or(other.service_level);
        if self.needs_global(&other.gid) {
            way.is_global = 1;
            way.grh.dgid = ffi::ibv_gid { raw: other.gid };
            way.grh.sgid_index = self.gid_index;
            way.grh.hop_limit = 64;
            way.grh.traffic_class = asked.traffic_class.unwrap_or(other.traffic_class);
        }
        way
    }
}

fn port_attributes(
    context: NonNull<ffi::ibv_context>,
    device: &str,
    port: u8,
) -> Result<ffi::ibv_port_attr, RdmaError> {
    let refusal = |what| RdmaError::Port { device: device.to_owned(), port, what };
    let mut attributes = ffi::ibv_port_attr::default();
    // SAFETY: the context is open. The library fills the part of the attributes that its oldest
    // version has, and they begin alike.
    let errno = unsafe { ffi::ibv_query_port(context.as_ptr(), port, (&raw mut attributes).cast()) };
    succeeded(errno).map_err(|_| refusal("is not there"))?;
    match attributes.state {
        ffi::ibv_port_state::IBV_PORT_ACTIVE => Ok(attributes),
        _ => Err(refusal("is down; bring its link up")),
    }
}

fn choose_gid(
    context: NonNull<ffi::ibv_context>,
    device: &str,
    port: u8,
    wanted: Option<u8>,
) -> Result<(u8, [u8; 16]), RdmaError> {
    let mut entries = vec![ffi::ibv_gid_entry::default(); 1024];
    // SAFETY: the context is open, and there are as many entries of that size as is said.
    let count = unsafe {
        let size = size_of::<ffi::ibv_gid_entry>();
        ffi::_ibv_query_gid_table(context.as_ptr(), entries.as_mut_ptr(), entries.len(), 0, size)
    };
    entries.truncate(usize::try_from(count).unwrap_or(0));
    let of_port = entries.iter().filter(|entry| entry.port_num == u32::from(port));
    // SAFETY: any bytes of the union are bytes of a GID.
    let known = of_port.map(|entry| (entry, unsafe { entry.gid.raw }));
    let chosen = match wanted {
        Some(wanted) => known.clone().find(|(entry, _)| entry.gid_index == u32::from(wanted)),
        None => known.min_by_key(|(entry, gid)| {
            let is_routable = entry.gid_type == ffi::IBV_GID_TYPE_ROCE_V2;
            let is_ipv4 = gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            (!is_routable, !is_ipv4, gid[..2] == [0xfe, 0x80], entry.gid_index)
        }),
    };
    let index =
        |(entry, gid): (&ffi::ibv_gid_entry, [u8; 16])| Some((u8::try_from(entry.gid_index).ok()?, gid));
    chosen.and_then(index).ok_or_else(|| {
        let gid = wanted.unwrap_or(0);
        RdmaError::Unusable(format!(
            "port {port} of {device} has no GID at index {gid}; `fpcache-cli devices` lists them"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Port = Port {
        number: 2,
        gid_index: 3,
        gid: [1; 16],
        lid: 4,
        mtu: 5,
        is_ethernet: false,
        wants_global: false,
    };

    fn end(gid: [u8; 16]) -> QueuePairInfo {
        QueuePairInfo {
            number: 1,
            sequence: 1,
            gid,
            lid: 9,
            mtu: 5,
            service_level: 3,
            depth: 1,
            traffic_class: 106,
            zero: 0,
        }
    }

    #[test]
    fn global_headers_are_for_ethernet_other_subnets_and_ports_that_ask() {
        let mut neighbour = [1; 16];
        neighbour[15] = 7;
        let mut stranger = [1; 16];
        stranger[7] = 7;
        for (port, gid, is_global) in [
            (PORT, neighbour, 0),
            (PORT, stranger, 1),
            (Port { wants_global: true, ..PORT }, neighbour, 1),
            (Port { is_ethernet: true, ..PORT }, neighbour, 1),
        ] {
            let way = port.way_to(&end(gid), &CardChoice::default());
            assert_eq!((way.is_global, way.dlid, way.port_num), (is_global, 9, 2), "{port:?}");
            assert_eq!((way.grh.sgid_index, way.grh.traffic_class), (3 * is_global, 106 * is_global));
        }
    }

    #[test]
    fn class_and_level_are_those_of_this_end_or_else_the_others() {
        let port = Port { is_ethernet: true, ..PORT };
        let of = |text| {
            let way = port.way_to(&end([1; 16]), &CardChoice::parse(text).expect("a choice"));
            (way.sl, way.grh.traffic_class)
        };
        assert_eq!([of(""), of("sl=0"), of("tc=8"), of("tc=8&sl=5")], [(3, 106), (0, 106), (3, 8), (5, 8)]);
    }
}
