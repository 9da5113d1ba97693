//! IPv4 and IPv6 networks whose addresses are numbered by their offset from the first.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// An IP family.
    pub fn from_ip(ip: IpAddr) -> Self {
        if ip.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 }
    }

    /// The name in `spec.ipFamilies`.
    pub fn name(self) -> &'static str {
        match self {
            IpFamily::V4 => "IPv4",
            IpFamily::V6 => "IPv6",
        }
    }

    /// The family of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [IpFamily::V4, IpFamily::V6].into_iter().find(|family| family.name() == name)
    }
}

/// A network, such as `10.96.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpNetwork {
    family: IpFamily,
    first: u128,
    length: u32,
}

impl IpNetwork {
    /// Its family.
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// Number of addresses including the first and the last one; saturates.
    pub fn size(&self) -> u128 {
        1_u128.checked_shl(self.address_bits() - self.length).unwrap_or(u128::MAX)
    }

    /// Returns the address at an offset.
    pub fn address_at(&self, offset: u128) -> IpAddr {
        let number = self.first + offset;
        match self.family {
            // Numbers of this family have 32 bits.
            IpFamily::V4 => IpAddr::V4(Ipv4Addr::from(number as u32)),
            IpFamily::V6 => IpAddr::V6(Ipv6Addr::from(number)),
        }
    }

    /// Whether the network contains an address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        IpFamily::from_ip(ip) == self.family
            && address_number(ip) >= self.first
            && address_number(ip) - self.first < self.size()
    }

    /// The offset of an address; `None` if the network does not contain it.
    pub fn offset_of(&self, ip: IpAddr) -> Option<u128> {
        self.contains(ip).then(|| address_number(ip) - self.first)
    }

    /// Whether the address at this offset is neither the network address nor, in IPv4, the broadcast address.
    pub fn is_usable(&self, offset: u128) -> bool {
        offset > 0 && offset < self.size() - u128::from(self.family == IpFamily::V4)
    }

    fn address_bits(&self) -> u32 {
        match self.family {
            IpFamily::V4 => 32,
            IpFamily::V6 => 128,
        }
    }
}

fn address_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// A malformed network.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a network such as 10.96.0.0/16 or fd00::/108")]
pub struct ParseNetworkError(String);

impl FromStr for IpNetwork {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let parse = || {
            let (ip, length) = text.split_once('/')?;
            let (ip, length): (IpAddr, u32) = (ip.parse().ok()?, length.parse().ok()?);
            let mut network = Self { family: IpFamily::from_ip(ip), first: address_number(ip), length };
            let host_bits = network.address_bits().checked_sub(length)?;
            network.first &= u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(network)
        };
        parse().ok_or_else(|| ParseNetworkError(text.to_owned()))
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address_at(0), self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_map_to_offsets() {
        let network: IpNetwork = "10.96.3.4/16".parse().unwrap();
        assert_eq!((network.to_string(), network.size()), ("10.96.0.0/16".into(), 65536));
        assert_eq!(network.address_at(257).to_string(), "10.96.1.1");
        assert_eq!(network.offset_of("10.96.1.1".parse().unwrap()), Some(257));
        assert_eq!(network.offset_of("10.97.0.0".parse().unwrap()), None);
        assert!(!network.is_usable(0) && network.is_usable(1) && !network.is_usable(65535));
        let network: IpNetwork = "fd00:1::/112".parse().unwrap();
        assert!(network.is_usable(65535) && !network.is_usable(65536));
        assert_eq!(network.address_at(1).to_string(), "fd00:1::1");
        assert!("::/0".parse::<IpNetwork>().unwrap().contains("::1".parse().unwrap()));
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert!(wrong.parse::<IpNetwork>().is_err(), "{wrong}");
        }
    }
}
