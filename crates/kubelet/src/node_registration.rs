//! Registers the Node object, reports its status and renews its lease.
//!
//! The status is written on change and every five minutes; the lease is renewed every ten seconds. Readiness of the
//! runtime is checked at the same interval; while it is not ready, soon at first and then every second.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
            NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    context::KubeletContext,
    eviction_thresholds::NodePressure,
    machine_info::{MachineInfo, go_architecture},
    resources::NodeResources,
    status_writer::has_status_code,
};

/// The first and the longest pause while the node is not ready.
const NOT_READY_INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Features of this kubelet that the scheduler and the API server ask for, with upstream's names.
const DECLARED_FEATURES: [&str; 1] = ["RestartAllContainersOnContainerExits"];

/// Identity and dependencies of the node.
pub struct NodeRegistration {
    /// The kubelet.
    pub kubelet: Arc<KubeletContext>,
    /// Port of the kubelet API.
    pub port: u16,
    /// Hardware and system information.
    pub machine: MachineInfo,
}

/// Facts in the status of the node beside its hardware.
#[derive(Clone, Debug, Default, PartialEq)]
struct NodeReport {
    /// Why the node is not ready.
    not_ready: Option<String>,
    pressure: BTreeSet<NodePressure>,
    runtime_handlers: Vec<NodeRuntimeHandler>,
    features: Option<NodeFeatures>,
}

