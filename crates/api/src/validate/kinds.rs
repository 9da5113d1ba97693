//! The one list of kinds: the form of their names, how their metadata is looked at, and their rules.

use super::{
    Errors, admission, api_service, at::At, autoscaling, certificates, config, coordination, custom_resource, device,
    endpoints, event, flow_control, ingress, job, job_status, migration, names, namespace, net, network, node,
    persistent_volume, pod, policy, quota, rbac, resource_slice, review, scheduling, service, storage, volume_claim,
    webhook, workload, workload_group, workload_status,
};
use crate::schema::Resource;

/// The rules of a new or changed object.
pub(super) type Check = fn(new: &At, old: Option<&At>, e: &mut Errors);
/// The rules of a change.
pub(super) type Change = fn(new: &At, old: &At, e: &mut Errors);
/// The rules of an object alone.
pub(super) type Alone = fn(new: &At, e: &mut Errors);

/// How the metadata of a changed object is looked at.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Meta {
    /// By what changed.
    Update,
    /// By what changed, and then as that of a new object.
    Both,
    /// As that of a new object.
    Whole,
    /// As that of a new object, and after all by what changed.
    WholeFirst,
    /// Only as that of any object.
    Generic,
    /// Not at all: what is asked is not stored.
    None,
}

/// How objects of a kind are checked.
pub(super) struct Kind {
    group: &'static str,
    kind: &'static str,
    pub name: fn(&str) -> Vec<String>,
    pub meta: Meta,
    /// Before metadata.
    pub first: Option<Alone>,
    /// On a change, before the rules of any object.
    pub change: Option<Change>,
    pub check: Check,
    /// On a change, at the end.
    pub last: Option<Change>,
    pub status: Option<Change>,
}

const fn kind(group: &'static str, kind: &'static str, check: Check) -> Kind {
    Kind {
        group,
        kind,
        name: names::subdomain,
        meta: Meta::Update,
        first: None,
        change: None,
        check,
        last: None,
        status: None,
    }
}

impl Kind {
    const fn named(self, name: fn(&str) -> Vec<String>) -> Self {
        Self { name, ..self }
    }

    const fn meta(self, meta: Meta) -> Self {
        Self { meta, ..self }
    }

    const fn first(self, first: Alone) -> Self {
        Self { first: Some(first), ..self }
    }

    const fn change(self, change: Change) -> Self {
        Self { change: Some(change), ..self }
    }

    const fn last(self, last: Change) -> Self {
        Self { last: Some(last), ..self }
    }

    const fn status(self, status: Change) -> Self {
        Self { status: Some(status), ..self }
    }
}

fn nothing(_: &At, _: Option<&At>, _: &mut Errors) {}

static OTHER: Kind = kind("", "", nothing);

const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

