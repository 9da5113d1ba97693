//! How the objects of each kind are printed: the one list of printers.

use std::cmp::Ordering;

use super::{
    access, admission, autoscaling, config, event, flow, job, network, node, pod, resource_claim, row::Row, scheduling,
    storage, workload,
};
use crate::Value;

/// One column.
pub(super) struct Column {
    pub name: &'static str,
    pub ty: &'static str,
    pub format: &'static str,
    /// Clients show what is above 0 only in wide output.
    pub priority: u8,
}

/// How the objects of one kind are printed.
pub(super) struct Printer {
    pub group: &'static str,
    pub kind: &'static str,
    pub columns: &'static [Column],
    pub cells: fn(&Row) -> Vec<Value>,
    /// The group-version that `cells` reads, where versions differ in form.
    pub reads: Option<(&'static str, &'static str)>,
    /// Marks on the row.
    pub conditions: Option<fn(&Value) -> Option<Value>>,
    /// The order of rows, where it is not the order of the list.
    pub order: Option<fn(&Value, &Value) -> Ordering>,
}

pub(super) const NAME: Column = Column { format: "name", ..text("Name") };
pub(super) const AGE: Column = text("Age");

/// A column of text.
pub(super) const fn text(name: &'static str) -> Column {
    Column { name, ty: "string", format: "", priority: 0 }
}

/// A column of text for wide output.
pub(super) const fn wide(name: &'static str) -> Column {
    Column { priority: 1, ..text(name) }
}

/// A column of numbers.
pub(super) const fn integer(name: &'static str) -> Column {
    Column { ty: "integer", ..text(name) }
}

/// A column of truth values.
pub(super) const fn boolean(name: &'static str) -> Column {
    Column { ty: "boolean", ..text(name) }
}

