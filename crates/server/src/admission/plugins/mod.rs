//! The plug-ins, a file each, and the table of all of them in upstream's order.

mod certificates;
mod claim_resize;
mod classes;
mod default_toleration_seconds;
mod gated;
mod limit_checks;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod pod_priority;
mod pod_security;
mod pod_topology_labels;
mod quota_limits;
mod resource_quota;
mod runtime_class;
mod service_account;
mod service_account_secrets;
mod storage_protection;
mod taint_nodes;

use super::Row;

/// All plug-ins. The order is the order in which they are asked.
pub const ROWS: &[Row] = &[
    namespace_lifecycle::ROW,
    limit_ranger::ROW,
    service_account::ROW,
    node_restriction::ROW,
    taint_nodes::ROW,
    pod_security::ROW,
    pod_priority::ROW,
    default_toleration_seconds::ROW,
    classes::STORAGE,
    storage_protection::ROW,
    gated::POD_GROUP_PROTECTION,
    claim_resize::ROW,
    runtime_class::ROW,
    certificates::APPROVAL,
    certificates::SIGNING,
    certificates::ATTEST,
    certificates::SUBJECT,
    classes::INGRESS,
    pod_topology_labels::ROW,
    gated::POD_GROUP_WORKLOAD_EXISTS,
    gated::JOB_VALIDATION,
    resource_quota::ROW,
];
