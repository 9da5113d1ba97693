//! The one list of tables of rules, and of the functions that they call.

use super::{
    admission, api_service, autoscaling, certificates, condition, config, coordination, cron, custom_resource, device,
    endpoints, event, flow_control, ingress, int_or_percent, job, job_policy, job_status, metadata, migration, net,
    network, node, persistent_volume, pod, pod_certificate, quota, rbac, resource_slice, review, rules::Functions,
    scheduling, selector, service, service_addresses, storage, volume_claim, volume_source, warnings, webhook,
    workload,
};

macro_rules! rules {
    ($($file:literal),* $(,)?) => {
        &[$(include_str!(concat!("../../schema/rules/", $file, ".txt"))),*]
    };
}

/// The tables.
pub(super) const RULES: &[&str] = rules![
    "selector",
    "pod",
    "volume",
    "workload",
    "job",
    "service",
    "node",
    "config",
    "storage",
    "access",
    "admission",
    "custom",
    "certificates",
    "device",
    "scheduling",
    "flow",
    "warnings",
];

/// The functions, by module.
pub(super) const FUNCTIONS: &[&[Functions]] = &[
    &[
        admission::FUNCTIONS,
        api_service::FUNCTIONS,
        autoscaling::FUNCTIONS,
        certificates::FUNCTIONS,
        condition::FUNCTIONS,
        config::FUNCTIONS,
        coordination::FUNCTIONS,
        cron::FUNCTIONS,
        custom_resource::FUNCTIONS,
        device::FUNCTIONS,
        endpoints::FUNCTIONS,
        event::FUNCTIONS,
        flow_control::FUNCTIONS,
        ingress::FUNCTIONS,
        int_or_percent::FUNCTIONS,
        job::FUNCTIONS,
        job_policy::FUNCTIONS,
        job_status::FUNCTIONS,
        metadata::FUNCTIONS,
        migration::FUNCTIONS,
        net::FUNCTIONS,
        network::FUNCTIONS,
        node::FUNCTIONS,
        persistent_volume::FUNCTIONS,
        pod_certificate::FUNCTIONS,
        quota::FUNCTIONS,
        rbac::FUNCTIONS,
        resource_slice::FUNCTIONS,
        review::FUNCTIONS,
        scheduling::FUNCTIONS,
        selector::FUNCTIONS,
        service::FUNCTIONS,
        service_addresses::FUNCTIONS,
        storage::FUNCTIONS,
        volume_claim::FUNCTIONS,
        volume_source::FUNCTIONS,
        warnings::FUNCTIONS,
        webhook::FUNCTIONS,
        workload::FUNCTIONS,
    ],
    pod::FUNCTIONS,
];
