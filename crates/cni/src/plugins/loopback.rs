//! `loopback`: sets the container's loopback link up.

use sys::net;

use super::{
    CniPlugin,
    container_link::{check_container, in_namespace},
};
use crate::{
    plugin_error::PluginError,
    request::CniRequest,
    result::{CniResult, ResultInterface, ResultIp},
};

const LOOPBACK: &str = "lo";

pub struct LoopbackPlugin;

impl CniPlugin for LoopbackPlugin {
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError> {
        let addresses = set_loopback(request, true)?;
        if let Some(previous) = request.previous_result()? {
            return Ok(previous);
        }
        Ok(CniResult {
            interfaces: vec![ResultInterface {
                name: LOOPBACK.into(),
                mac: "00:00:00:00:00:00".into(),
                mtu: None,
                sandbox: request.namespace.clone(),
            }],
            ips: addresses,
            ..CniResult::default()
        })
    }

    fn delete(&self, request: &CniRequest) -> Result<(), PluginError> {
        if request.namespace.is_empty() || !std::path::Path::new(&request.namespace).exists() {
            return Ok(());
        }
        set_loopback(request, false).map(drop)
    }

    fn check(&self, request: &CniRequest) -> Result<(), PluginError> {
        let namespace = request.open_namespace()?;
        let link = in_namespace(&namespace, || net::find_link(LOOPBACK))?;
        let link = link.map_err(|error| PluginError::io("links of the container", &error))?;
        if !link.is_some_and(|link| link.up) {
            return Err(PluginError::mismatch("loopback interface is down"));
        }
        match request.previous_result()? {
            Some(previous) if request.interface == LOOPBACK => check_container(request, &previous),
            _ => Ok(()),
        }
    }
}

fn set_loopback(request: &CniRequest, up: bool) -> Result<Vec<ResultIp>, PluginError> {
    let namespace = request.open_namespace()?;
    let changed = in_namespace(&namespace, || {
        let link = net::link_by_name(LOOPBACK)?;
        net::set_link_up(link.index, up)?;
        Ok::<_, std::io::Error>((link.index, net::list_addresses()?))
    })?;
    let (link, addresses) = changed.map_err(|error| PluginError::io("loopback", &error))?;
    let own = addresses.into_iter().filter(|address| address.link == link);
    Ok(own
        .map(|address| ResultIp {
            address: net::IpCidr { address: address.ip, prefix: address.prefix },
            gateway: None,
            interface: Some(0),
        })
        .collect())
}
