//! `static`: an IPAM plug-in that hands out the addresses of its configuration.

use serde::Deserialize;
use serde_json::Value;
use sys::net::IpCidr;

use super::CniPlugin;
use crate::{
    plugin_error::PluginError,
    request::CniRequest,
    result::{CniResult, ResultDns, ResultIp, parse_route},
};

pub struct StaticPlugin;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StaticConfig {
    addresses: Vec<StaticAddress>,
    routes: Vec<Value>,
    dns: ResultDns,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StaticAddress {
    address: String,
    gateway: Option<String>,
}

impl CniPlugin for StaticPlugin {
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError> {
        read_result(request)
    }

    fn delete(&self, _request: &CniRequest) -> Result<(), PluginError> {
        Ok(())
    }

    fn check(&self, request: &CniRequest) -> Result<(), PluginError> {
        let previous = request.required_previous_result()?;
        let expected = read_result(request)?;
        for ip in &expected.ips {
            if !previous.ips.iter().any(|known| known.address == ip.address) {
                return Err(PluginError::mismatch(format!("static: Failed to find address {}", ip.address)));
            }
        }
        Ok(())
    }
}

fn read_result(request: &CniRequest) -> Result<CniResult, PluginError> {
    let ipam = request.config.get("ipam").cloned().unwrap_or_default();
    let config: StaticConfig = serde_json::from_value(ipam)
        .map_err(|error| PluginError::new(PluginError::DECODING_FAILURE, format!("IPAM config: {error}")))?;
    let runtime = request.config.pointer("/runtimeConfig/ips").and_then(Value::as_array);
    let arguments = request.config.pointer("/args/cni/ips").and_then(Value::as_array);
    let given: Vec<String> = match runtime.or(arguments) {
        Some(ips) => ips.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => request.arguments.get("IP").map_or_else(Vec::new, |ips| ips.split(',').map(str::to_owned).collect()),
    };
    let configured = config.addresses.iter().map(|address| (address.address.clone(), address.gateway.clone()));
    let addresses: Vec<(String, Option<String>)> = match given.is_empty() {
        true => configured.collect(),
        false => given.into_iter().map(|ip| (ip, request.arguments.get("GATEWAY").cloned())).collect(),
    };
    let mut ips = Vec::new();
    for (text, gateway) in addresses {
        let wrong = || PluginError::invalid(format!("the {text:?} field is expected to be in CIDR notation"));
        let address: IpCidr = text.trim().parse().map_err(|_| wrong())?;
        let gateway = gateway.filter(|gateway| !gateway.is_empty()).map(|gateway| gateway.parse());
        let gateway = gateway.transpose().map_err(|_| PluginError::invalid("invalid gateway address"))?;
        ips.push(ResultIp { address, gateway, interface: None });
    }
    if ips.is_empty() {
        return Err(PluginError::invalid("no addresses are configured"));
    }
    let routes = config
        .routes
        .iter()
        .map(|route| parse_route(route).ok_or_else(|| PluginError::invalid(format!("invalid route {route}"))));
    Ok(CniResult { ips, routes: routes.collect::<Result<_, _>>()?, dns: config.dns, ..CniResult::default() })
}
