//! `ptp`: connects a container to the host by a link of its own. The host routes the container's addresses to the link, so
//! that all traffic of the container is routed.

use std::io;

use serde::Deserialize;
use sys::net::{self, IpCidr, Route};

use super::{
    CniPlugin,
    container_link::{
        ContainerLink, add_routes, check_container, delete_container_link, enable_forwarding, in_namespace,
    },
    masquerade::{add_masquerade, collect_masquerade, delete_masquerade},
};
use crate::{
    delegate::call_ipam,
    plugin_error::PluginError,
    request::CniRequest,
    result::{CniResult, ResultDns},
};

pub struct PtpPlugin;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PtpConfig {
    ip_masq: bool,
    mtu: Option<u32>,
    dns: ResultDns,
}

impl CniPlugin for PtpPlugin {
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError> {
        let config: PtpConfig = request.decode()?;
        let mut result = call_ipam(request)?.unwrap_or_default();
        let attached = attach(request, &config, &mut result)
            .and_then(|()| if config.ip_masq { add_masquerade(request, &result) } else { Ok(()) });
        if attached.is_err() {
            release_address(request);
        }
        attached?;
        if config.dns != ResultDns::default() {
            result.dns = config.dns;
        }
        Ok(result)
    }

    fn delete(&self, request: &CniRequest) -> Result<(), PluginError> {
        call_ipam(request)?;
        delete_container_link(request)?;
        if request.decode::<PtpConfig>()?.ip_masq { delete_masquerade(request) } else { Ok(()) }
    }

    fn collect_garbage(&self, request: &CniRequest) -> Result<(), PluginError> {
        collect_attachments(request)
    }

    fn check(&self, request: &CniRequest) -> Result<(), PluginError> {
        call_ipam(request)?;
        check_container(request, &request.required_previous_result()?)
    }

    fn status(&self, request: &CniRequest) -> Result<(), PluginError> {
        call_ipam(request).map(drop)
    }
}

/// Has the IPAM plug-in and the masquerading forget attachments that are not valid any more.
pub(super) fn collect_attachments(request: &CniRequest) -> Result<(), PluginError> {
    if request.ipam_type().is_some() {
        call_ipam(request)?;
    }
    collect_masquerade(request)
}

/// Gives an address back after a failure of ADD, whose error is the one that counts.
pub(super) fn release_address(request: &CniRequest) {
    let variables = |name: &str| match name {
        "CNI_CONTAINERID" => Some(request.container_id.clone()),
        "CNI_NETNS" => Some(request.namespace.clone()),
        "CNI_IFNAME" => Some(request.interface.clone()),
        "CNI_PATH" => std::env::var("CNI_PATH").ok(),
        "CNI_ARGS" => std::env::var("CNI_ARGS").ok(),
        _ => None,
    };
    let undo = CniRequest::parse(crate::request::CniCommand::Delete, &request.input, &variables);
    let _ = undo.and_then(|undo| call_ipam(&undo));
}

fn attach(request: &CniRequest, config: &PtpConfig, result: &mut CniResult) -> Result<(), PluginError> {
    if result.ips.is_empty() {
        return Err(PluginError::invalid("IPAM plugin returned missing IP config"));
    }
    enable_forwarding(result.ips.iter().map(|ip| ip.address.address))?;
    let namespace = request.open_namespace()?;
    let link = ContainerLink::create(request, &namespace, config.mtu, None)?;
    result.interfaces = link.interfaces(request).to_vec();
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
    let (index, reached) = (link.container.index, &*result);
    let configured = in_namespace(&namespace, || configure_container(index, reached))?;
    let configured = configured.and_then(|()| configure_host(link.host.index, result));
    configured.map_err(|error| {
        // The pair goes with the container otherwise; here nothing uses it yet.
        let _ = net::delete_link(&link.host.name);
        PluginError::io("failed to configure the link", &error)
    })
}

/// Gives the container its addresses. Its subnet is reached through the gateway, not on the link, which has only two ends.
fn configure_container(link: u32, result: &CniResult) -> io::Result<()> {
    for ip in &result.ips {
        net::add_address(link, ip.address)?;
        let Some(gateway) = ip.gateway else {
            return Err(io::Error::other(format!("no gateway for {}", ip.address)));
        };
        let subnet = Route { source: Some(ip.address.address), ..Route::new(ip.address, link) };
        net::delete_route(&Route { protocol: 0, source: None, ..subnet.clone() })?;
        net::replace_route(&Route::new(IpCidr::host(gateway), link))?;
        net::replace_route(&Route { gateway: Some(gateway), ..subnet })?;
    }
    add_routes(result, link)
}

/// Gives the host's end the gateways' addresses and routes the container's to it.
fn configure_host(link: u32, result: &CniResult) -> io::Result<()> {
    for ip in &result.ips {
        if let Some(gateway) = ip.gateway {
            net::ensure_address(link, IpCidr::host(gateway))?;
        }
        net::replace_route(&Route::new(IpCidr::host(ip.address.address), link))?;
    }
    Ok(())
}
