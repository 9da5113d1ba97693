//! Facts about pod specs that several stages need.

use k8s_openapi::api::core::v1::{Container, PodSpec};

/// Whether an init container is a sidecar (restart policy `Always`).
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the restart policy, `Always` by default.
pub fn restart_policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}
