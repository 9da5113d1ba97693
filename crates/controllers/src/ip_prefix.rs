//! Address ranges: containment, overlap and subdivision.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::IpRange;

impl IpRange {
    /// Parses CIDR notation; host bits are kept.
    pub(crate) fn parse_cidr(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, prefix_length) = (address.parse().ok()?, length.parse().ok()?);
        let range = Self { address, prefix_length };
        (u32::from(prefix_length) <= range.family_bits()).then_some(range)
    }

    /// Number of bits of an address of this family.
    pub(crate) fn family_bits(&self) -> u32 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The first address, as a number.
    pub(crate) fn first(&self) -> u128 {
        address_bits(self.address) & !self.host_mask()
    }

    /// The last address, as a number.
    pub(crate) fn last(&self) -> u128 {
        self.first() | self.host_mask()
    }

    /// Whether the ranges are of one family and share an address.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.is_same_family(other) && self.first() <= other.last() && other.first() <= self.last()
    }

    /// Whether the other range is inside of this one.
    pub(crate) fn contains_range(&self, other: &Self) -> bool {
        self.overlaps(other) && self.prefix_length <= other.prefix_length
    }

    /// Whether a service can have this address: the network address and an IPv4 broadcast address are excluded.
    pub(crate) fn contains_service_address(&self, address: IpAddr) -> bool {
        let bits = address_bits(address);
        self.address.is_ipv4() == address.is_ipv4()
            && bits > self.first()
            && bits <= self.last()
            && !(address.is_ipv4() && bits == self.last())
    }

    fn is_same_family(&self, other: &Self) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
    }

    fn host_mask(&self) -> u128 {
        let host_bits = self.family_bits().saturating_sub(self.prefix_length.into());
        1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1)
    }
}

/// Returns the address with these bits, of the family of `like`.
pub(crate) fn address_from_bits(bits: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
    }
}

fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> IpRange {
        IpRange::parse_cidr(text).unwrap()
    }

    #[test]
    fn ranges_overlap_and_contain_within_a_family() {
        assert!(range("10.0.0.0/8").contains_range(&range("10.1.0.0/16")));
        assert!(!range("10.1.0.0/16").contains_range(&range("10.0.0.0/8")));
        assert!(range("10.1.0.0/16").overlaps(&range("10.0.0.0/8")));
        assert!(!range("10.0.0.0/8").overlaps(&range("fd00::/8")) && !range("0.0.0.0/0").overlaps(&range("::/0")));
        assert!(IpRange::parse_cidr("10.0.0.0/33").is_none() && IpRange::parse_cidr("10.0.0.0").is_none());
    }

    #[test]
    fn network_and_broadcast_addresses_belong_to_no_service() {
        let contains = |cidr: &str, address: &str| range(cidr).contains_service_address(address.parse().unwrap());
        assert!(contains("10.0.0.0/24", "10.0.0.1") && contains("fd00::/120", "fd00::ff"));
        assert!(!contains("10.0.0.0/24", "10.0.0.0") && !contains("10.0.0.0/24", "10.0.0.255"));
        assert!(!contains("fd00::/120", "fd00::") && !contains("10.0.0.0/24", "10.0.1.1"));
    }
}
