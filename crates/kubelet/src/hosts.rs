//! The kubelet-managed `/etc/hosts` of a pod.

use std::{
    io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Pod;
use tokio::fs;

use crate::hostname::PodHostname;

const LOCALHOST_ENTRIES: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::\tip6-localnet\nfe00::\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

/// Writes the hosts file into the pod's directory and returns its path.
pub async fn write_hosts_file(dir: &Path, pod: &Pod, ips: &[String], cluster_domain: &str) -> io::Result<PathBuf> {
    let host_network = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let own = if host_network { fs::read_to_string("/etc/hosts").await.unwrap_or_default() } else { String::new() };
    let path = dir.join("etc-hosts");
    fs::write(&path, hosts_file_content(pod, ips, cluster_domain, host_network.then_some(&own))).await?;
    Ok(path)
}

fn hosts_file_content(pod: &Pod, ips: &[String], cluster_domain: &str, host: Option<&String>) -> String {
    let mut text = match host {
        Some(host) => format!("# Kubernetes-managed hosts file (host network).\n{host}"),
        None => format!("# Kubernetes-managed hosts file.\n{LOCALHOST_ENTRIES}"),
    };
    if host.is_none() {
        let PodHostname { hostname, domain, .. } = PodHostname::of_pod(pod, cluster_domain);
        let names = if domain.is_empty() { hostname } else { format!("{hostname}.{domain}\t{hostname}") };
        ips.iter().for_each(|ip| text.push_str(&format!("{ip}\t{names}\n")));
    }
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_file_has_the_pod_and_its_aliases() {
        let pod: Pod = serde_json::from_value(serde_json::json!({ "metadata": { "name": "web" },
            "spec": { "containers": [], "hostAliases": [{ "ip": "1.2.3.4", "hostnames": ["a", "b"] }] } }))
        .unwrap();
        let text = hosts_file_content(&pod, &["10.0.0.5".into()], "cluster.local", None);
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text.contains("10.0.0.5\tweb\n") && text.ends_with("1.2.3.4\ta\tb\n"), "{text}");
    }

    #[test]
    fn pod_with_a_subdomain_has_its_full_name_first() {
        let pod: Pod = serde_json::from_value(serde_json::json!({ "metadata": { "name": "web", "namespace": "ns" },
            "spec": { "containers": [], "hostname": "h", "subdomain": "sub" } }))
        .unwrap();
        let text = hosts_file_content(&pod, &["10.0.0.5".into()], "cluster.local", None);
        assert!(text.contains("10.0.0.5\th.sub.ns.svc.cluster.local\th\n"), "{text}");
    }
}
