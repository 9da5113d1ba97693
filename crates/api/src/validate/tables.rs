//! The one list of tables of rules, and of the functions that they call.

use super::{pod, rules::Functions};

macro_rules! rules {
    ($($file:literal)*) => {
        &[$(include_str!(concat!("../../schema/rules/", $file, ".txt"))),*]
    };
}

/// The tables.
pub(super) const RULES: &[&str] = rules! {
    "selector" "pod" "volume" "workload" "job" "service" "node" "config" "storage" "access" "admission" "custom"
    "certificates" "device" "scheduling" "flow" "warnings"
};

macro_rules! of_modules {
    ($($module:ident)*) => {
        &[$(super::$module::FUNCTIONS),*]
    };
}

/// The functions, by module.
pub(super) const FUNCTIONS: &[&[Functions]] = &[SUBJECTS, pod::FUNCTIONS];

const SUBJECTS: &[Functions] = of_modules! {
    admission api_service autoscaling certificates condition config coordination cron custom_resource custom_schema
    device endpoints flow_control ingress int_or_percent job job_policy job_status metadata migration net
    network node persistent_volume pod_certificate quota rbac resource_slice review scheduling selector service
    service_addresses storage volume_claim volume_source warnings webhook workload
};
