//! The sandbox of a pod: its volumes, control group and namespaces, made before its containers.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use runtime::cri::types::{DnsConfig, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata};

use crate::{
    agent::{self, Agent},
    objects::Objects,
    resources, security,
    truth::labels,
    volumes::{self, PodDir, Tokens, content::Gather},
};

/// Where a node says how it resolves names.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The longest name that the kernel lets a host have.
const MAX_HOSTNAME: usize = 63;

/// Why a pod has no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A volume could not be made.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    Volume {
        /// Its name.
        volume: String,
        /// Why.
        source: volumes::Error,
    },
    /// A directory could not be made.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The pod's control group could not be made.
    #[error(transparent)]
    Cgroup(#[from] sys::cgroup::Error),
    /// The runtime refused.
    #[error("Failed to create pod sandbox: {}", .0.message())]
    Runtime(#[from] runtime::cri::Error),
}

impl Error {
    /// The reason of the event about it.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Volume { .. } => "FailedMount",
            Error::Directory { .. } | Error::Cgroup(_) => "FailedCreatePodContainer",
            Error::Runtime(_) => "FailedCreatePodSandBox",
        }
    }
}

/// Makes everything that a pod's containers need, and its sandbox.
pub async fn create(agent: &Agent, pod: &Pod, tokens: &Arc<Tokens>, attempt: u32) -> Result<String, Error> {
    let logs = agent.log_dir(pod);
    make_dir(&logs)?;
    make_dir(PodDir::new(&agent.root_dir, agent::uid(pod)).path())?;
    prepare_volumes(agent, pod, tokens).await?;
    let cgroup = cgroup(agent, pod);
    if let Some(cgroups) = &agent.cgroups {
        cgroups.create(&cgroup)?;
        cgroups.set(&cgroup, &resources::pod_limits(pod))?;
    }
    Ok(agent.cri.run_sandbox(config(agent, pod, attempt), "").await?)
}

fn make_dir(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|source| Error::Directory { path: path.into(), source })
}

/// Makes the volumes, or refreshes what they show.
pub async fn prepare_volumes(agent: &Agent, pod: &Pod, tokens: &Arc<Tokens>) -> Result<(), Error> {
    let objects = Objects::new(agent.client.clone(), agent::namespace(pod));
    let gather = Gather { pod, objects: &objects, client: &agent.client, capacity: agent.capacity, tokens };
    let dir = PodDir::new(&agent.root_dir, agent::uid(pod));
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let failed = |source| Error::Volume { volume: volume.name.clone(), source };
        dir.prepare(volume, &gather).await.map_err(failed)?;
    }
    Ok(())
}

/// The pod's control group.
pub fn cgroup(agent: &Agent, pod: &Pod) -> String {
    let qos = pod.spec.as_ref().map_or(resources::Qos::BestEffort, resources::qos);
    resources::cgroup(&agent.cgroup_root, agent::uid(pod), qos)
}

/// What the runtime is told about the sandbox; containers are made with the same words.
pub fn config(agent: &Agent, pod: &Pod, attempt: u32) -> PodSandboxConfig {
    let spec = pod.spec.clone().unwrap_or_default();
    let mut labels: HashMap<String, String> = pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(pod_labels(pod));
    let sysctls = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: agent::name(pod).into(),
            uid: agent::uid(pod).into(),
            namespace: agent::namespace(pod).into(),
            attempt,
        }),
        hostname: if spec.host_network == Some(true) { String::new() } else { hostname(pod) },
        log_directory: agent.log_dir(pod).display().to_string(),
        dns_config: Some(dns(&spec, &std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: cgroup(agent, pod),
            security_context: Some(security::sandbox(&spec)),
            sysctls: sysctls.map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The labels by which the runtime's objects of a pod are found.
pub fn pod_labels(pod: &Pod) -> [(String, String); 3] {
    [
        (labels::POD_NAME.into(), agent::name(pod).into()),
        (labels::POD_NAMESPACE.into(), agent::namespace(pod).into()),
        (labels::POD_UID.into(), agent::uid(pod).into()),
    ]
}

/// The name that the pod knows itself by.
pub fn hostname(pod: &Pod) -> String {
    let asked = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let name = asked.unwrap_or_else(|| agent::name(pod).into());
    name.chars().take(MAX_HOSTNAME).collect::<String>().trim_end_matches(['-', '.']).into()
}

/// How the pod resolves names. There is no cluster DNS yet, so `ClusterFirst` resolves as the node does, as upstream does
/// when none is configured.
fn dns(spec: &PodSpec, resolv_conf: &str) -> DnsConfig {
    let mut dns = match spec.dns_policy.as_deref() {
        Some("None") => DnsConfig::default(),
        _ => parse_resolv_conf(resolv_conf),
    };
    if let Some(more) = &spec.dns_config {
        dns.servers.extend(more.nameservers.iter().flatten().cloned());
        dns.searches.extend(more.searches.iter().flatten().cloned());
        let option = |option: &k8s_openapi::api::core::v1::PodDNSConfigOption| {
            let name = option.name.clone().unwrap_or_default();
            option.value.as_ref().map_or(name.clone(), |value| format!("{name}:{value}"))
        };
        dns.options.extend(more.options.iter().flatten().map(option));
    }
    dns
}

fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with(['#', ';'])).map(String::from);
        match words.next().as_deref() {
            Some("nameserver") => dns.servers.extend(words.next()),
            Some("search") => dns.searches = words.collect(),
            Some("options") => dns.options = words.collect(),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_resolved_as_the_policy_says() {
        let host = "# comment\nnameserver 10.0.0.1\nsearch a.example b.example\noptions ndots:2 # x\n";
        let spec = |value| serde_json::from_value::<PodSpec>(value).unwrap();
        let default = dns(&spec(json!({ "containers": [] })), host);
        assert_eq!(
            (default.servers, default.searches.len(), default.options),
            (vec!["10.0.0.1".into()], 2, vec!["ndots:2".into()])
        );
        let none = spec(json!({ "containers": [], "dnsPolicy": "None",
            "dnsConfig": { "nameservers": ["1.1.1.1"], "options": [{ "name": "ndots", "value": "5" }, { "name": "edns0" }] } }));
        let none = dns(&none, host);
        assert_eq!((none.servers, none.options), (vec!["1.1.1.1".into()], vec!["ndots:5".into(), "edns0".into()]));
    }

    #[test]
    fn a_long_name_is_cut() {
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": format!("{}-x", "a".repeat(62)) } })).unwrap();
        assert_eq!(hostname(&pod), "a".repeat(62));
    }
}
