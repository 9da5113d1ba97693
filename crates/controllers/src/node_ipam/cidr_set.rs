//! The node ranges of one cluster range, allocated round robin.

use std::fmt;

use crate::{IpRange, ip_prefix::address_from_bits};

/// Greatest difference of the prefix lengths of an IPv6 cluster range and its node ranges.
const MAX_IPV6_DIFFERENCE: u8 = 16;

/// A cluster range cannot be divided, or a range is outside of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum CidrSetError {
    #[error("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range")]
    Exhausted,
    #[error("the node CIDR size /{node} does not divide the cluster CIDR of size /{cluster}")]
    Size { cluster: u8, node: u8 },
    #[error("cidr {range} is out the range of cluster cidr {cluster}")]
    OutOfRange { range: CidrText, cluster: CidrText },
}

/// A range in CIDR notation.
#[derive(Debug)]
pub(super) struct CidrText(IpRange);

impl fmt::Display for CidrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.address, self.0.prefix_length)
    }
}

/// Formats a range in CIDR notation.
pub(super) fn cidr_text(range: IpRange) -> String {
    CidrText(range).to_string()
}

/// Node ranges of a cluster range, and which are used.
#[derive(Debug)]
pub(super) struct CidrSet {
    cluster: IpRange,
    node_prefix_length: u8,
    used: Vec<bool>,
    next: usize,
}

impl CidrSet {
    /// Divides a cluster range.
    pub(super) fn new(cluster: IpRange, node_prefix_length: u8) -> Result<Self, CidrSetError> {
        let size_error = CidrSetError::Size { cluster: cluster.prefix_length, node: node_prefix_length };
        let bits = node_prefix_length.checked_sub(cluster.prefix_length);
        let is_divisible = u32::from(node_prefix_length) <= cluster.family_bits();
        let bits = bits.filter(|bits| is_divisible && (cluster.address.is_ipv4() || *bits <= MAX_IPV6_DIFFERENCE));
        let count = bits.and_then(|bits| 1usize.checked_shl(bits.into())).ok_or(size_error)?;
        Ok(Self { cluster, node_prefix_length, used: vec![false; count], next: 0 })
    }

    /// Allocates the next free range.
    pub(super) fn allocate_next(&mut self) -> Result<IpRange, CidrSetError> {
        let count = self.used.len();
        let candidates = (0..count).map(|offset| (self.next + offset) % count);
        let free = candidates.into_iter().find(|index| self.used.get(*index) == Some(&false));
        let index = free.ok_or(CidrSetError::Exhausted)?;
        self.next = (index + 1) % count;
        self.set_used(index..=index, true);
        let bits = self.cluster.first() | (index as u128) << self.node_shift();
        let address = address_from_bits(bits, self.cluster.address);
        Ok(IpRange { address, prefix_length: self.node_prefix_length })
    }

    /// Marks the node ranges that overlap with `range` as used or free.
    pub(super) fn mark(&mut self, range: IpRange, used: bool) -> Result<(), CidrSetError> {
        if !self.cluster.overlaps(&range) {
            return Err(CidrSetError::OutOfRange { range: CidrText(range), cluster: CidrText(self.cluster) });
        }
        let index = |bits: u128| {
            let bits = bits.clamp(self.cluster.first(), self.cluster.last());
            usize::try_from((bits - self.cluster.first()) >> self.node_shift()).unwrap_or(usize::MAX)
        };
        self.set_used(index(range.first())..=index(range.last()), used);
        Ok(())
    }

    fn node_shift(&self) -> u32 {
        self.cluster.family_bits() - u32::from(self.node_prefix_length)
    }

    fn set_used(&mut self, indexes: std::ops::RangeInclusive<usize>, used: bool) {
        if let Some(entries) = self.used.get_mut(indexes) {
            entries.fill(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> IpRange {
        IpRange::parse_cidr(text).unwrap()
    }

    #[test]
    fn ranges_are_allocated_round_robin_until_none_is_left() {
        let mut set = CidrSet::new(range("10.244.0.0/22"), 24).unwrap();
        let mut next = || set.allocate_next().map(cidr_text);
        assert_eq!([next().unwrap(), next().unwrap()], ["10.244.0.0/24", "10.244.1.0/24"]);
        set.mark(range("10.244.0.0/24"), false).unwrap();
        set.mark(range("10.244.2.0/24"), true).unwrap();
        assert_eq!(set.allocate_next().map(cidr_text).unwrap(), "10.244.3.0/24");
        assert_eq!(set.allocate_next().map(cidr_text).unwrap(), "10.244.0.0/24");
        assert!(matches!(set.allocate_next(), Err(CidrSetError::Exhausted)));
    }

    #[test]
    fn ipv6_ranges_are_divided() {
        let mut set = CidrSet::new(range("fd00:10::/48"), 64).unwrap();
        set.allocate_next().unwrap();
        assert_eq!(set.allocate_next().map(cidr_text).unwrap(), "fd00:10:0:1::/64");
        assert!(CidrSet::new(range("fd00::/32"), 64).is_err() && CidrSet::new(range("10.0.0.0/24"), 16).is_err());
    }

    #[test]
    fn service_range_is_excluded_whether_it_is_smaller_or_larger() {
        let mut set = CidrSet::new(range("10.0.0.0/22"), 24).unwrap();
        set.mark(range("10.0.1.128/25"), true).unwrap();
        assert_eq!(set.used, [false, true, false, false]);
        set.mark(range("10.0.0.0/8"), true).unwrap();
        assert_eq!(set.used, [true; 4]);
        assert!(set.mark(range("192.168.0.0/24"), true).is_err());
    }
}
