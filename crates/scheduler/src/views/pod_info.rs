//! The scheduler's view of a pod: what is its own, and the class that it shares with equal pods.
//!
//! The view is made when a pod enters the informer; the pod itself is not kept. Invariant: two pods of one class differ in
//! name, uid and status only, so filters and scores that read the class alone have equal results for both.

use std::sync::{Arc, LazyLock};

use client::CachedView;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodCondition, PodSpec, PodStatus};

use crate::{
    intern::{InternPool, intern},
    views::affinity_terms::PodAffinityTerms,
    views::host_ports::HostPort,
    views::labels::LabelSet,
    views::node_selector::{PreferredNodeAffinity, RequiredNodeAffinity},
    views::pod_requests::PodRequests,
    views::pod_volumes::PodVolume,
    views::resource_claims::PodClaimEntry,
    views::spread_constraints::SpreadConstraint,
    views::taints::PodToleration,
};

/// Value of `spec.schedulerName` where it is empty.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// Everything that pods of one controller have in common.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct PodClass {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's labels.
    pub labels: LabelSet,
    /// The name of its scheduler.
    pub scheduler_name: Arc<str>,
    /// The pod's priority.
    pub priority: i32,
    /// Whether the pod preempts no others.
    pub preempts_never: bool,
    /// The pod's requests.
    pub requests: PodRequests,
    /// Ports of the node that the pod occupies.
    pub host_ports: Box<[HostPort]>,
    /// Required node affinity and node selector.
    pub node_affinity: RequiredNodeAffinity,
    /// Preferred node affinity; `None` if the pod has none.
    pub preferred_node_affinity: Option<PreferredNodeAffinity>,
    /// Inter-pod affinity.
    pub affinity: PodAffinityTerms,
    /// The pod's tolerations.
    pub tolerations: Box<[PodToleration]>,
    /// Constraints on the pod's distribution.
    pub spread_constraints: Box<[SpreadConstraint]>,
    /// Volumes with a say in placement.
    pub volumes: Box<[PodVolume]>,
    /// Images of containers and init containers, normalized.
    pub images: Box<[Arc<str>]>,
    /// Names of the scheduling gates.
    pub scheduling_gates: Box<[Arc<str>]>,
    /// Claims of dynamic resources.
    pub resource_claims: Box<[PodClaimEntry]>,
    /// Features that the node must declare.
    pub required_features: Box<[&'static str]>,
    /// Requests for extended resources by container, for resources that devices provide.
    pub extended_requests: Box<[ContainerRequest]>,
    /// The pod group (`spec.schedulingGroup`) that the pod belongs to.
    pub pod_group: Option<Arc<str>>,
    /// The controller: API version, kind and name.
    pub controller: Option<(Arc<str>, Arc<str>, Arc<str>)>,
}

/// A container's request for an extended resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerRequest {
    /// The container.
    pub container: Arc<str>,
    /// The position of the container, init containers first.
    pub container_index: usize,
    /// The position of the resource among all that the container requests, by name.
    pub resource_index: usize,
    /// Whether it is an init container that ends before the others start.
    pub is_init: bool,
    /// The resource.
    pub resource: Arc<str>,
    /// The amount.
    pub amount: i64,
}

impl ContainerRequest {
    /// The name of the device request that stands for this one.
    pub fn device_request_name(&self) -> String {
        format!("container-{}-request-{}", self.container_index, self.resource_index)
    }
}

/// The PodScheduled or DisruptionTarget condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionView {
    /// `True`, `False` or `Unknown`.
    pub status: Box<str>,
    /// The reason.
    pub reason: Box<str>,
    /// The message.
    pub message: Box<str>,
    /// The generation that the condition is about.
    pub observed_generation: i64,
    /// The time of the last change of the status.
    pub last_transition_time: Option<Timestamp>,
}

/// Claims by the name of the pod's entry.
type ClaimStatuses = Box<[(Arc<str>, Option<Arc<str>>)]>;

/// A pod.
#[derive(Debug, Default)]
pub struct PodInfo {
    /// The class that the pod shares with equal pods.
    pub class: Arc<PodClass>,
    /// The class without volumes and claims, which often are of one pod only: what reads neither shares results by it.
    pub placement_class: Arc<PodClass>,
    /// The pod's name.
    pub name: Box<str>,
    /// The pod's uid.
    pub uid: Arc<str>,
    resource_version: Box<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// The node that the pod is bound to, or assumed on.
    pub node_name: Option<Arc<str>>,
    /// The node that preemption or an earlier cycle chose.
    pub nominated_node_name: Option<Arc<str>>,
    /// Whether the pod is being deleted.
    pub is_deleting: bool,
    /// Whether the pod has ended.
    pub is_terminal: bool,
    /// The time when the kubelet accepted the pod.
    pub start_time: Option<Timestamp>,
    /// The PodScheduled condition.
    pub scheduled_condition: Option<Box<ConditionView>>,
    /// The DisruptionTarget condition.
    pub disruption_condition: Option<Box<ConditionView>>,
    /// Generated claims by the name of the pod's entry; no claim name means that none is needed.
    pub claim_statuses: ClaimStatuses,
    /// The claim that was generated for extended resources.
    pub extended_claim: Option<Arc<str>>,
    /// The whole object, kept for extenders only.
    pub object: Option<Arc<Pod>>,
}

