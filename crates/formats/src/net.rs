//! Legacy parsing of IP addresses and CIDRs: as in old versions of Go, octets may have leading zeros.

use std::net::{IpAddr, Ipv4Addr};

/// Parses an IP address whose octets may have leading zeros.
pub fn lenient_ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    let trimmed: Vec<String> = text
        .split('.')
        .map(|part| part.trim_start_matches('0'))
        .map(|part| if part.is_empty() { "0".to_owned() } else { part.to_owned() })
        .collect();
    if text.split('.').any(|part| part.is_empty() || !part.bytes().all(|c| c.is_ascii_digit())) {
        return None;
    }
    trimmed.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// Parses a CIDR into its unmasked address and prefix length.
pub fn lenient_cidr(text: &str) -> Option<(IpAddr, u32)> {
    let (ip, length) = text.split_once('/')?;
    let ip = lenient_ip(ip)?;
    if length.is_empty() || length.len() > 3 || !length.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let length: u32 = length.parse().ok()?;
    (length <= address_bits(ip)).then_some((ip, length))
}

fn address_bits(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 32 } else { 128 }
}
