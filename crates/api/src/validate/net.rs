//! IP addresses and networks: strict parsing, with upstream's words for what old clusters let pass.

use super::prelude::*;
pub(super) use formats::net::{lenient_cidr, lenient_ip};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// The address with the bits beyond the prefix cleared.
pub(super) fn masked(ip: IpAddr, length: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip) & u32::MAX.checked_shl(32 - length).unwrap_or(0)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & u128::MAX.checked_shl(128 - length).unwrap_or(0)).into(),
    }
}

/// Whether a network lies in another and is not the same.
pub(super) fn strictly_inside(inner: &str, outer: &str) -> bool {
    let (Some((inner, inner_length)), Some((outer, outer_length))) = (lenient_cidr(inner), lenient_cidr(outer)) else {
        return false;
    };
    inner.is_ipv4() == outer.is_ipv4()
        && outer_length < inner_length
        && masked(masked(inner, inner_length), outer_length) == masked(outer, outer_length)
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

impl At<'_, '_> {
    /// The text here must be an address, unless it was one of `old`. Whether it is.
    pub(super) fn ip(&self, e: &mut Errors, old: &[&str]) -> bool {
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

    /// The text here must be an address in its one canonical form. Whether it is.
    pub(super) fn canonical_ip(&self, e: &mut Errors) -> bool {
        let before = e.len();
        self.form(e, canonical_ip);
        e.len() == before
    }

    /// The text here must be a network, unless it was one of `old`.
    pub(super) fn cidr(&self, e: &mut Errors, old: &[&str]) {
        self.cidr_as(e, self.text(), old);
    }

    /// As [`Self::cidr`], for a text that is a part of what is here.
    pub(super) fn cidr_as(&self, e: &mut Errors, text: &str, old: &[&str]) {
        if !old.contains(&text)
            && let Some(fault) = cidr_fault(text)
        {
            self.invalid_as(e, text, fault);
        }
    }

    /// The text here must be a network in its one canonical form.
    pub(super) fn canonical_cidr(&self, e: &mut Errors) {
        if let Some(fault) = cidr_fault(self.text()) {
            return self.invalid_text(e, fault);
        }
        let Some((ip, length)) = lenient_cidr(self.text()) else { return };
        let canonical = format!("{}/{length}", masked(ip, length));
        if canonical != self.text() {
            self.invalid_text(e, format!("must be in canonical form ({canonical:?})"));
        }
    }

    /// The address here must be one that others can reach.
    pub(super) fn endpoint_ip(&self, e: &mut Errors) {
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

pub fn ip(at: &At, e: &mut Errors) {
    at.ip(e, &[]);
}

pub fn reachable(at: &At, e: &mut Errors) {
    at.endpoint_ip(e);
}

/// An address of an interface, with the length of its network.
pub fn interface_address(at: &At, e: &mut Errors) {
    let Some((ip, length)) = lenient_cidr(at.text()) else {
        return at.invalid_text(e, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
    };
    let canonical = format!("{}/{length}", ip.to_canonical());
    if canonical != at.text() {
        at.invalid_text(e, format!("must be in canonical form ({canonical:?})"));
    }
}

/// The faults of the number or name of a port.
pub fn port_or_name(at: &At, e: &mut Errors) {
    if at.value.is_string() {
        at.form(e, names::port);
    } else if !(1..=65535).contains(&at.int()) {
        at.invalid_int(e, names::range(1, 65535));
    }
}

/// What is wrong with a text as an address in canonical form.
pub(super) fn canonical_ip(text: &str) -> Vec<String> {
    match lenient_ip(text) {
        None => vec![BAD_IP.to_owned()],
        Some(_) if text.parse::<IpAddr>().is_err() => vec!["must not have leading 0s".to_owned()],
        Some(ip) if is_mapped(ip) => vec!["must not be an IPv4-mapped IPv6 address".to_owned()],
        Some(ip) if ip.to_string() != text => vec![format!("must be in canonical form ({:?})", ip.to_string())],
        Some(_) => Vec::new(),
    }
}

fn cidr_fault(text: &str) -> Option<&'static str> {
    let Some((ip, length)) = lenient_cidr(text) else { return Some(BAD_CIDR) };
    let (address, digits) = text.split_once('/').unwrap_or_default();
    if address.parse::<IpAddr>().is_err() || digits != length.to_string() {
        return Some("must not have leading 0s in IP or prefix length");
    }
    if is_mapped(ip) {
        return Some("must not have an IPv4-mapped IPv6 address");
    }
    (masked(ip, length) != ip).then_some("must not have bits set beyond the prefix length")
}

/// Whether two addresses are one of each family; `None` if one is no address.
pub(super) fn dual_stack<'a>(texts: impl Iterator<Item = &'a str>) -> Option<bool> {
    let ips = texts.map(|text| lenient_ip(text.split('/').next().unwrap_or_default())).collect::<Option<Vec<_>>>()?;
    Some(ips.iter().any(IpAddr::is_ipv4) && ips.iter().any(IpAddr::is_ipv6))
}

/// Whether a text is an IPv6 address.
pub(super) fn is_ipv6(text: &str) -> bool {
    lenient_ip(text).is_some_and(|ip| ip.is_ipv6())
}