const fn print(
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    cells: fn(&Row) -> Vec<Value>,
) -> Printer {
    Printer { group, kind, columns, cells, reads: None, conditions: None, order: None }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const EVENT: Printer = Printer { reads: Some(("", "v1")), ..print("", "Event", event::COLUMNS, event::cells) };

/// All printers.
pub(super) const PRINTERS: &[Printer] = &[
    Printer { conditions: Some(pod::conditions), ..print("", "Pod", pod::COLUMNS, pod::cells) },
    print("", "PodTemplate", workload::POD_TEMPLATE, workload::pod_template),
    print("", "ReplicationController", workload::REPLICAS, workload::replication_controller),
    print("", "Service", network::SERVICE, network::service),
    print("", "Endpoints", network::ENDPOINTS, network::endpoints),
    print("", "Node", node::COLUMNS, node::cells),
    print("", "Namespace", config::NAMESPACE, config::namespace),
    print("", "Secret", config::SECRET, config::secret),
    print("", "ConfigMap", config::CONFIG_MAP, config::config_map),
    print("", "ServiceAccount", config::NAMED, config::named),
    print("", "ResourceQuota", config::RESOURCE_QUOTA, config::resource_quota),
    print("", "ComponentStatus", config::COMPONENT_STATUS, config::component_status),
    print("", "Status", config::STATUS, config::status),
    print("", "PersistentVolume", storage::VOLUME, storage::volume),
    print("", "PersistentVolumeClaim", storage::CLAIM, storage::claim),
    EVENT,
    Printer { group: "events.k8s.io", ..EVENT },
    print("apps", "Deployment", workload::DEPLOYMENT, workload::deployment),
    print("apps", "ReplicaSet", workload::REPLICAS, workload::replica_set),
    print("apps", "StatefulSet", workload::STATEFUL_SET, workload::stateful_set),
    print("apps", "DaemonSet", workload::DAEMON_SET, workload::daemon_set),
    print("apps", "ControllerRevision", workload::CONTROLLER_REVISION, workload::controller_revision),
    print("batch", "Job", job::JOB, job::job),
    print("batch", "CronJob", job::CRON_JOB, job::cron_job),
    Printer {
        reads: Some(("autoscaling", "v2")),
        ..print("autoscaling", "HorizontalPodAutoscaler", autoscaling::AUTOSCALER, autoscaling::autoscaler)
    },
    print("autoscaling", "Scale", autoscaling::SCALE, autoscaling::scale),
    print("policy", "PodDisruptionBudget", autoscaling::DISRUPTION_BUDGET, autoscaling::disruption_budget),
    print(NETWORKING, "Ingress", network::INGRESS, network::ingress),
    print(NETWORKING, "IngressClass", network::INGRESS_CLASS, network::ingress_class),
    print(NETWORKING, "NetworkPolicy", network::POLICY, network::policy),
    print(NETWORKING, "ServiceCIDR", network::SERVICE_CIDR, network::service_cidr),
    print(NETWORKING, "IPAddress", network::IP_ADDRESS, network::ip_address),
    print("discovery.k8s.io", "EndpointSlice", network::ENDPOINT_SLICE, network::endpoint_slice),
    print("node.k8s.io", "RuntimeClass", node::RUNTIME_CLASS, node::runtime_class),
    print("coordination.k8s.io", "Lease", scheduling::LEASE, scheduling::lease),
    print("coordination.k8s.io", "LeaseCandidate", scheduling::LEASE_CANDIDATE, scheduling::lease_candidate),
    print("scheduling.k8s.io", "PriorityClass", scheduling::PRIORITY_CLASS, scheduling::priority_class),
    print("scheduling.k8s.io", "Workload", config::NAMED, config::named),
    print("scheduling.k8s.io", "PodGroup", scheduling::POD_GROUP, scheduling::pod_group),
    print(RBAC, "RoleBinding", access::BINDING, access::binding),
    print(RBAC, "ClusterRoleBinding", access::BINDING, access::binding),
    print(CERTIFICATES, "CertificateSigningRequest", access::SIGNING_REQUEST, access::signing_request),
    print(CERTIFICATES, "ClusterTrustBundle", access::TRUST_BUNDLE, access::trust_bundle),
    print(CERTIFICATES, "PodCertificateRequest", access::POD_CERTIFICATE, access::pod_certificate),
    print(STORAGE, "StorageClass", storage::CLASS, storage::class),
    print(STORAGE, "VolumeAttributesClass", storage::ATTRIBUTES_CLASS, storage::attributes_class),
    print(STORAGE, "VolumeAttachment", storage::ATTACHMENT, storage::attachment),
    print(STORAGE, "CSINode", storage::CSI_NODE, storage::csi_node),
    print(STORAGE, "CSIDriver", storage::CSI_DRIVER, storage::csi_driver),
    print("storagemigration.k8s.io", "StorageVersionMigration", storage::MIGRATION, storage::migration),
    print("internal.apiserver.k8s.io", "StorageVersion", storage::STORAGE_VERSION, storage::storage_version),
    print(ADMISSION, "MutatingWebhookConfiguration", admission::WEBHOOKS, admission::webhooks),
    print(ADMISSION, "ValidatingWebhookConfiguration", admission::WEBHOOKS, admission::webhooks),
    print(ADMISSION, "ValidatingAdmissionPolicy", admission::VALIDATING, admission::validating),
    print(ADMISSION, "ValidatingAdmissionPolicyBinding", admission::BINDING, admission::binding),
    print(ADMISSION, "MutatingAdmissionPolicy", admission::MUTATING, admission::mutating),
    print(ADMISSION, "MutatingAdmissionPolicyBinding", admission::BINDING, admission::binding),
    print("apiregistration.k8s.io", "APIService", admission::API_SERVICE, admission::api_service),
    Printer { order: Some(flow::order), ..print(FLOW, "FlowSchema", flow::SCHEMA, flow::schema) },
    print(FLOW, "PriorityLevelConfiguration", flow::LEVEL, flow::level),
    print(RESOURCE, "DeviceClass", config::NAMED, config::named),
    print(RESOURCE, "ResourceClaim", resource_claim::CLAIM, resource_claim::claim),
    print(RESOURCE, "ResourceClaimTemplate", config::NAMED, config::named),
    print(RESOURCE, "ResourceSlice", resource_claim::SLICE, resource_claim::slice),
    print(RESOURCE, "DeviceTaintRule", resource_claim::TAINT, resource_claim::taint),
    print(RESOURCE, "ResourcePoolStatusRequest", resource_claim::POOL_STATUS, resource_claim::pool_status),
];

const GENERIC: Printer = print("", "", &[NAME, Column { ty: "date", ..text("Created At") }], |row| {
    vec![row.name(), row.text(&["metadata", "creationTimestamp"]).into()]
});

/// The printer of a kind.
pub(super) fn of(group: &str, kind: &str) -> &'static Printer {
    PRINTERS.iter().find(|printer| printer.group == group && printer.kind == kind).unwrap_or(&GENERIC)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_printer_fills_its_columns_even_of_an_empty_object() {
        let object = json!({"metadata": {"name": "x"}});
        let row = Row { object: &object, now: Timestamp::UNIX_EPOCH };
        for printer in PRINTERS {
            let cells = (printer.cells)(&row).len();
            // Upstream's rows of addresses have an age without a column.
            let extra = usize::from(printer.kind == "IPAddress");
            assert_eq!(cells, printer.columns.len() + extra, "{}", printer.kind);
        }
    }
}
