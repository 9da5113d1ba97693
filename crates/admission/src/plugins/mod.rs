//! The admission plug-ins, and the table of all of them in upstream's order.

mod always;
mod always_pull_images;
mod certificates;
mod default_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
mod extended_resource_toleration;
mod feature_gated;
mod image_policy_webhook;
mod initial_resources;
mod initializers;
mod limit_pod_hard_anti_affinity_topology;
mod limit_range_checks;
mod limit_ranger;
mod limited_resources;
mod namespace_existence;
mod namespace_lifecycle;
mod node_declared_feature_validator;
mod node_restriction;
mod owner_references_permission_enforcement;
mod persistent_volume_claim_resize;
mod pod_node_selector;
mod pod_resize_validator;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
mod priority;
mod quota_evaluator;
mod resource_quota;
mod runtime_class;
mod security_context_deny;
mod service_account;
mod service_account_secrets;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;

pub use initial_resources::PLUGIN_NAME as INITIAL_RESOURCES;

use super::{PluginDescriptor, policies, webhooks};

/// All plug-ins, in the order in which they run.
pub const PLUGINS: &[PluginDescriptor] = &[
    always::ALWAYS_ADMIT,
    namespace_existence::NAMESPACE_AUTO_PROVISION,
    namespace_lifecycle::DESCRIPTOR,
    namespace_existence::NAMESPACE_EXISTS,
    limit_pod_hard_anti_affinity_topology::DESCRIPTOR,
    initial_resources::DESCRIPTOR,
    limit_ranger::DESCRIPTOR,
    service_account::DESCRIPTOR,
    node_restriction::DESCRIPTOR,
    taint_nodes_by_condition::DESCRIPTOR,
    always_pull_images::DESCRIPTOR,
    image_policy_webhook::DESCRIPTOR,
    pod_security::DESCRIPTOR,
    security_context_deny::DESCRIPTOR,
    pod_node_selector::DESCRIPTOR,
    priority::DESCRIPTOR,
    default_toleration_seconds::DESCRIPTOR,
    pod_toleration_restriction::DESCRIPTOR,
    event_rate_limit::DESCRIPTOR,
    extended_resource_toleration::DESCRIPTOR,
    default_class::DEFAULT_STORAGE_CLASS,
    storage_object_in_use_protection::DESCRIPTOR,
    feature_gated::POD_GROUP_PROTECTION,
    owner_references_permission_enforcement::DESCRIPTOR,
    persistent_volume_claim_resize::DESCRIPTOR,
    runtime_class::DESCRIPTOR,
    certificates::CERTIFICATE_APPROVAL,
    certificates::CERTIFICATE_SIGNING,
    certificates::CLUSTER_TRUST_BUNDLE_ATTEST,
    certificates::CERTIFICATE_SUBJECT_RESTRICTION,
    default_class::DEFAULT_INGRESS_CLASS,
    deny_service_external_ips::DESCRIPTOR,
    pod_topology_labels::DESCRIPTOR,
    feature_gated::POD_GROUP_WORKLOAD_EXISTS,
    node_declared_feature_validator::DESCRIPTOR,
    feature_gated::JOB_VALIDATION,
    pod_resize_validator::DESCRIPTOR,
    policies::MUTATING_ADMISSION_POLICY,
    webhooks::MUTATING_ADMISSION_WEBHOOK,
    initializers::DESCRIPTOR,
    policies::VALIDATING_ADMISSION_POLICY,
    webhooks::VALIDATING_ADMISSION_WEBHOOK,
    resource_quota::DESCRIPTOR,
    always::ALWAYS_DENY,
];
