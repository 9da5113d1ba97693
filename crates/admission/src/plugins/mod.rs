//! The admission plug-ins, and the table of all of them in upstream's order.

mod always;
mod always_pull_images;
mod certificates;
mod claim_resize;
mod classes;
mod default_toleration_seconds;
mod event_rate_limit;
mod gated;
mod image_policy;
mod initial_resources;
mod initializers;
mod limit_checks;
mod limit_ranger;
mod namespace_existence;
mod namespace_lifecycle;
mod node_declared_features;
mod node_restriction;
mod owner_references;
mod pod_node_selector;
mod pod_priority;
mod pod_resize;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
mod quota_limits;
mod resource_quota;
mod runtime_class;
mod service_account;
mod service_account_secrets;
mod small_rules;
mod storage_protection;
mod taint_nodes;

pub use initial_resources::NAME as INITIAL_RESOURCES;

use super::{PluginDescriptor, policies, webhooks};

/// All plug-ins, in the order in which they run.
pub const ROWS: &[PluginDescriptor] = &[
    always::ADMIT,
    namespace_existence::AUTO_PROVISION,
    namespace_lifecycle::ROW,
    namespace_existence::EXISTS,
    small_rules::ANTI_AFFINITY,
    initial_resources::ROW,
    limit_ranger::ROW,
    service_account::ROW,
    node_restriction::ROW,
    taint_nodes::ROW,
    always_pull_images::ROW,
    image_policy::ROW,
    pod_security::ROW,
    small_rules::SECURITY_CONTEXT,
    pod_node_selector::ROW,
    pod_priority::ROW,
    default_toleration_seconds::ROW,
    pod_toleration_restriction::ROW,
    event_rate_limit::ROW,
    small_rules::EXTENDED_RESOURCES,
    classes::STORAGE,
    storage_protection::ROW,
    gated::POD_GROUP_PROTECTION,
    owner_references::ROW,
    claim_resize::ROW,
    runtime_class::ROW,
    certificates::APPROVAL,
    certificates::SIGNING,
    certificates::ATTEST,
    certificates::SUBJECT,
    classes::INGRESS,
    small_rules::EXTERNAL_IPS,
    pod_topology_labels::ROW,
    gated::POD_GROUP_WORKLOAD_EXISTS,
    node_declared_features::ROW,
    gated::JOB_VALIDATION,
    pod_resize::ROW,
    policies::MUTATING,
    webhooks::MUTATING,
    initializers::ROW,
    policies::VALIDATING,
    webhooks::VALIDATING,
    resource_quota::ROW,
    always::DENY,
];
