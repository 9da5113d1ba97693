//! A range of addresses, IPv4 or IPv6, in which addresses are counted by their offset from the first.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The family of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// As services name it.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The family that services name so.
    pub fn named(name: &str) -> Option<Self> {
        [Family::V4, Family::V6].into_iter().find(|family| family.name() == name)
    }
}

/// A network, such as `10.96.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    family: Family,
    first: u128,
    length: u32,
}

impl Network {
    /// Its family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// How many addresses it has, its first and its last included; saturates.
    pub fn size(&self) -> u128 {
        1_u128.checked_shl(self.bits() - self.length).unwrap_or(u128::MAX)
    }

    /// The address at an offset.
    pub fn at(&self, offset: u128) -> IpAddr {
        let number = self.first + offset;
        match self.family {
            // Numbers of this family have 32 bits.
            Family::V4 => IpAddr::V4(Ipv4Addr::from(number as u32)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
        }
    }

    /// Whether an address is in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        Family::of(ip) == self.family && number(ip) >= self.first && number(ip) - self.first < self.size()
    }

    /// Where an address is in it; `None` if it is not.
    pub fn offset(&self, ip: IpAddr) -> Option<u128> {
        self.contains(ip).then(|| number(ip) - self.first)
    }

    /// Whether addresses at this offset may be given to services: neither the network's own nor, in IPv4, the broadcast.
    pub fn is_usable(&self, offset: u128) -> bool {
        offset > 0 && offset < self.size() - u128::from(self.family == Family::V4)
    }

    fn bits(&self) -> u32 {
        match self.family {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// A text that is no network.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a network such as 10.96.0.0/16 or fd00::/108")]
pub struct NotANetwork(String);

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let parse = || {
            let (ip, length) = text.split_once('/')?;
            let (ip, length): (IpAddr, u32) = (ip.parse().ok()?, length.parse().ok()?);
            let mut network = Self { family: Family::of(ip), first: number(ip), length };
            let host_bits = network.bits().checked_sub(length)?;
            network.first &= u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(network)
        };
        parse().ok_or_else(|| NotANetwork(text.to_owned()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.at(0), self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_from_the_first() {
        let network: Network = "10.96.3.4/16".parse().unwrap();
        assert_eq!((network.to_string(), network.size()), ("10.96.0.0/16".into(), 65536));
        assert_eq!(network.at(257).to_string(), "10.96.1.1");
        assert_eq!(network.offset("10.96.1.1".parse().unwrap()), Some(257));
        assert_eq!(network.offset("10.97.0.0".parse().unwrap()), None);
        assert!(!network.is_usable(0) && network.is_usable(1) && !network.is_usable(65535));
        let network: Network = "fd00:1::/112".parse().unwrap();
        assert!(network.is_usable(65535) && !network.is_usable(65536));
        assert_eq!(network.at(1).to_string(), "fd00:1::1");
        assert!("::/0".parse::<Network>().unwrap().contains("::1".parse().unwrap()));
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
