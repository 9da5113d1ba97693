//! A range of addresses: a subnet, its bounds and its gateway.

use std::net::IpAddr;

use serde::Deserialize;
use sys::net::IpCidr;

use crate::{plugin_error::PluginError, plugins::container_link::first_host, result::ResultIp};

/// A range as configurations write it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RangeConfig {
    pub subnet: String,
    pub range_start: Option<String>,
    pub range_end: Option<String>,
    pub gateway: Option<String>,
}

/// A checked range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRange {
    pub subnet: IpCidr,
    pub first: IpAddr,
    pub last: IpAddr,
    pub gateway: IpAddr,
}

impl AddressRange {
    pub fn from_config(config: &RangeConfig) -> Result<Self, PluginError> {
        let wrong = |what: String| PluginError::invalid(format!("invalid range set: {what}"));
        let subnet: IpCidr = config.subnet.parse().map_err(|_| wrong(format!("invalid subnet {:?}", config.subnet)))?;
        if subnet.network() != subnet {
            return Err(wrong(format!("network has host bits set: {subnet}; did you mean {}", subnet.network())));
        }
        let smallest = if subnet.is_ipv4() { 30 } else { 126 };
        if subnet.prefix > smallest {
            return Err(wrong(format!("network {subnet} too small to allocate from")));
        }
        let address = |text: &Option<String>, default: IpAddr| match text.as_deref().filter(|text| !text.is_empty()) {
            None => Ok(default),
            Some(text) => {
                let parsed: Option<IpAddr> = text.parse().ok();
                parsed.filter(|ip| subnet.contains(*ip)).ok_or_else(|| wrong(format!("{text} not in network {subnet}")))
            }
        };
        // The last address of an IPv4 subnet is its broadcast address.
        let end = if subnet.is_ipv4() { step(subnet.last(), -1) } else { subnet.last() };
        let gateway = match config.gateway.as_deref().filter(|text| !text.is_empty()) {
            None => first_host(subnet),
            Some(text) => text.parse().map_err(|_| wrong(format!("invalid gateway {text:?}")))?,
        };
        let first = address(&config.range_start, first_host(subnet))?;
        let last = address(&config.range_end, end)?;
        if first > last {
            return Err(wrong(format!("{first} is behind {last}")));
        }
        Ok(Self { subnet, first, last, gateway })
    }

    /// Whether an address may be handed out.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.first.is_ipv4() && self.first <= ip && ip <= self.last
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }

    /// All addresses from the one behind `after` on, around the end, each once; without the gateway.
    pub fn addresses_after(&self, after: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
        let start = after.filter(|ip| self.contains(*ip)).map_or(self.first, |ip| self.next(ip));
        let mut current = Some(start);
        let (range, gateway) = (self.clone(), self.gateway);
        std::iter::from_fn(move || {
            let ip = current?;
            let next = range.next(ip);
            current = (next != start).then_some(next);
            Some(ip)
        })
        .filter(move |ip| *ip != gateway)
    }

    fn next(&self, ip: IpAddr) -> IpAddr {
        if ip >= self.last { self.first } else { step(ip, 1) }
    }

    /// The address as a result names it.
    pub fn result_ip(&self, ip: IpAddr) -> ResultIp {
        let address = IpCidr { address: ip, prefix: self.subnet.prefix };
        ResultIp { address, gateway: Some(self.gateway), interface: None }
    }
}

fn step(ip: IpAddr, by: i8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).wrapping_add_signed(by.into()).into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).wrapping_add_signed(by.into()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(subnet: &str) -> AddressRange {
        AddressRange::from_config(&RangeConfig { subnet: subnet.into(), ..Default::default() }).unwrap()
    }

    #[test]
    fn addresses_go_around_without_the_gateway() {
        let shown = |after: Option<&str>| -> Vec<String> {
            let after = after.map(|text| text.parse().unwrap());
            range("10.0.0.0/29").addresses_after(after).map(|ip| ip.to_string()).collect()
        };
        assert_eq!(shown(None), ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(shown(Some("10.0.0.4")), ["10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
        assert_eq!(range("fd00::/126").addresses_after(None).count(), 2);
    }

    #[test]
    fn wrong_ranges_are_refused() {
        for subnet in ["10.0.0.1/24", "10.0.0.0/31", "x"] {
            assert!(AddressRange::from_config(&RangeConfig { subnet: subnet.into(), ..Default::default() }).is_err());
        }
        let outside =
            RangeConfig { subnet: "10.0.0.0/24".into(), range_start: Some("10.0.1.1".into()), ..Default::default() };
        assert!(AddressRange::from_config(&outside).is_err());
    }
}
