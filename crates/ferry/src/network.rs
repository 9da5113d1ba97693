//! The pod network of the cluster's own runtime: a bridge that CNI plug-ins attach pods to, addresses from the pod range,
//! and packet filters that let pods out under the host's address and keep cluster addresses on this machine.

use std::{fs, io, net::Ipv4Addr, path::Path};

use anyhow::Context;
use serde_json::json;
use sys::net::{self, Ipv4Cidr};

use crate::{atomic, instance::ClusterInstance, state::InstanceState};

/// The range of service addresses.
pub const SERVICE_CIDR: Ipv4Cidr = Ipv4Cidr { base: Ipv4Addr::new(10, 96, 0, 0), prefix: 16 };
/// CNI's cache of attachments.
const CNI_RESULTS: &str = "/var/lib/cni/results";

/// Prepares the network; what could not be done but is not needed to run pods comes back as warnings.
pub fn set_up(instance: &ClusterInstance, pods: Ipv4Cidr, state: &mut InstanceState) -> anyhow::Result<Vec<String>> {
    let directory = instance.cni();
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let file = directory.join("10-ferry.conflist");
    let text = render_conflist(instance, pods, uplink_mtu());
    atomic::write_file(&file, text.as_bytes(), atomic::PUBLIC).with_context(|| file.display().to_string())?;
    enable_forwarding(instance, state)?;
    match net::load_nft_ruleset(&render_ruleset(instance, pods)) {
        Ok(_) => Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(vec!["nft is not installed: pods cannot reach other machines (Debian: apt-get install nftables)".into()])
        }
        Err(error) => {
            tracing::warn!(%error, "the packet filters were refused");
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            Ok(vec![format!("packet filters were not set, pods cannot reach other machines: {why}")])
        }
    }
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

/// Packets on the bridge need not be larger than what the link to the world carries.
fn uplink_mtu() -> Option<u32> {
    let route = net::list_default_routes().ok()?.into_iter().next()?;
    net::list_links().ok()?.into_iter().find(|link| link.index == route.link).map(|link| link.mtu)
}

fn render_conflist(instance: &ClusterInstance, pods: Ipv4Cidr, mtu: Option<u32>) -> String {
    let mut bridge = json!({
        "type": "bridge",
        "bridge": instance.bridge(),
        "isGateway": true,
        "ipMasq": false,
        "hairpinMode": true,
        "ipam": {
            "type": "host-local",
            "ranges": [[{ "subnet": pods.to_string() }]],
            "dataDir": instance.ipam(),
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
    });
    if let Some(mtu) = mtu {
        bridge["mtu"] = mtu.into();
    }
    let list = json!({ "cniVersion": "0.4.0", "name": instance.bridge(), "plugins": [bridge] });
    format!("{list:#}\n")
}

/// Replaces the whole table in one transaction.
fn render_ruleset(instance: &ClusterInstance, pods: Ipv4Cidr) -> String {
    let (table, bridge) = (instance.nft_table(), instance.bridge());
    format!(
        "table ip {table} {{}}
delete table ip {table}
table ip {table} {{
  chain inside {{
    type filter hook postrouting priority filter; policy accept;
    ip daddr {{ {pods}, {SERVICE_CIDR} }} oifname != {{ \"lo\", \"{bridge}\" }} drop
  }}
  chain outbound {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {pods} ip daddr != {pods} oifname != {{ \"lo\", \"{bridge}\" }} masquerade
  }}
}}
"
    )
}

/// Removes the bridge, what is attached to it, the packet filters and the record of addresses, and forwards packets no
/// more if the host did not before. Says what it removed.
pub fn tear_down(instance: &ClusterInstance, state: &mut InstanceState) -> anyhow::Result<Vec<String>> {
    let mut removed = Vec::new();
    for link in own_links(instance).context("cannot read the network links")? {
        if net::delete_link(&link).with_context(|| format!("cannot delete the link {link}"))? {
            removed.push(link);
        }
    }
    forget_results(instance, Path::new(CNI_RESULTS)).context(CNI_RESULTS)?;
    match fs::remove_dir_all(instance.ipam()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context("address records"),
        _ => {}
    }
    let tables = list_tables();
    if tables.contains(&instance.nft_table()) {
        let table = instance.nft_table();
        let deleted = net::load_nft_ruleset(&format!("delete table ip {table}\n"));
        deleted.with_context(|| format!("cannot delete the packet filters of table {table}"))?;
        removed.push("packet filters".into());
    }
    // Another cluster on this machine still needs it.
    let shared = tables.iter().any(|table| *table != instance.nft_table());
    if state.ip_forward_before.take() == Some(false)
        && !shared
        && net::is_ip_forward_enabled().context("net.ipv4.ip_forward")?
    {
        net::set_ip_forward(false).context("net.ipv4.ip_forward")?;
        removed.push("forwarding".into());
    }
    Ok(removed)
}

/// The tables of packet filters that ferry made, for this cluster or another; none if there is no `nft`.
fn list_tables() -> Vec<String> {
    let listed = net::load_nft_ruleset("list tables ip\n").unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.strip_prefix("table ip "));
    names.filter(|name| *name == "ferry" || name.starts_with("ferry_")).map(str::to_owned).collect()
}

/// The ports of the bridge, then the bridge.
fn own_links(instance: &ClusterInstance) -> io::Result<Vec<String>> {
    let links = net::list_links()?;
    let Some(bridge) = links.iter().find(|link| link.name == instance.bridge()) else { return Ok(Vec::new()) };
    let ports = links.iter().filter(|link| link.master == Some(bridge.index));
    Ok(ports.chain([bridge]).map(|link| link.name.clone()).collect())
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
    fn the_cni_configuration_names_bridge_range_and_records() {
        let (_directory, instance) = instance();
        let text = render_conflist(&instance, "10.42.0.0/24".parse().unwrap(), Some(1400));
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let bridge = &list["plugins"][0];
        assert_eq!(bridge["bridge"], instance.bridge());
        assert_eq!(bridge["mtu"], 1400);
        assert_eq!(bridge["ipam"]["ranges"][0][0]["subnet"], "10.42.0.0/24");
        assert_eq!(bridge["ipam"]["dataDir"], instance.ipam().to_str().unwrap());
    }

    #[test]
    fn filters_replace_their_own_table_only() {
        let (_directory, instance) = instance();
        let rules = render_ruleset(&instance, "10.42.0.0/24".parse().unwrap());
        let table = format!("table ip {}", instance.nft_table());
        assert!(rules.starts_with(&format!("{table} {{}}\ndelete {table}\n{table} {{")), "{rules}");
        assert!(rules.contains("ip daddr { 10.42.0.0/24, 10.96.0.0/16 }"), "{rules}");
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
