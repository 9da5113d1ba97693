//! Validation of IP addresses and CIDRs: strict parsing, with upstream's messages for legacy values.

use super::prelude::*;
pub(super) use formats::net::{lenient_cidr, lenient_ip};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Clears the bits beyond the prefix.
pub(super) fn mask_address(ip: IpAddr, length: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip) & u32::MAX.checked_shl(32 - length).unwrap_or(0)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & u128::MAX.checked_shl(128 - length).unwrap_or(0)).into(),
    }
}

/// Whether a network is a strict subset of another.
pub(super) fn is_strict_subnet(inner: &str, outer: &str) -> bool {
    let (Some((inner, inner_length)), Some((outer, outer_length))) = (lenient_cidr(inner), lenient_cidr(outer)) else {
        return false;
    };
    inner.is_ipv4() == outer.is_ipv4()
        && outer_length < inner_length
        && mask_address(mask_address(inner, inner_length), outer_length) == mask_address(outer, outer_length)
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

impl FieldCursor<'_, '_> {
    /// Checks an address, unless it is one of `old`; returns whether it is valid.
    pub(super) fn check_ip(&self, e: &mut ErrorList, old: &[&str]) -> bool {
        if old.contains(&self.text()) {
            return true;
        }
        let fault = match lenient_ip(self.text()) {
            None => BAD_IP,
            Some(_) if self.text().parse::<IpAddr>().is_err() => "must not have leading 0s",
            Some(ip) if is_mapped(ip) => "must not be an IPv4-mapped IPv6 address",
            Some(_) => return true,
        };
        self.invalid_text(e, fault);
        false
    }

    /// Checks that an address is in canonical form; returns whether it is.
    pub(super) fn check_canonical_ip(&self, e: &mut ErrorList) -> bool {
        let before = e.len();
        self.check_format(e, canonical_ip_errors);
        e.len() == before
    }

    /// Checks a CIDR, unless it is one of `old`.
    pub(super) fn check_cidr(&self, e: &mut ErrorList, old: &[&str]) {
        self.check_cidr_as(e, self.text(), old);
    }

    /// As [`Self::check_cidr`], for a part of the value.
    pub(super) fn check_cidr_as(&self, e: &mut ErrorList, text: &str, old: &[&str]) {
        if !old.contains(&text)
            && let Some(fault) = cidr_error(text)
        {
            self.invalid_as(e, text, fault);
        }
    }

    /// Checks that a CIDR is in canonical form.
    pub(super) fn check_canonical_cidr(&self, e: &mut ErrorList) {
        if let Some(fault) = cidr_error(self.text()) {
            return self.invalid_text(e, fault);
        }
        let Some((ip, length)) = lenient_cidr(self.text()) else { return };
        let canonical = format!("{}/{length}", mask_address(ip, length));
        if canonical != self.text() {
            self.invalid_text(e, format!("must be in canonical form ({canonical:?})"));
        }
    }

    /// Checks that an address is usable as an endpoint.
    pub(super) fn check_endpoint_ip(&self, e: &mut ErrorList) {
        let Some(ip) = lenient_ip(self.text()) else {
            return self.invalid_text(e, "must be a valid IP address");
        };
        let (local, multicast) = match ip {
            IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
            IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
        };
        if ip.is_unspecified() {
            self.invalid_text(e, format!("may not be unspecified ({})", self.text()));
        }
        if ip.is_loopback() {
            self.invalid_text(e, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
        }
        if local {
            self.invalid_text(e, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
        }
        if multicast {
            self.invalid_text(e, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
        }
    }
}

pub fn validate_ip(at: &FieldCursor, e: &mut ErrorList) {
    at.check_ip(e, &[]);
}

pub fn validate_reachable(at: &FieldCursor, e: &mut ErrorList) {
    at.check_endpoint_ip(e);
}

/// Validates an interface address with its prefix length.
pub fn validate_interface_address(at: &FieldCursor, e: &mut ErrorList) {
    let Some((ip, length)) = lenient_cidr(at.text()) else {
        return at.invalid_text(e, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
    };
    let canonical = format!("{}/{length}", ip.to_canonical());
    if canonical != at.text() {
        at.invalid_text(e, format!("must be in canonical form ({canonical:?})"));
    }
}

/// Validates a port number or name.
pub fn validate_port_or_name(at: &FieldCursor, e: &mut ErrorList) {
    if at.value.is_string() {
        at.check_format(e, names::check_port_name);
    } else if !(1..=65535).contains(&at.int()) {
        at.invalid_int(e, names::inclusive_range_error(1, 65535));
    }
}

/// Returns the errors about an address in canonical form.
pub(super) fn canonical_ip_errors(text: &str) -> Vec<String> {
    match lenient_ip(text) {
        None => vec![BAD_IP.to_owned()],
        Some(_) if text.parse::<IpAddr>().is_err() => vec!["must not have leading 0s".to_owned()],
        Some(ip) if is_mapped(ip) => vec!["must not be an IPv4-mapped IPv6 address".to_owned()],
        Some(ip) if ip.to_string() != text => vec![format!("must be in canonical form ({:?})", ip.to_string())],
        Some(_) => Vec::new(),
    }
}

fn cidr_error(text: &str) -> Option<&'static str> {
    let Some((ip, length)) = lenient_cidr(text) else { return Some(BAD_CIDR) };
    let (address, digits) = text.split_once('/').unwrap_or_default();
    if address.parse::<IpAddr>().is_err() || digits != length.to_string() {
        return Some("must not have leading 0s in IP or prefix length");
    }
    if is_mapped(ip) {
        return Some("must not have an IPv4-mapped IPv6 address");
    }
    (mask_address(ip, length) != ip).then_some("must not have bits set beyond the prefix length")
}

/// Whether addresses are of both families; `None` if one is malformed.
pub(super) fn is_dual_stack<'a>(texts: impl Iterator<Item = &'a str>) -> Option<bool> {
    let ips = texts.map(|text| lenient_ip(text.split('/').next().unwrap_or_default())).collect::<Option<Vec<_>>>()?;
    Some(ips.iter().any(IpAddr::is_ipv4) && ips.iter().any(IpAddr::is_ipv6))
}

/// Whether a text is an IPv6 address.
pub(super) fn is_ipv6(text: &str) -> bool {
    lenient_ip(text).is_some_and(|ip| ip.is_ipv6())
}