/// All kinds that have rules of their own.
static KINDS: &[Kind] = &[
    kind("", "Pod", pod::validate).meta(Meta::Both).status(pod::status),
    kind("", "PodTemplate", pod::pod_template),
    kind("", "Binding", pod::binding).meta(Meta::None),
    kind("", "Service", service::validate).named(names::label).status(service::status),
    kind("", "Endpoints", endpoints::validate).meta(Meta::Both),
    kind("", "Node", node::validate).status(node::status),
    kind("", "Namespace", namespace::validate).named(names::label).status(namespace::status),
    kind("", "ResourceQuota", quota::validate).status(quota::status),
    kind("", "LimitRange", quota::limits).meta(Meta::Whole),
    kind("", "ConfigMap", config::config_map).meta(Meta::Both).change(config::config_map_change),
    kind("", "Secret", config::secret).meta(Meta::Both).change(config::secret_change),
    kind("", "ServiceAccount", nothing).meta(Meta::Both),
    kind("", "PersistentVolume", persistent_volume::validate).meta(Meta::Whole),
    kind("", "PersistentVolumeClaim", volume_claim::validate).meta(Meta::Both).status(volume_claim::status),
    kind("", "ReplicationController", workload::replication_controller).status(workload_status::replicas),
    kind("", "Event", event::core).meta(Meta::Generic),
    kind("events.k8s.io", "Event", event::events).first(event::before_metadata),
    kind("apps", "Deployment", workload::deployment).status(workload_status::deployment),
    kind("apps", "ReplicaSet", workload::replica_set).status(workload_status::replicas),
    kind("apps", "DaemonSet", workload::daemon_set).status(workload_status::daemon_set),
    kind("apps", "StatefulSet", workload::stateful_set).named(names::label).status(workload_status::stateful_set),
    kind("apps", "ControllerRevision", workload::revision).meta(Meta::Both),
    kind("batch", "Job", job::validate).status(job_status::validate),
    kind("batch", "CronJob", job::cron_job),
    kind("autoscaling", "HorizontalPodAutoscaler", autoscaling::validate).status(workload_status::autoscaler),
    kind("autoscaling", "Scale", autoscaling::scale),
    kind("policy", "PodDisruptionBudget", policy::validate)
        .meta(Meta::Generic)
        .status(workload_status::disruption_budget),
    kind(NETWORKING, "Ingress", ingress::validate).meta(Meta::Both).status(ingress::status),
    kind(NETWORKING, "IngressClass", ingress::class).meta(Meta::Both).change(ingress::class_change),
    kind(NETWORKING, "NetworkPolicy", network::policy),
    kind(NETWORKING, "IPAddress", network::address).named(net::canonical_ip),
    kind(NETWORKING, "ServiceCIDR", network::service_cidr),
    kind(RBAC, "Role", rbac::role).named(names::path_segment).meta(Meta::WholeFirst),
    kind(RBAC, "ClusterRole", rbac::cluster_role).named(names::path_segment).meta(Meta::WholeFirst),
    kind(RBAC, "RoleBinding", rbac::binding).named(names::path_segment).meta(Meta::WholeFirst).last(rbac::role_kept),
    kind(RBAC, "ClusterRoleBinding", rbac::cluster_binding)
        .named(names::path_segment)
        .meta(Meta::WholeFirst)
        .last(rbac::role_kept),
    kind(STORAGE, "StorageClass", storage::class),
    kind(STORAGE, "VolumeAttachment", storage::attachment).meta(Meta::Whole).status(storage::attachment_change),
    kind(STORAGE, "CSINode", storage::csi_node).meta(Meta::Whole),
    kind(STORAGE, "CSIDriver", storage::csi_driver),
    kind(STORAGE, "CSIStorageCapacity", storage::capacity),
    kind(STORAGE, "VolumeAttributesClass", storage::attributes_class)
        .meta(Meta::Both)
        .change(storage::attributes_change),
    kind("certificates.k8s.io", "CertificateSigningRequest", certificates::request)
        .named(certificates::any_name)
        .meta(Meta::WholeFirst)
        .status(certificates::status),
    kind("certificates.k8s.io", "ClusterTrustBundle", certificates::bundle)
        .named(certificates::any_name)
        .meta(Meta::WholeFirst),
    kind("coordination.k8s.io", "Lease", coordination::lease),
    kind("coordination.k8s.io", "LeaseCandidate", coordination::candidate).named(names::config_key),
    kind("discovery.k8s.io", "EndpointSlice", endpoints::slice).meta(Meta::Whole),
    kind(FLOW, "FlowSchema", flow_control::schema).meta(Meta::Whole).status(flow_control::status),
    kind(FLOW, "PriorityLevelConfiguration", flow_control::level).meta(Meta::Whole).status(flow_control::status),
    kind("scheduling.k8s.io", "PriorityClass", scheduling::priority_class),
    kind("scheduling.k8s.io", "Workload", workload_group::workload),
    kind("scheduling.k8s.io", "PodGroup", workload_group::pod_group),
    kind("node.k8s.io", "RuntimeClass", scheduling::runtime_class),
    kind(RESOURCE, "DeviceClass", device::class),
    kind(RESOURCE, "ResourceClaim", device::claim).status(device::claim_status),
    kind(RESOURCE, "ResourceClaimTemplate", device::claim_template),
    kind(RESOURCE, "ResourceSlice", resource_slice::validate),
    kind(ADMISSION, "ValidatingWebhookConfiguration", webhook::webhooks).meta(Meta::Whole),
    kind(ADMISSION, "MutatingWebhookConfiguration", webhook::webhooks).meta(Meta::Whole),
    kind(ADMISSION, "ValidatingAdmissionPolicy", admission::policy).meta(Meta::Whole),
    kind(ADMISSION, "ValidatingAdmissionPolicyBinding", admission::binding).meta(Meta::Whole),
    kind(ADMISSION, "MutatingAdmissionPolicy", admission::mutating_policy).meta(Meta::Whole),
    kind(ADMISSION, "MutatingAdmissionPolicyBinding", admission::mutating_binding).meta(Meta::Whole),
    kind("apiextensions.k8s.io", "CustomResourceDefinition", custom_resource::validate)
        .named(certificates::any_name)
        .first(custom_resource::name)
        .status(custom_resource::status),
    kind("apiregistration.k8s.io", "APIService", api_service::validate)
        .named(names::path_segment)
        .meta(Meta::Both)
        .first(api_service::name)
        .status(api_service::status),
    kind(AUTHORIZATION, "SubjectAccessReview", review::subject).meta(Meta::None),
    kind(AUTHORIZATION, "SelfSubjectAccessReview", review::own).meta(Meta::None),
    kind(AUTHORIZATION, "LocalSubjectAccessReview", review::local).meta(Meta::None),
    kind("authentication.k8s.io", "TokenRequest", review::token).meta(Meta::None),
    kind("storagemigration.k8s.io", "StorageVersionMigration", migration::validate).meta(Meta::WholeFirst),
    kind("internal.apiserver.k8s.io", "StorageVersion", migration::storage_version)
        .named(migration::storage_version_name),
];

/// How objects of a resource are checked.
pub(super) fn of(resource: &Resource) -> &'static Kind {
    KINDS.iter().find(|kind| kind.group == resource.group && kind.kind == resource.kind).unwrap_or(&OTHER)
}