impl NodeRegistration {
    /// Registers the node and reports until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let nodes: Api<Node> = Api::all(self.kubelet.client.clone());
        let leases: Api<Lease> = Api::namespaced(self.kubelet.client.clone(), "kube-node-lease");
        let settings = &self.kubelet.settings;
        let mut pressure = self.kubelet.evictions.watch_pressure();
        let mut last_report: Option<(NodeReport, Instant)> = None;
        let mut node = None;
        let mut not_ready_pause = NOT_READY_INTERVALS.0;
        loop {
            // The borrowed value must not be held across the wait.
            let current = pressure.borrow_and_update().clone();
            let report = self.node_report(current).await;
            let due = last_report
                .as_ref()
                .is_none_or(|(old, at)| *old != report || at.elapsed() >= settings.node_status_report_interval);
            if due {
                match self.sync_node_status(&nodes, &report).await {
                    Ok(written) => {
                        self.record_changes(last_report.as_ref().map(|(old, _)| old), &report);
                        node = Some(written);
                        last_report = Some((report.clone(), Instant::now()));
                    }
                    Err(error) => {
                        let name = &self.kubelet.node_name;
                        tracing::warn!(%error, node = name, "kubelet: node status not written, retrying")
                    }
                }
            }
            if let Err(error) = self.renew_lease(&leases, node.as_ref()).await {
                tracing::warn!(%error, node = self.kubelet.node_name, "kubelet: node lease not renewed, retrying");
            }
            let pause = if report.not_ready.is_some() || last_report.is_none() {
                let pause = not_ready_pause;
                not_ready_pause = (pause * 2).min(NOT_READY_INTERVALS.1);
                pause
            } else {
                not_ready_pause = NOT_READY_INTERVALS.0;
                settings.lease_duration / 4
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Ok(()) = pressure.changed() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Records events about conditions that changed.
    fn record_changes(&self, old: Option<&NodeReport>, new: &NodeReport) {
        let record = |reason: &str| {
            let message = format!("Node {} status is now: {reason}", self.kubelet.node_name);
            self.kubelet.recorder.record_normal(self.kubelet.node_reference(), reason, message);
        };
        let Some(old) = old else {
            self.kubelet.recorder.record_normal(self.kubelet.node_reference(), "Starting", "Starting kubelet.");
            return;
        };
        if old.not_ready.is_some() != new.not_ready.is_some() {
            record(if new.not_ready.is_some() { "NodeNotReady" } else { "NodeReady" });
        }
        for (pressure, _, fine, short) in PRESSURES {
            if old.pressure.contains(&pressure) != new.pressure.contains(&pressure) {
                record(if new.pressure.contains(&pressure) { short.0 } else { fine.0 });
            }
        }
    }

    /// Asks the runtime for its state.
    async fn node_report(&self, pressure: BTreeSet<NodePressure>) -> NodeReport {
        match self.kubelet.cri.fetch_readiness().await {
            Ok(readiness) => {
                let network = readiness.network.map(|why| format!("container runtime network not ready: {why}"));
                let runtime = readiness.runtime.map(|why| format!("container runtime not ready: {why}"));
                let handlers = readiness.handlers.iter();
                let features = handlers.map(|one| (one.name.clone(), one.features.clone().unwrap_or_default()));
                *self.kubelet.handler_features.lock().unwrap_or_else(PoisonError::into_inner) = features.collect();
                let both: Vec<_> = [runtime, network].into_iter().flatten().collect();
                NodeReport {
                    not_ready: (!both.is_empty()).then(|| both.join(", ")),
                    pressure,
                    runtime_handlers: readiness.handlers.into_iter().map(node_runtime_handler).collect(),
                    features: readiness.features.map(|features| NodeFeatures {
                        supplemental_groups_policy: Some(features.supplemental_groups_policy),
                    }),
                }
            }
            Err(error) => {
                let not_ready = Some(format!("container runtime is down: {}", error.message()));
                NodeReport { not_ready, pressure, ..Default::default() }
            }
        }
    }

    /// Creates or adopts the Node and writes its status.
    async fn sync_node_status(&self, nodes: &Api<Node>, report: &NodeReport) -> kube::Result<Node> {
        let settings = &self.kubelet.settings;
        let images = self.kubelet.cri.list_images().await.unwrap_or_default();
        let Some(existing) = nodes.get_opt(&self.kubelet.node_name).await? else {
            if !settings.register_node {
                return Err(kube::Error::Api(Box::new(
                    kube::core::Status::failure("the node is not registered", "NotFound").with_code(404),
                )));
            }
            let status = self.node_status(&[], report, images);
            let taints = Some(settings.register_with_taints.clone()).filter(|taints| !taints.is_empty());
            let spec = NodeSpec { taints, provider_id: settings.provider_id.clone(), ..Default::default() };
            let node = Node { metadata: self.node_metadata(), spec: Some(spec), status: Some(status.clone()) };
            let created = nodes.create(&PostParams::default(), &node).await?;
            let has_status = created.status.as_ref().is_some_and(|status| status.conditions.is_some());
            return if has_status { Ok(created) } else { self.patch_status(nodes, &status).await };
        };
        self.reconcile_existing_node(nodes, &existing).await?;
        let old = existing.status.and_then(|status| status.conditions).unwrap_or_default();
        self.patch_status(nodes, &self.node_status(&old, report, images)).await
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
        nodes.patch(&self.kubelet.node_name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
    }

    async fn patch_status(&self, nodes: &Api<Node>, status: &NodeStatus) -> kube::Result<Node> {
        nodes
            .patch_status(&self.kubelet.node_name, &PatchParams::default(), &Patch::Strategic(status_patch(status)))
            .await
    }

    fn node_metadata(&self) -> ObjectMeta {
        let labels = [
            ("kubernetes.io/hostname", self.kubelet.node_name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", go_architecture()),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", go_architecture()),
        ];
        let annotations = [("volumes.kubernetes.io/controller-managed-attach-detach".into(), "true".into())];
        let mut labels: BTreeMap<String, String> =
            labels.map(|(key, value)| (key.to_string(), value.to_string())).into();
        labels.extend(self.kubelet.settings.node_labels.clone());
        ObjectMeta {
            name: Some(self.kubelet.node_name.clone()),
            labels: Some(labels),
            annotations: Some(annotations.into()),
            ..Default::default()
        }
    }

    fn node_status(
        &self,
        old: &[NodeCondition],
        report: &NodeReport,
        images: Vec<runtime::cri::types::Image>,
    ) -> NodeStatus {
        let name = self.kubelet.node_name.clone();
        let most = usize::try_from(self.kubelet.settings.node_status_max_images).unwrap_or(usize::MAX);
        let address = |type_: &str, address: String| NodeAddress { type_: type_.into(), address };
        NodeStatus {
            addresses: Some(vec![address("InternalIP", self.kubelet.node_ip.to_string()), address("Hostname", name)]),
            capacity: Some(resource_list(&self.machine.capacity())),
            allocatable: Some(resource_list(&self.machine.allocatable())),
            conditions: Some(node_conditions(old, report, Timestamp::now())),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: self.port.into() }),
            }),
            images: Some(node_images(images, most)),
            node_info: Some(self.machine.info.clone()),
            runtime_handlers: Some(report.runtime_handlers.clone()).filter(|handlers| !handlers.is_empty()),
            features: report.features.clone(),
            declared_features: Some(DECLARED_FEATURES.map(String::from).into()),
            ..Default::default()
        }
    }

    async fn renew_lease(&self, leases: &Api<Lease>, node: Option<&Node>) -> kube::Result<()> {
        let now = MicroTime(Timestamp::now());
        let (name, duration) = (&self.kubelet.node_name, self.kubelet.settings.lease_duration.as_secs());
        let patch = json!({ "spec": { "renewTime": now, "holderIdentity": name, "leaseDurationSeconds": duration } });
        match leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
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
            name: self.kubelet.node_name.clone(),
            uid,
            ..Default::default()
        });
        Lease {
            metadata: ObjectMeta {
                name: Some(self.kubelet.node_name.clone()),
                owner_references: owner.map(|owner| vec![owner]),
                ..Default::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.kubelet.node_name.clone()),
                lease_duration_seconds: i32::try_from(self.kubelet.settings.lease_duration.as_secs()).ok(),
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

fn node_runtime_handler(handler: runtime::cri::types::RuntimeHandler) -> NodeRuntimeHandler {
    let features = handler.features.unwrap_or_default();
    NodeRuntimeHandler {
        name: Some(handler.name),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
            user_namespaces: Some(features.user_namespaces),
        }),
    }
}

