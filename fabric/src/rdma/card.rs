//! The choice of a card's device, port and address, as given in an address.

use std::fmt;

/// The port of the listener where an address names none.
pub const DEFAULT_PORT: u16 = 7471;

/// Which card is used, and how: what follows `?` in an address. What is not said is chosen: the
/// first device, its port 1, and the first of its addresses that is of RoCE v2 and IPv4, or else
/// the first that is routable, or else the first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CardChoice {
    /// Name of the device, such as `mlx5_0`.
    pub device: Option<String>,
    /// Index in the port's table of addresses (GIDs).
    pub gid: Option<u8>,
    /// Number of the port, from 1.
    pub port: Option<u8>,
    /// The traffic class of packets, over RoCE v2 that of their IP headers: a DSCP times 4. If this
    /// end has none the other's holds, which else is 0.
    pub traffic_class: Option<u8>,
    /// The service level of packets, 0 to 15; over RoCE the priority of VLAN tags. As the traffic
    /// class otherwise.
    pub service_level: Option<u8>,
    /// Index in the port's table of partition keys; else 0.
    pub pkey: Option<u16>,
}

impl CardChoice {
    /// The choice in `text`, as `dev=NAME&gid=INDEX&port=NUMBER&tc=CLASS&sl=LEVEL&pkey=INDEX` in
    /// any order; nothing is a choice too.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut choice = Self::default();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            let is_named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let repeated = match name {
                "dev" if !value.is_empty() && value.chars().all(is_named) => {
                    choice.device.replace(value.to_owned()).is_some()
                }
                "gid" => choice.gid.replace(value.parse().ok()?).is_some(),
                "port" => choice.port.replace(value.parse().ok().filter(|port| *port > 0)?).is_some(),
                "tc" => choice.traffic_class.replace(value.parse().ok()?).is_some(),
                "sl" => choice.service_level.replace(value.parse().ok().filter(|sl| *sl < 16)?).is_some(),
                "pkey" => choice.pkey.replace(value.parse().ok()?).is_some(),
                _ => return None,
            };
            if repeated {
                return None;
            }
        }
        Some(choice)
    }
}

impl fmt::Display for CardChoice {
    /// As in an address, with its `?`; nothing if nothing is said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, gid, port, traffic_class, service_level, pkey } = self;
        let parts = [
            device.as_ref().map(|device| format!("dev={device}")),
            gid.map(|gid| format!("gid={gid}")),
            port.map(|port| format!("port={port}")),
            traffic_class.map(|class| format!("tc={class}")),
            service_level.map(|level| format!("sl={level}")),
            pkey.map(|pkey| format!("pkey={pkey}")),
        ];
        for (at, part) in parts.into_iter().flatten().enumerate() {
            f.write_str(if at == 0 { "?" } else { "&" })?;
            f.write_str(&part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_read_back_as_written() {
        for text in [
            "",
            "dev=mlx5_0",
            "dev=rxe0&gid=1",
            "dev=rxe0&gid=1&port=2",
            "port=1",
            "dev=mlx5_0&tc=106&sl=3&pkey=1",
        ] {
            let choice = CardChoice::parse(text).unwrap();
            let expected = if text.is_empty() { String::new() } else { format!("?{text}") };
            assert_eq!(choice.to_string(), expected);
        }
        for text in [
            "dev",
            "dev=",
            "dev=a b",
            "gid=256",
            "gid=x",
            "port=0",
            "mtu=1",
            "gid=1&gid=2",
            "sl=16",
            "tc=256",
            "pkey=-1",
        ] {
            assert_eq!(CardChoice::parse(text), None, "{text}");
        }
    }
}
