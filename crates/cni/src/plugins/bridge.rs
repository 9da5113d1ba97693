//! `bridge`: connects containers to a bridge of the host, which may be their gateway.

use std::{io, net::IpAddr};

use serde::Deserialize;
use sys::net::{self, IpCidr, NetworkLink};

use super::{
    CniPlugin,
    container_link::{
        ContainerLink, add_routes, check_container, delete_container_link, enable_forwarding, first_host, format_mac,
        in_namespace, parse_mac,
    },
    masquerade::{add_masquerade, delete_masquerade},
    ptp::{collect_attachments, release_address},
};
use crate::{
    delegate::call_ipam,
    plugin_error::PluginError,
    request::CniRequest,
    result::{CniResult, ResultDns, ResultInterface, ResultRoute},
};

/// The bridge unless another is configured.
const DEFAULT_BRIDGE: &str = "cni0";

pub struct BridgePlugin;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BridgeConfig {
    bridge: Option<String>,
    is_gateway: bool,
    is_default_gateway: bool,
    force_address: bool,
    ip_masq: bool,
    mtu: Option<u32>,
    hairpin_mode: bool,
    promisc_mode: bool,
    mac: Option<String>,
    vlan: Option<u32>,
    vlan_trunk: Option<serde_json::Value>,
    macspoofchk: bool,
    port_isolation: bool,
    dns: ResultDns,
}

impl BridgeConfig {
    fn read(request: &CniRequest) -> Result<Self, PluginError> {
        let mut config: Self = request.decode()?;
        let refused = [
            ("vlan", config.vlan.is_some_and(|vlan| vlan != 0)),
            ("vlanTrunk", config.vlan_trunk.is_some()),
            ("macspoofchk", config.macspoofchk),
        ];
        if let Some((name, _)) = refused.iter().find(|(_, given)| *given) {
            return Err(PluginError::new(PluginError::UNSUPPORTED_FIELD, format!("{name} is not supported")));
        }
        if config.hairpin_mode && config.promisc_mode {
            return Err(PluginError::invalid("cannot set hairpin mode and promiscuous mode at the same time"));
        }
        config.is_gateway |= config.is_default_gateway;
        Ok(config)
    }

    fn bridge(&self) -> &str {
        self.bridge.as_deref().unwrap_or(DEFAULT_BRIDGE)
    }

    fn mac(&self, request: &CniRequest) -> Result<Option<net::MacAddress>, PluginError> {
        let runtime = request.config.pointer("/runtimeConfig/mac").and_then(serde_json::Value::as_str);
        let text = runtime.or(request.arguments.get("MAC").map(String::as_str)).or(self.mac.as_deref());
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        parse_mac(text).map(Some).ok_or_else(|| PluginError::invalid(format!("invalid mac address {text:?}")))
    }
}

impl CniPlugin for BridgePlugin {
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError> {
        let config = BridgeConfig::read(request)?;
        let bridge = ensure_bridge(&config).map_err(|error| PluginError::io("failed to create bridge", &error))?;
        let namespace = request.open_namespace()?;
        let link = ContainerLink::create(request, &namespace, config.mtu, config.mac(request)?)?;
        let attached = net::set_master(link.host.index, bridge.index)
            .and_then(|()| net::set_bridge_port(link.host.index, config.hairpin_mode, config.port_isolation));
        let undo = |error: PluginError| {
            // Nothing uses the pair yet; the error is the one that counts.
            let _ = net::delete_link(&link.host.name);
            error
        };
        attached.map_err(|error| undo(PluginError::io("failed to connect to the bridge", &error)))?;
        let mut result = CniResult::default();
        if request.ipam_type().is_some() {
            result = call_ipam(request).map_err(undo)?.unwrap_or_default();
            let configured = configure(request, &config, &bridge, &namespace, &link, &mut result)
                .and_then(|()| if config.ip_masq { add_masquerade(request, &result) } else { Ok(()) });
            if let Err(error) = configured {
                release_address(request);
                return Err(undo(error));
            }
        }
        let [host, container] = link.interfaces(request);
        let own = ResultInterface {
            name: bridge.name.clone(),
            mac: bridge.mac.map(format_mac).unwrap_or_default(),
            mtu: Some(bridge.mtu),
            sandbox: String::new(),
        };
        result.interfaces = vec![own, host, container];
        if config.dns != ResultDns::default() {
            result.dns = config.dns;
        }
        Ok(result)
    }

