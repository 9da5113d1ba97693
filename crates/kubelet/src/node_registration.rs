//! Registers the Node object, reports its status and renews its lease.
//!
//! The status is written on change and every five minutes; the lease is renewed every ten seconds. Readiness of the
//! runtime is checked at the same interval; while it is not ready, soon at first and then every second.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use runtime::cri::CriClient;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    machine_info::{MachineInfo, go_architecture},
    resources::NodeResources,
    status_writer::has_status_code,
};

const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// The first and the longest pause while the node is not ready.
const NOT_READY_INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
const STATUS_REPORT_INTERVAL: Duration = Duration::from_secs(300);
const MAX_IMAGES: usize = 50;

/// Identity and dependencies of the node.
pub struct NodeRegistration {
    /// The node's name.
    pub name: String,
    /// The node's IP.
    pub ip: IpAddr,
    /// Port of the kubelet API.
    pub port: u16,
    /// Hardware and system information.
    pub machine: MachineInfo,
    /// API client.
    pub client: Client,
    /// The container runtime.
    pub cri: CriClient,
}

impl NodeRegistration {
    /// Registers the node and reports until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let mut last_report: Option<(Option<String>, Instant)> = None;
        let mut node = None;
        let mut not_ready_pause = NOT_READY_INTERVALS.0;
        loop {
            let not_ready = self.not_ready_reason().await;
            let due = last_report
                .as_ref()
                .is_none_or(|(old, at)| *old != not_ready || at.elapsed() >= STATUS_REPORT_INTERVAL);
            if due {
                match self.sync_node_status(&nodes, not_ready.clone()).await {
                    Ok(written) => {
                        node = Some(written);
                        last_report = Some((not_ready.clone(), Instant::now()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, node = self.name, "kubelet: node status not written, retrying")
                    }
                }
            }
            if let Err(error) = self.renew_lease(&leases, node.as_ref()).await {
                tracing::warn!(%error, node = self.name, "kubelet: node lease not renewed, retrying");
            }
            let pause = if not_ready.is_some() || last_report.is_none() {
                let pause = not_ready_pause;
                not_ready_pause = (pause * 2).min(NOT_READY_INTERVALS.1);
                pause
            } else {
                not_ready_pause = NOT_READY_INTERVALS.0;
                LEASE_RENEW_INTERVAL
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Returns why the node is not ready.
    async fn not_ready_reason(&self) -> Option<String> {
        match self.cri.fetch_readiness().await {
            Ok(readiness) => {
                let network = readiness.network.map(|why| format!("container runtime network not ready: {why}"));
                let runtime = readiness.runtime.map(|why| format!("container runtime not ready: {why}"));
                let both: Vec<_> = [runtime, network].into_iter().flatten().collect();
                (!both.is_empty()).then(|| both.join(", "))
            }
            Err(error) => Some(format!("container runtime is down: {}", error.message())),
        }
    }

    /// Creates or adopts the Node and writes its status.
    async fn sync_node_status(&self, nodes: &Api<Node>, not_ready: Option<String>) -> kube::Result<Node> {
        let images = self.cri.list_images().await.unwrap_or_default();
        let Some(existing) = nodes.get_opt(&self.name).await? else {
            let status = self.node_status(&[], not_ready, images);
            let node = Node { metadata: self.node_metadata(), spec: None, status: Some(status.clone()) };
            let created = nodes.create(&PostParams::default(), &node).await?;
            let has_status = created.status.as_ref().is_some_and(|status| status.conditions.is_some());
            return if has_status { Ok(created) } else { self.patch_status(nodes, &status).await };
        };
        self.reconcile_existing_node(nodes, &existing).await?;
        let old = existing.status.and_then(|status| status.conditions).unwrap_or_default();
        self.patch_status(nodes, &self.node_status(&old, not_ready, images)).await
    }

    /// Sets the labels and annotations of an existing Node.
    async fn reconcile_existing_node(&self, nodes: &Api<Node>, existing: &Node) -> kube::Result<()> {
        let wanted = self.node_metadata();
        let has = |have: &Option<BTreeMap<String, String>>, want: &Option<BTreeMap<String, String>>| {
            want.iter().flatten().all(|(key, value)| have.as_ref().and_then(|have| have.get(key)) == Some(value))
        };
        let metadata = &existing.metadata;
        if has(&metadata.labels, &wanted.labels) && has(&metadata.annotations, &wanted.annotations) {
            return Ok(());
        }
        let patch = json!({ "metadata": { "labels": wanted.labels, "annotations": wanted.annotations } });
        nodes.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
    }

    async fn patch_status(&self, nodes: &Api<Node>, status: &NodeStatus) -> kube::Result<Node> {
        nodes.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(status_patch(status))).await
    }

    fn node_metadata(&self) -> ObjectMeta {
        let labels = [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", go_architecture()),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", go_architecture()),
        ];
        let annotations = [("volumes.kubernetes.io/controller-managed-attach-detach".into(), "true".into())];
        ObjectMeta {
            name: Some(self.name.clone()),
            labels: Some(labels.map(|(key, value)| (key.to_string(), value.to_string())).into()),
            annotations: Some(annotations.into()),
            ..Default::default()
        }
    }

    fn node_status(
        &self,
        old: &[NodeCondition],
        not_ready: Option<String>,
        images: Vec<runtime::cri::types::Image>,
    ) -> NodeStatus {
        let address = |type_: &str, address: String| NodeAddress { type_: type_.into(), address };
        NodeStatus {
            addresses: Some(vec![address("InternalIP", self.ip.to_string()), address("Hostname", self.name.clone())]),
            capacity: Some(resource_list(&self.machine.capacity())),
            allocatable: Some(resource_list(&self.machine.allocatable())),
            conditions: Some(node_conditions(old, not_ready, Timestamp::now())),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: self.port.into() }),
            }),
            images: Some(node_images(images)),
            node_info: Some(self.machine.info.clone()),
            ..Default::default()
        }
    }

    async fn renew_lease(&self, leases: &Api<Lease>, node: Option<&Node>) -> kube::Result<()> {
        let now = MicroTime(Timestamp::now());
        let patch = json!({ "spec": { "renewTime": now, "holderIdentity": self.name, "leaseDurationSeconds": 40 } });
        match leases.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Err(error) if has_status_code(&error, 404) => {
                leases.create(&PostParams::default(), &self.new_lease(now, node)).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    fn new_lease(&self, now: MicroTime, node: Option<&Node>) -> Lease {
        let owner = node.and_then(|node| node.metadata.uid.clone()).map(|uid| OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.name.clone(),
            uid,
            ..Default::default()
        });
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                owner_references: owner.map(|owner| vec![owner]),
                ..Default::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: Some(40),
                renew_time: Some(now),
                ..Default::default()
            }),
        }
    }
}

