//! The pod network of the cluster's own runtime: CNI plug-ins connect every pod by a link of its own, addresses come from
//! the pod range, and packet filters let pods out under the host's address and keep cluster addresses inside.

use std::{fs, io, path::Path};

use anyhow::Context;
use network::{
    overlay::NodeRanges,
    pod_network::{self, PodNetwork},
};
use serde_json::json;
use sys::net::{self, IpCidr};

use crate::{atomic, instance::ClusterInstance, options::UpOptions, state::InstanceState};

/// CNI's cache of attachments.
const CNI_RESULTS: &str = "/var/lib/cni/results";

/// Prepares the network; what could not be done but is not needed to run pods comes back as warnings.
pub fn set_up(options: &UpOptions, state: &mut InstanceState) -> anyhow::Result<Vec<String>> {
    let instance = &options.instance;
    let directory = instance.cni();
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    link_plugins(instance)?;
    state.pod_cidr = Some(options.pod_cidr.to_string());
    state.service_cidr = Some(options.service_cidr.to_string());
    state.save(instance)?;
    enable_forwarding(instance, state)?;
    match pod_network_of(options).set_up() {
        Ok(()) => Ok(Vec::new()),
        Err(error) => {
            tracing::warn!(%error, "the packet filters or routes were refused");
            Ok(vec![format!("packet filters were not set, pods cannot reach other machines: {error}")])
        }
    }
}

/// The pod network that the options describe.
pub fn pod_network_of(options: &UpOptions) -> PodNetwork {
    PodNetwork {
        table_name: options.instance.nft_table(),
        pod_cidr: options.pod_cidr.into(),
        service_cidr: options.service_cidr.into(),
        node_ip: options.node_ip,
        overlay_link: options.instance.overlay_link(),
    }
}

/// Makes the CNI plug-ins: this program under their names.
fn link_plugins(instance: &ClusterInstance) -> anyhow::Result<()> {
    let directory = instance.cni_plugins();
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let program = std::env::current_exe().context("the path of this program")?;
    for name in cni::PLUGINS {
        let link = directory.join(name);
        if fs::read_link(&link).is_ok_and(|target| target == program) {
            continue;
        }
        let replaced = match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => std::os::unix::fs::symlink(&program, &link),
        };
        replaced.with_context(|| link.display().to_string())?;
    }
    Ok(())
}

/// Remembers how forwarding was before it is turned on, so that a crash in between cannot forget it.
fn enable_forwarding(instance: &ClusterInstance, state: &mut InstanceState) -> anyhow::Result<()> {
    let before = net::is_ip_forward_enabled().context("net.ipv4.ip_forward")?;
    if state.ip_forward_before.is_none() {
        state.ip_forward_before = Some(before);
        state.save(instance)?;
    }
    if !before {
        net::set_ip_forward(true).context("net.ipv4.ip_forward")?;
    }
    Ok(())
}

/// Writes the CNI configuration for the node's ranges: from then on the runtime can start pods.
pub fn write_conflist(instance: &ClusterInstance, ranges: &NodeRanges) -> anyhow::Result<()> {
    let file = instance.cni().join("10-ferry.conflist");
    let text = render_conflist(instance, ranges);
    atomic::write_file(&file, text.as_bytes(), atomic::PUBLIC).with_context(|| file.display().to_string())
}