fn node_images(mut images: Vec<runtime::cri::types::Image>, most: usize) -> Vec<ContainerImage> {
    images.sort_by_key(|image| std::cmp::Reverse(image.size));
    images.truncate(most);
    let convert = |image: runtime::cri::types::Image| ContainerImage {
        names: Some(image.repo_digests.into_iter().chain(image.repo_tags).take(5).collect()),
        size_bytes: Some(image.size as i64),
    };
    images.into_iter().map(convert).collect()
}

/// Reason and message of a condition.
type ConditionWords = (&'static str, &'static str);

/// Pressure conditions: type, and their words when they are false and when they are true.
const PRESSURES: [(NodePressure, &str, ConditionWords, ConditionWords); 3] = [
    (
        NodePressure::Memory,
        "MemoryPressure",
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ),
    (
        NodePressure::Disk,
        "DiskPressure",
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ),
    (
        NodePressure::Pid,
        "PIDPressure",
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ),
];

/// Computes the kubelet's conditions.
fn node_conditions(old: &[NodeCondition], report: &NodeReport, now: Timestamp) -> Vec<NodeCondition> {
    let ready = match &report.not_ready {
        None => ("Ready", "True", "KubeletReady", "kubelet is posting ready status".to_string()),
        Some(message) => ("Ready", "False", "KubeletNotReady", message.clone()),
    };
    let fine = PRESSURES.map(|(pressure, kind, fine, short)| {
        let (status, words) = if report.pressure.contains(&pressure) { ("True", short) } else { ("False", fine) };
        (kind, status, words.0, words.1.to_string())
    });
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
        let not_ready = Some("no network".to_string());
        let report = NodeReport { not_ready, pressure: [NodePressure::Disk].into(), ..Default::default() };
        let first = node_conditions(&[], &NodeReport::default(), at(1));
        let second = node_conditions(&first, &report, at(2));
        let find = |kind: &str| second.iter().find(|condition| condition.type_ == kind).unwrap();
        assert_eq!(find("MemoryPressure").last_transition_time, Some(Time(at(1))));
        assert_eq!(find("Ready").last_transition_time, Some(Time(at(2))));
        assert_eq!(find("DiskPressure").reason.as_deref(), Some("KubeletHasDiskPressure"));
        assert_eq!((find("Ready").status.as_str(), find("Ready").message.as_deref()), ("False", Some("no network")));
    }

    #[test]
    fn status_patch_has_only_the_conditions_of_the_kubelet() {
        let theirs = NodeCondition { type_: "Theirs".into(), status: "True".into(), ..Default::default() };
        let conditions = Some(node_conditions(&[theirs], &NodeReport::default(), Timestamp::UNIX_EPOCH));
        let address = NodeAddress { type_: "InternalIP".into(), address: "10.0.0.1".into() };
        let patch = status_patch(&NodeStatus { conditions, addresses: Some(vec![address]), ..Default::default() });
        let kinds: Vec<_> = patch["status"]["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
        assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
        assert_eq!(patch["status"]["addresses"][0], json!({ "$patch": "replace" }));
    }
}