/// Returns the strategic merge patch of a node status: conditions are merged by type, so that other writers' conditions
/// stay; addresses are replaced.
fn status_patch(status: &NodeStatus) -> serde_json::Value {
    let addresses = status.addresses.iter().flatten().map(|address| json!(address));
    let addresses: Vec<_> = std::iter::once(json!({ "$patch": "replace" })).chain(addresses).collect();
    let mut status = json!(status);
    status["addresses"] = addresses.into();
    json!({ "status": status })
}

/// Converts resources to the quantities that upstream's kubelet writes.
fn resource_list(resources: &NodeResources) -> BTreeMap<String, Quantity> {
    let kib = |bytes: i64| format!("{}Ki", bytes / 1024);
    [
        ("cpu", (resources.cpu_millis / 1000).to_string()),
        ("memory", kib(resources.memory)),
        ("ephemeral-storage", kib(resources.ephemeral_storage)),
        ("hugepages-1Gi", "0".into()),
        ("hugepages-2Mi", "0".into()),
        ("pods", resources.pods.to_string()),
    ]
    .map(|(name, amount)| (name.to_string(), Quantity(amount)))
    .into()
}

fn node_images(mut images: Vec<runtime::cri::types::Image>) -> Vec<ContainerImage> {
    images.sort_by_key(|image| std::cmp::Reverse(image.size));
    images.truncate(MAX_IMAGES);
    let convert = |image: runtime::cri::types::Image| ContainerImage {
        names: Some(image.repo_digests.into_iter().chain(image.repo_tags).take(5).collect()),
        size_bytes: Some(image.size as i64),
    };
    images.into_iter().map(convert).collect()
}

/// Computes the kubelet's conditions.
fn node_conditions(old: &[NodeCondition], not_ready: Option<String>, now: Timestamp) -> Vec<NodeCondition> {
    let ready = match not_ready {
        None => ("Ready", "True", "KubeletReady", "kubelet is posting ready status".to_string()),
        Some(message) => ("Ready", "False", "KubeletNotReady", message),
    };
    let fine = [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ];
    let fine = fine.map(|(kind, reason, message)| (kind, "False", reason, message.to_string()));
    let mut conditions = Vec::new();
    for (kind, status, reason, message) in fine.into_iter().chain([ready]) {
        let same = old.iter().find(|condition| condition.type_ == kind && condition.status == status);
        conditions.push(NodeCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: same.and_then(|same| same.last_transition_time.clone()).or(Some(Time(now))),
        });
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_transition_times() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = node_conditions(&[], None, at(1));
        let second = node_conditions(&first, Some("no network".into()), at(2));
        let find = |kind: &str| second.iter().find(|condition| condition.type_ == kind).unwrap();
        assert_eq!(find("MemoryPressure").last_transition_time, Some(Time(at(1))));
        assert_eq!(find("Ready").last_transition_time, Some(Time(at(2))));
        assert_eq!((find("Ready").status.as_str(), find("Ready").message.as_deref()), ("False", Some("no network")));
    }

    #[test]
    fn status_patch_has_only_the_conditions_of_the_kubelet() {
        let theirs = NodeCondition { type_: "Theirs".into(), status: "True".into(), ..Default::default() };
        let conditions = Some(node_conditions(&[theirs], None, Timestamp::UNIX_EPOCH));
        let address = NodeAddress { type_: "InternalIP".into(), address: "10.0.0.1".into() };
        let patch = status_patch(&NodeStatus { conditions, addresses: Some(vec![address]), ..Default::default() });
        let kinds: Vec<_> = patch["status"]["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
        assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
        assert_eq!(patch["status"]["addresses"][0], json!({ "$patch": "replace" }));
    }
}
