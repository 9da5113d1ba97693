//! Address ranges of both families.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// An address with a prefix length: a range, or an address within its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpCidr {
    /// The address; bits behind the prefix may be set.
    pub address: IpAddr,
    /// The prefix length.
    pub prefix: u8,
}

/// A text is not a CIDR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid CIDR address: {0}")]
pub struct IpCidrParseError(pub String);

impl IpCidr {
    /// The range of one address.
    pub fn host(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The first address.
    pub fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & self.mask_v4()).into(),
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & self.mask_v6()).into(),
        }
    }

    /// The last address.
    pub fn last(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) | !self.mask_v4()).into(),
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) | !self.mask_v6()).into(),
        }
    }

    /// The same range with no bits behind the prefix.
    pub fn network(&self) -> Self {
        Self { address: self.first(), prefix: self.prefix }
    }

    /// Whether `ip` is in the range.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.address.is_ipv4() && self.first() <= ip && ip <= self.last()
    }

    /// Whether it is a range of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Returns the first and last address as bytes.
    pub fn bounds(&self) -> (Vec<u8>, Vec<u8>) {
        (octets(self.first()), octets(self.last()))
    }

    fn mask_v4(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0)
    }

    fn mask_v6(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0)
    }
}

/// The bytes of an address in network order.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl fmt::Display for IpCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for IpCidr {
    type Err = IpCidrParseError;

    fn from_str(text: &str) -> Result<Self, IpCidrParseError> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let address: IpAddr = address.parse().ok()?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            Some(Self { address, prefix: prefix.parse().ok().filter(|prefix| *prefix <= longest)? })
        });
        parsed.ok_or_else(|| IpCidrParseError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_both_families() {
        let check = |text: &str, first: &str, last: &str| {
            let cidr: IpCidr = text.parse().unwrap();
            assert_eq!((cidr.first().to_string().as_str(), cidr.last().to_string().as_str()), (first, last));
        };
        check("10.42.1.7/24", "10.42.1.0", "10.42.1.255");
        check("0.0.0.0/0", "0.0.0.0", "255.255.255.255");
        check("fd00::5/126", "fd00::4", "fd00::7");
        check("1.2.3.4/32", "1.2.3.4", "1.2.3.4");
        for wrong in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "x/8"] {
            assert!(wrong.parse::<IpCidr>().is_err(), "{wrong}");
        }
    }
}
