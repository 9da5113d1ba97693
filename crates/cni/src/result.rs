//! Results of plug-ins: interfaces, addresses, routes and DNS, read and written in the forms of all versions.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sys::net::IpCidr;

use crate::{plugin_error::PluginError, version};

/// An interface that a plug-in made.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ResultInterface {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The network namespace; absent on the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
}

/// An address of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultIp {
    pub address: IpCidr,
    pub gateway: Option<IpAddr>,
    /// The index of its interface.
    pub interface: Option<usize>,
}

/// A route of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRoute {
    pub destination: IpCidr,
    pub gateway: Option<IpAddr>,
    pub mtu: Option<u32>,
}

/// DNS settings.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct ResultDns {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The result of ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniResult {
    pub interfaces: Vec<ResultInterface>,
    pub ips: Vec<ResultIp>,
    pub routes: Vec<ResultRoute>,
    pub dns: ResultDns,
}

impl CniResult {
    /// Reads a result of any version.
    pub fn from_value(value: &Value) -> Result<Self, PluginError> {
        let wrong =
            |what: &str| PluginError::new(PluginError::DECODING_FAILURE, format!("could not parse prevResult: {what}"));
        let mut result = Self::default();
        if let Some(interfaces) = value.get("interfaces").filter(|value| !value.is_null()) {
            result.interfaces = Vec::deserialize(interfaces).map_err(|_| wrong("interfaces"))?;
        }
        if let Some(dns) = value.get("dns").filter(|value| !value.is_null()) {
            result.dns = ResultDns::deserialize(dns).map_err(|_| wrong("dns"))?;
        }
        for ip in value.get("ips").and_then(Value::as_array).into_iter().flatten() {
            result.ips.push(parse_ip(ip).ok_or_else(|| wrong("ips"))?);
        }
        // The oldest form has one object per family.
        for ip in ["ip4", "ip6"].iter().filter_map(|family| value.get(*family)).filter(|ip| !ip.is_null()) {
            result.ips.push(parse_old_ip(ip).ok_or_else(|| wrong("ip4 or ip6"))?);
            for route in ip.get("routes").and_then(Value::as_array).into_iter().flatten() {
                result.routes.push(parse_route(route).ok_or_else(|| wrong("routes"))?);
            }
        }
        for route in value.get("routes").and_then(Value::as_array).into_iter().flatten() {
            result.routes.push(parse_route(route).ok_or_else(|| wrong("routes"))?);
        }
        Ok(result)
    }

    /// Renders the result for a version.
    pub fn to_json(&self, version: &str) -> String {
        let value = match version::is_at_least(version, "0.3.0") {
            true => self.to_value(version),
            false => self.to_old_value(version),
        };
        format!("{value:#}\n")
    }

    fn to_value(&self, version: &str) -> Value {
        let has_family = !version::is_at_least(version, "1.0.0");
        let ip = |ip: &ResultIp| {
            let mut value = json!({ "address": ip.address.to_string() });
            if has_family {
                value["version"] = if ip.address.is_ipv4() { "4" } else { "6" }.into();
            }
            if let Some(gateway) = ip.gateway {
                value["gateway"] = gateway.to_string().into();
            }
            if let Some(interface) = ip.interface {
                value["interface"] = interface.into();
            }
            value
        };
        let mut value = json!({ "cniVersion": version, "dns": self.dns });
        if !self.interfaces.is_empty() {
            let mut interfaces = self.interfaces.clone();
            if !version::is_at_least(version, "1.1.0") {
                interfaces.iter_mut().for_each(|interface| interface.mtu = None);
            }
            value["interfaces"] = json!(interfaces);
        }
        if !self.ips.is_empty() {
            value["ips"] = self.ips.iter().map(ip).collect();
        }
        if !self.routes.is_empty() {
            value["routes"] = self.routes.iter().map(render_route).collect();
        }
        value
    }

    fn to_old_value(&self, version: &str) -> Value {
        let mut value = json!({ "cniVersion": version, "dns": self.dns });
        for (name, is_ipv4) in [("ip4", true), ("ip6", false)] {
            if let Some(ip) = self.ips.iter().find(|ip| ip.address.is_ipv4() == is_ipv4) {
                let mut family = json!({ "ip": ip.address.to_string() });
                if let Some(gateway) = ip.gateway {
                    family["gateway"] = gateway.to_string().into();
                }
                let routes = self.routes.iter().filter(|route| route.destination.is_ipv4() == is_ipv4);
                let routes: Vec<Value> = routes.map(render_route).collect();
                if !routes.is_empty() {
                    family["routes"] = routes.into();
                }
                value[name] = family;
            }
        }
        value
    }
}

fn render_route(route: &ResultRoute) -> Value {
    let mut value = json!({ "dst": route.destination.to_string() });
    if let Some(gateway) = route.gateway {
        value["gw"] = gateway.to_string().into();
    }
    if let Some(mtu) = route.mtu {
        value["mtu"] = mtu.into();
    }
    value
}

fn parse_ip(value: &Value) -> Option<ResultIp> {
    Some(ResultIp {
        address: value.get("address")?.as_str()?.parse().ok()?,
        gateway: parse_gateway(value.get("gateway"))?,
        interface: value.get("interface").and_then(Value::as_u64).map(|index| index as usize),
    })
}

fn parse_old_ip(value: &Value) -> Option<ResultIp> {
    let address = value.get("ip")?.as_str()?.parse().ok()?;
    Some(ResultIp { address, gateway: parse_gateway(value.get("gateway"))?, interface: None })
}

/// Parses a route as results and configurations write it.
pub fn parse_route(value: &Value) -> Option<ResultRoute> {
    Some(ResultRoute {
        destination: value.get("dst")?.as_str()?.parse().ok()?,
        gateway: parse_gateway(value.get("gw"))?,
        mtu: value.get("mtu").and_then(Value::as_u64).and_then(|mtu| u32::try_from(mtu).ok()),
    })
}

/// `None` if the gateway is wrong, `Some(None)` if there is none.
fn parse_gateway(value: Option<&Value>) -> Option<Option<IpAddr>> {
    match value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
        None => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_read_back_in_every_version() {
        let result = CniResult {
            ips: vec![ResultIp {
                address: "10.1.2.3/24".parse().unwrap(),
                gateway: "10.1.2.1".parse().ok(),
                interface: None,
            }],
            routes: vec![ResultRoute { destination: "0.0.0.0/0".parse().unwrap(), gateway: None, mtu: None }],
            ..Default::default()
        };
        for version in ["0.1.0", "0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
            let value: Value = serde_json::from_str(&result.to_json(version)).unwrap();
            assert_eq!(CniResult::from_value(&value).unwrap(), result, "{version}");
            assert_eq!(value["cniVersion"], version);
        }
    }
}
