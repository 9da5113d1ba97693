//! Rules that the Endpoints, EndpointSlice and EndpointSliceMirroring controllers share.

pub(crate) mod endpoint_set;
pub(crate) mod membership;
pub(crate) mod ports;
pub(crate) mod slice_tracker;
pub(crate) mod subsets;
pub(crate) mod trigger_time;

use std::net::{IpAddr, Ipv4Addr};

/// Label of headless services' endpoints.
pub(crate) const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
/// Label that names the service of an EndpointSlice.
pub(crate) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Label that names the manager of an EndpointSlice.
pub(crate) const SLICE_MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Annotation with the time of the change that caused the last update.
pub(crate) const TRIGGER_TIME_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Annotation of Endpoints objects that are used as a leader election lock.
pub(crate) const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

/// Parses an address, allowing leading zeros in IPv4 octets; an IPv4-mapped IPv6 address is an IPv4 address.
pub(crate) fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let octets: Option<Vec<u8>> = text.split('.').map(parse_octet).collect();
    let octets: [u8; 4] = octets?.try_into().ok()?;
    Some(Ipv4Addr::from(octets).into())
}

fn parse_octet(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns the prefix of generated EndpointSlice names: `name-`, or `name` where the dash makes it too long.
pub(crate) fn slice_name_prefix(name: &str) -> String {
    match name.len() < 253 {
        true => format!("{name}-"),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn irregular_addresses_are_normalized() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(parse_ip_sloppy(text).map(|ip| ip.to_string()).as_deref(), expected);
        };
        check("10.0.0.1", Some("10.0.0.1"));
        check("010.000.0.01", Some("10.0.0.1"));
        check("::ffff:10.0.0.1", Some("10.0.0.1"));
        check("FD00:0:0::1", Some("fd00::1"));
        check("10.0.0", None);
        check("10.0.0.+1", None);
        check("web", None);
    }
}