impl PodInfo {
    /// Reads a pod.
    pub fn from_pod(pod: &Pod) -> Self {
        static CLASSES: LazyLock<InternPool<PodClass>> = LazyLock::new(InternPool::default);
        let (empty_spec, empty_status) = (PodSpec::default(), PodStatus::default());
        let (meta, spec) = (&pod.metadata, pod.spec.as_ref().unwrap_or(&empty_spec));
        let status = pod.status.as_ref().unwrap_or(&empty_status);
        let text = |text: Option<&String>| text.map_or("", String::as_str).into();
        let some = |text: Option<&String>| text.filter(|text| !text.is_empty()).map(|text| intern(text));
        let class = CLASSES.intern(PodClass::from_pod(pod, spec));
        let placement_class = match class.volumes.is_empty() && class.resource_claims.is_empty() {
            true => class.clone(),
            false => {
                let without = PodClass::from_pod(pod, spec);
                CLASSES.intern(PodClass { volumes: Box::default(), resource_claims: Box::default(), ..without })
            }
        };
        Self {
            class,
            placement_class,
            name: text(meta.name.as_ref()),
            uid: meta.uid.as_deref().unwrap_or("").into(),
            resource_version: text(meta.resource_version.as_ref()),
            generation: meta.generation.unwrap_or(0),
            node_name: some(spec.node_name.as_ref()),
            nominated_node_name: some(status.nominated_node_name.as_ref()),
            is_deleting: meta.deletion_timestamp.is_some(),
            is_terminal: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            start_time: status.start_time.as_ref().map(|time| time.0),
            scheduled_condition: condition(status, "PodScheduled"),
            disruption_condition: condition(status, "DisruptionTarget"),
            claim_statuses: claim_statuses(status),
            extended_claim: status
                .extended_resource_claim_status
                .as_ref()
                .map(|status| intern(&status.resource_claim_name)),
            object: None,
        }
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.class.namespace, self.name)
    }

    /// The pod's priority.
    pub fn priority(&self) -> i32 {
        self.class.priority
    }

    /// Returns the view of the pod on a node, as it will be once it is bound.
    pub fn with_node_name(&self, node_name: &Arc<str>) -> Self {
        Self { node_name: Some(node_name.clone()), ..self.clone_view() }
    }

    fn clone_view(&self) -> Self {
        Self {
            class: self.class.clone(),
            placement_class: self.placement_class.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            node_name: self.node_name.clone(),
            nominated_node_name: self.nominated_node_name.clone(),
            scheduled_condition: self.scheduled_condition.clone(),
            disruption_condition: self.disruption_condition.clone(),
            claim_statuses: self.claim_statuses.clone(),
            extended_claim: self.extended_claim.clone(),
            object: self.object.clone(),
            ..*self
        }
    }

    /// A reference to the pod for events.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(self.class.namespace.to_string()),
            name: Some(self.name.to_string()),
            uid: Some(self.uid.to_string()),
            resource_version: Some(self.resource_version.to_string()),
            field_path: None,
        }
    }
}

impl CachedView for PodInfo {
    type Object = Pod;

    fn from_object(object: Pod) -> Self {
        let mut view = Self::from_pod(&object);
        if crate::keeps_objects() {
            view.object = Some(Arc::new(object));
        }
        view
    }

    fn namespace_and_name(&self) -> (&str, &str) {
        (&self.class.namespace, &self.name)
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl PodClass {
    fn from_pod(pod: &Pod, spec: &PodSpec) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
        let scheduler_name = spec.scheduler_name.as_deref().filter(|name| !name.is_empty());
        let preferred = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred = preferred.and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_deref());
        let controllers = pod.metadata.owner_references.iter().flatten();
        let controller = controllers.into_iter().find(|owner| owner.controller == Some(true));
        let labels = LabelSet::from_map(pod.metadata.labels.as_ref());
        Self {
            namespace: intern(namespace),
            scheduler_name: intern(scheduler_name.unwrap_or(DEFAULT_SCHEDULER_NAME)),
            priority: spec.priority.unwrap_or(0),
            preempts_never: spec.preemption_policy.as_deref() == Some("Never"),
            requests: PodRequests::from_pod(pod),
            host_ports: HostPort::of_pod(spec),
            node_affinity: RequiredNodeAffinity::from_spec(spec),
            preferred_node_affinity: preferred.map(PreferredNodeAffinity::from_terms),
            affinity: PodAffinityTerms::from_spec(spec, namespace),
            tolerations: spec.tolerations.iter().flatten().filter_map(PodToleration::from_toleration).collect(),
            spread_constraints: SpreadConstraint::of_pod(spec, &labels),
            labels,
            volumes: spec.volumes.iter().flatten().filter_map(PodVolume::from_volume).collect(),
            images: images(spec),
            scheduling_gates: spec.scheduling_gates.iter().flatten().map(|gate| intern(&gate.name)).collect(),
            resource_claims: PodClaimEntry::of_pod(spec),
            required_features: required_features(spec),
            extended_requests: extended_requests(spec),
            pod_group: pod_group(spec),
            controller: controller.map(|owner| (intern(&owner.api_version), intern(&owner.kind), intern(&owner.name))),
        }
    }
}

