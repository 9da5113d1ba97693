//! Address ranges as elements of sets.

use sys::{net::IpCidr, nftables::SetElement};

/// Removes ranges within others: sets of ranges refuse overlaps.
pub(crate) fn merge_ranges(mut ranges: Vec<IpCidr>) -> Vec<IpCidr> {
    ranges.sort_unstable_by_key(|range| (range.prefix, range.address));
    let mut kept: Vec<IpCidr> = Vec::new();
    for range in ranges {
        if !kept.iter().any(|wider| wider.contains(range.address)) {
            kept.push(range);
        }
    }
    kept
}

/// The elements of the ranges of one IP family, without overlaps.
pub(crate) fn range_elements(ranges: &[IpCidr], is_ipv4: bool) -> Vec<SetElement> {
    let own = ranges.iter().filter(|range| range.is_ipv4() == is_ipv4).map(IpCidr::network).collect();
    let bounds = merge_ranges(own).into_iter().map(|range| range.bounds());
    bounds.flat_map(|(first, last)| SetElement::range(first, &last)).collect()
}