    fn delete(&self, request: &CniRequest) -> Result<(), PluginError> {
        if request.ipam_type().is_some() {
            call_ipam(request)?;
        }
        delete_container_link(request)?;
        if request.decode::<BridgeConfig>()?.ip_masq { delete_masquerade(request) } else { Ok(()) }
    }

    fn collect_garbage(&self, request: &CniRequest) -> Result<(), PluginError> {
        collect_attachments(request)
    }

    fn check(&self, request: &CniRequest) -> Result<(), PluginError> {
        let config = BridgeConfig::read(request)?;
        if request.ipam_type().is_some() {
            call_ipam(request)?;
        }
        let found = net::find_link(config.bridge()).map_err(|error| PluginError::io("links", &error))?;
        if found.is_none() {
            return Err(PluginError::mismatch(format!("bridge {} is missing", config.bridge())));
        }
        check_container(request, &request.required_previous_result()?)
    }

    fn status(&self, request: &CniRequest) -> Result<(), PluginError> {
        if request.ipam_type().is_some() {
            call_ipam(request)?;
        }
        Ok(())
    }
}

fn ensure_bridge(config: &BridgeConfig) -> io::Result<NetworkLink> {
    match net::create_bridge(config.bridge(), config.mtu, false) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    let bridge = net::link_by_name(config.bridge())?;
    if config.promisc_mode {
        net::set_promiscuous(bridge.index, true)?;
    }
    net::set_link_up(bridge.index, true)?;
    net::link_by_name(config.bridge())
}

fn configure(
    request: &CniRequest,
    config: &BridgeConfig,
    bridge: &NetworkLink,
    namespace: &sys::netns::NetworkNamespace,
    link: &ContainerLink,
    result: &mut CniResult,
) -> Result<(), PluginError> {
    if result.ips.is_empty() {
        return Err(PluginError::invalid("IPAM plugin returned missing IP config"));
    }
    for ip in &mut result.ips {
        ip.interface = Some(2);
        if config.is_gateway && ip.gateway.is_none() {
            ip.gateway = Some(first_host(ip.address));
        }
    }
    if config.is_default_gateway {
        add_default_routes(result);
    }
    let (container, ready) = (link.container.index, &*result);
    let configured = in_namespace(namespace, || {
        ready.ips.iter().try_for_each(|ip| net::add_address(container, ip.address))?;
        add_routes(ready, container)
    })?;
    configured.map_err(|error| PluginError::io(format_args!("failed to configure {}", request.interface), &error))?;
    if config.is_gateway {
        for ip in &result.ips {
            if let Some(gateway) = ip.gateway {
                ensure_gateway(config, bridge, IpCidr { address: gateway, prefix: ip.address.prefix })?;
            }
        }
        enable_forwarding(result.ips.iter().map(|ip| ip.address.address))?;
    }
    Ok(())
}

fn add_default_routes(result: &mut CniResult) {
    for is_ipv4 in [true, false] {
        let gateway = result.ips.iter().find(|ip| ip.address.is_ipv4() == is_ipv4).and_then(|ip| ip.gateway);
        let any: IpAddr = if is_ipv4 { [0u8; 4].into() } else { [0u8; 16].into() };
        let destination = IpCidr { address: any, prefix: 0 };
        if gateway.is_some() && !result.routes.iter().any(|route| route.destination == destination) {
            result.routes.push(ResultRoute { destination, gateway, mtu: None });
        }
    }
}

/// Gives the bridge the gateway's address. Another address of the same subnet is an error, or is replaced if forced.
fn ensure_gateway(config: &BridgeConfig, bridge: &NetworkLink, gateway: IpCidr) -> Result<(), PluginError> {
    let failed = |error: io::Error| PluginError::io(format_args!("failed to set bridge addr {gateway}"), &error);
    for address in net::list_addresses().map_err(failed)?.iter().filter(|address| address.link == bridge.index) {
        let known = IpCidr { address: address.ip, prefix: address.prefix };
        let conflicts =
            known != gateway && address.global && (known.contains(gateway.address) || gateway.contains(known.address));
        if conflicts && !config.force_address {
            return Err(PluginError::mismatch(format!(
                "{:?} already has an IP address different from {gateway}",
                bridge.name
            )));
        }
        if conflicts {
            net::delete_address(bridge.index, known).map_err(failed)?;
        }
    }
    net::ensure_address(bridge.index, gateway).map_err(failed)
}
