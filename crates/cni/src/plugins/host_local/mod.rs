//! `host-local`: an IPAM plug-in that hands out addresses of ranges and keeps the record in files.

mod address_range;
mod address_store;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use super::CniPlugin;
use crate::{
    plugin_error::PluginError,
    request::CniRequest,
    result::{CniResult, ResultDns, ResultIp, parse_route},
};
use address_range::{AddressRange, RangeConfig};
use address_store::{AddressOwner, AddressStore};

/// The directory of records unless another is configured.
const DATA_DIR: &str = "/var/lib/cni/networks";

pub struct HostLocalPlugin;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HostLocalConfig {
    data_dir: Option<PathBuf>,
    resolv_conf: Option<PathBuf>,
    ranges: Vec<Vec<RangeConfig>>,
    routes: Vec<Value>,
    #[serde(flatten)]
    single: RangeConfig,
}

/// The configuration with its ranges checked.
struct AddressPlan {
    /// One address is taken of each set.
    range_sets: Vec<Vec<AddressRange>>,
    store: AddressStore,
    config: HostLocalConfig,
}

impl AddressPlan {
    fn read(request: &CniRequest) -> Result<Self, PluginError> {
        let ipam = request.config.get("ipam").cloned().unwrap_or_default();
        let config: HostLocalConfig = serde_json::from_value(ipam)
            .map_err(|error| PluginError::new(PluginError::DECODING_FAILURE, format!("IPAM config: {error}")))?;
        let runtime = request.config.pointer("/runtimeConfig/ipRanges").cloned().unwrap_or_default();
        let runtime: Vec<Vec<RangeConfig>> = match runtime.is_null() {
            true => Vec::new(),
            false => {
                serde_json::from_value(runtime).map_err(|error| PluginError::invalid(format!("ipRanges: {error}")))?
            }
        };
        let single = (!config.single.subnet.is_empty()).then(|| vec![config.single.clone()]);
        let sets = runtime.into_iter().chain(single).chain(config.ranges.iter().cloned());
        let range_sets: Vec<Vec<AddressRange>> = sets
            .map(|set| set.iter().map(AddressRange::from_config).collect::<Result<Vec<_>, _>>())
            .collect::<Result<_, _>>()?;
        if range_sets.iter().flatten().next().is_none() {
            return Err(PluginError::invalid("no IP ranges specified"));
        }
        check_overlaps(&range_sets)?;
        let directory = config.data_dir.clone().unwrap_or_else(|| DATA_DIR.into()).join(&request.network);
        Ok(Self { range_sets, store: AddressStore::new(directory), config })
    }

    /// The addresses that the request asks for.
    fn requested(request: &CniRequest) -> Result<Vec<IpAddr>, PluginError> {
        let listed = request.config.pointer("/runtimeConfig/ips").or_else(|| request.config.pointer("/args/cni/ips"));
        let listed = listed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let given = request.arguments.get("IP").into_iter().flat_map(|ips| ips.split(','));
        listed
            .chain(given)
            .map(|text| {
                let address = text.split('/').next().unwrap_or_default().trim();
                address.parse().map_err(|_| PluginError::invalid(format!("invalid IP address {text:?}")))
            })
            .collect()
    }
}

fn check_overlaps(sets: &[Vec<AddressRange>]) -> Result<(), PluginError> {
    let all: Vec<&AddressRange> = sets.iter().flatten().collect();
    for (index, range) in all.iter().enumerate() {
        if let Some(other) = all.iter().skip(index + 1).find(|other| range.overlaps(other)) {
            return Err(PluginError::invalid(format!("range {} overlaps with {}", range.subnet, other.subnet)));
        }
    }
    for set in sets {
        if set.iter().any(|range| Some(range.subnet.is_ipv4()) != set.first().map(|first| first.subnet.is_ipv4())) {
            return Err(PluginError::invalid("mixed address families"));
        }
    }
    Ok(())
}

impl CniPlugin for HostLocalPlugin {
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError> {
        let plan = AddressPlan::read(request)?;
        let mut requested = AddressPlan::requested(request)?;
        let attachment = AddressOwner { container: request.container_id.clone(), interface: request.interface.clone() };
        let locked = plan.store.lock()?;
        let mut ips: Vec<ResultIp> = Vec::new();
        for (index, set) in plan.range_sets.iter().enumerate() {
            let wanted = requested.iter().position(|ip| set.iter().any(|range| range.contains(*ip)));
            let wanted = wanted.map(|position| requested.remove(position));
            match locked.allocate(set, index, wanted, &attachment) {
                Ok((range, ip)) => ips.push(range.result_ip(ip)),
                Err(error) => {
                    // What was taken so far would be leaked otherwise.
                    let _ = locked.release(&attachment);
                    return Err(error);
                }
            }
        }
        if let Some(left) = requested.first() {
            locked.release(&attachment)?;
            return Err(PluginError::invalid(format!("failed to allocate all requested IPs: {left}")));
        }
        let routes = plan
            .config
            .routes
            .iter()
            .map(|route| parse_route(route).ok_or_else(|| PluginError::invalid(format!("invalid route {route}"))));
        let routes = routes.collect::<Result<Vec<_>, _>>();
        if routes.is_err() {
            locked.release(&attachment)?;
        }
        let dns = plan.config.resolv_conf.as_deref().map(read_resolv_conf).transpose()?.unwrap_or_default();
        Ok(CniResult { ips, routes: routes?, dns, ..CniResult::default() })
    }

    fn delete(&self, request: &CniRequest) -> Result<(), PluginError> {
        let plan = AddressPlan::read(request)?;
        let attachment = AddressOwner { container: request.container_id.clone(), interface: request.interface.clone() };
        plan.store.lock()?.release(&attachment)
    }

    fn check(&self, request: &CniRequest) -> Result<(), PluginError> {
        let plan = AddressPlan::read(request)?;
        let attachment = AddressOwner { container: request.container_id.clone(), interface: request.interface.clone() };
        match plan.store.lock()?.addresses_of(&attachment)?.is_empty() {
            false => Ok(()),
            true => Err(PluginError::mismatch(format!(
                "host-local: Failed to find address added by container {}",
                request.container_id
            ))),
        }
    }

    fn collect_garbage(&self, request: &CniRequest) -> Result<(), PluginError> {
        let plan = AddressPlan::read(request)?;
        let valid = request.config.get("cni.dev/valid-attachments").and_then(Value::as_array);
        let Some(valid) = valid else { return Ok(()) };
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let valid: Vec<AddressOwner> = valid
            .iter()
            .map(|one| AddressOwner { container: text(one, "containerID"), interface: text(one, "ifname") })
            .collect();
        plan.store.lock()?.release_others(&valid)
    }
}

fn read_resolv_conf(path: &Path) -> Result<ResultDns, PluginError> {
    let text = std::fs::read_to_string(path).map_err(|error| PluginError::io(path.display(), &error))?;
    let mut dns = ResultDns::default();
    for line in text.lines() {
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.nameservers.extend(words.next()),
            Some("domain") => dns.domain = words.next().unwrap_or_default(),
            Some("search") => dns.search.extend(words),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    Ok(dns)
}