fn render_conflist(instance: &ClusterInstance, ranges: &NodeRanges) -> String {
    let subnets: Vec<_> = ranges.pod_cidrs.iter().map(|cidr| json!([{ "subnet": cidr.to_string() }])).collect();
    let link = json!({
        "type": "ptp",
        "ipMasq": false,
        "ipam": {
            "type": "host-local",
            "ranges": subnets,
            "dataDir": instance.ipam(),
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
        "mtu": ranges.mtu,
    });
    let ports = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    let list = json!({ "cniVersion": "1.0.0", "name": instance.bridge(), "plugins": [link, ports] });
    format!("{list:#}\n")
}

/// Removes the links of pods, routes, packet filters and the record of addresses, and forwards packets no more if the host
/// did not before. Says what it removed.
pub fn tear_down(instance: &ClusterInstance, state: &mut InstanceState) -> anyhow::Result<Vec<String>> {
    let mut removed = Vec::new();
    for link in own_links(instance).context("cannot read the network links")? {
        if net::delete_link(&link).with_context(|| format!("cannot delete the link {link}"))? {
            removed.push(link);
        }
    }
    let range = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<IpCidr>().ok());
    if let (Some(pods), Some(services)) = (range(&state.pod_cidr), range(&state.service_cidr)) {
        removed.extend(pod_network::delete_links_and_routes(pods, &[pods, services])?);
        cni::remove_host_ports(pods).context("cannot remove host ports")?;
    }
    (state.pod_cidr, state.service_cidr) = (None, None);
    forget_results(instance, Path::new(CNI_RESULTS)).context(CNI_RESULTS)?;
    match fs::remove_dir_all(instance.ipam()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context("address records"),
        _ => {}
    }
    if pod_network::delete_tables(|name| instance.owns_table(name)).context("cannot delete the packet filters")? {
        removed.push("packet filters".into());
    }
    // Another cluster on this machine still needs it.
    let tables = sys::nftables::list_tables().context("packet filters")?;
    let shared = tables.iter().any(|table| table.name == "ferry" || table.name.starts_with("ferry_"));
    if state.ip_forward_before.take() == Some(false)
        && !shared
        && net::is_ip_forward_enabled().context("net.ipv4.ip_forward")?
    {
        net::set_ip_forward(false).context("net.ipv4.ip_forward")?;
        removed.push("forwarding".into());
    }
    Ok(removed)
}

/// The overlay's link, the ports of the bridge, then the bridge.
fn own_links(instance: &ClusterInstance) -> io::Result<Vec<String>> {
    let links = net::list_links()?;
    let overlay = links.iter().filter(|link| link.name == instance.overlay_link());
    let bridge = links.iter().find(|link| link.name == instance.bridge());
    let ports = links.iter().filter(|link| bridge.is_some_and(|bridge| link.master == Some(bridge.index)));
    Ok(overlay.chain(ports).chain(bridge).map(|link| link.name.clone()).collect())
}

/// Removes CNI's records of sandboxes whose network was not given back, and of their loopback.
fn forget_results(instance: &ClusterInstance, directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let prefix = format!("{}-", instance.bridge());
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for sandbox in names.filter_map(|name| Some(name.strip_prefix(&prefix)?.strip_suffix("-eth0")?.to_owned())) {
        for record in [format!("{prefix}{sandbox}-eth0"), format!("cni-loopback-{sandbox}-lo")] {
            match fs::remove_file(directory.join(record)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> (tempfile::TempDir, ClusterInstance) {
        let directory = tempfile::tempdir().unwrap();
        let instance = ClusterInstance::at(directory.path()).unwrap();
        (directory, instance)
    }

    #[test]
    fn the_cni_configuration_names_range_and_records() {
        let (_directory, instance) = instance();
        let ranges = NodeRanges { pod_cidrs: vec!["10.42.0.0/24".parse().unwrap()], mtu: 1400 };
        let text = render_conflist(&instance, &ranges);
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let link = &list["plugins"][0];
        assert_eq!(list["name"], instance.bridge());
        assert_eq!(link["mtu"], 1400);
        assert_eq!(link["ipam"]["ranges"][0][0]["subnet"], "10.42.0.0/24");
        assert_eq!(link["ipam"]["dataDir"], instance.ipam().to_str().unwrap());
    }

    #[test]
    fn only_own_records_are_forgotten() {
        let (directory, instance) = instance();
        let own = format!("{}-abc-eth0", instance.bridge());
        for name in [own.as_str(), "cni-loopback-abc-lo", "cni-loopback-def-lo", "other-abc-eth0"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        forget_results(&instance, directory.path()).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["cni-loopback-def-lo", "other-abc-eth0"]);
    }
}