/// Returns the name of the pod's group.
fn pod_group(spec: &PodSpec) -> Option<Arc<str>> {
    spec.scheduling_group.as_ref()?.pod_group_name.as_deref().map(intern)
}

/// Returns the images of init containers and containers with their tags.
fn images(spec: &PodSpec) -> Box<[Arc<str>]> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.map(|container| intern(&normalize_image_name(container.image.as_deref().unwrap_or("")))).collect()
}

/// Adds the tag `latest` to an image name without tag.
pub fn normalize_image_name(name: &str) -> String {
    let has_tag = match (name.rfind(':'), name.rfind('/')) {
        (Some(colon), Some(slash)) => colon > slash,
        (colon, _) => colon.is_some(),
    };
    if has_tag { name.into() } else { format!("{name}:latest") }
}

/// Returns the names of the features that only some nodes have and the pod needs.
fn required_features(spec: &PodSpec) -> Box<[&'static str]> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
    let shares_network = spec.host_network == Some(true) && spec.host_users == Some(false);
    let features = [
        restarts_all.then_some("RestartAllContainersOnContainerExits"),
        shares_network.then_some("UserNamespacesHostNetworkSupport"),
    ];
    features.into_iter().flatten().collect()
}

fn extended_requests(spec: &PodSpec) -> Box<[ContainerRequest]> {
    let init = spec.init_containers.iter().flatten().map(|container| {
        let is_init = container.restart_policy.as_deref() != Some("Always");
        (container, is_init)
    });
    let containers = init.chain(spec.containers.iter().map(|container| (container, false)));
    let requests = containers.enumerate().flat_map(|(container_index, (container, is_init))| {
        let requests = container.resources.iter().flat_map(|resources| resources.requests.iter().flatten());
        requests.enumerate().filter_map(move |(resource_index, (name, text))| {
            let amount = api::quantity::Quantity::parse(&text.0)?.value();
            let is_extended = crate::views::resources::is_extended_resource(name)
                || name.starts_with("deviceclass.resource.kubernetes.io/");
            is_extended.then(|| ContainerRequest {
                container: intern(&container.name),
                container_index,
                resource_index,
                is_init,
                resource: intern(name),
                amount,
            })
        })
    });
    requests.collect()
}

fn condition(status: &PodStatus, type_: &str) -> Option<Box<ConditionView>> {
    let view = |condition: &PodCondition| {
        Box::new(ConditionView {
            status: condition.status.as_str().into(),
            reason: condition.reason.as_deref().unwrap_or("").into(),
            message: condition.message.as_deref().unwrap_or("").into(),
            observed_generation: condition.observed_generation.unwrap_or(0),
            last_transition_time: condition.last_transition_time.as_ref().map(|time| time.0),
        })
    };
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_).map(view)
}

fn claim_statuses(status: &PodStatus) -> ClaimStatuses {
    let statuses = status.resource_claim_statuses.iter().flatten();
    statuses.map(|status| (intern(&status.name), status.resource_claim_name.as_deref().map(intern))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_pods_share_their_class() {
        let pod = |name: &str, app: &str| {
            let pod = json!({"metadata": {"name": name, "uid": name, "labels": {"app": app}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
            PodInfo::from_pod(&serde_json::from_value(pod).unwrap())
        };
        let (first, second, other) = (pod("a", "web"), pod("b", "web"), pod("c", "db"));
        assert!(Arc::ptr_eq(&first.class, &second.class) && !Arc::ptr_eq(&first.class, &other.class));
        assert!(Arc::ptr_eq(&first.class, &first.placement_class));
        assert_eq!(first.class.images.as_ref(), [Arc::from("nginx:latest")]);
        assert_eq!(first.class.scheduler_name.as_ref(), DEFAULT_SCHEDULER_NAME);
    }

    #[test]
    fn pods_with_claims_of_their_own_share_the_placement_class() {
        let pod = |claim: &str| {
            let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
            let pod = json!({"metadata": {"name": claim}, "spec": {"containers": [], "volumes": [volume]}});
            PodInfo::from_pod(&serde_json::from_value(pod).unwrap())
        };
        let (first, second) = (pod("a"), pod("b"));
        assert!(!Arc::ptr_eq(&first.class, &second.class));
        assert!(Arc::ptr_eq(&first.placement_class, &second.placement_class));
    }

    #[test]
    fn image_names_get_a_tag() {
        for (name, expected) in [("a", "a:latest"), ("r:5000/a", "r:5000/a:latest"), ("r/a:1", "r/a:1")] {
            assert_eq!(normalize_image_name(name), expected);
        }
    }
}
