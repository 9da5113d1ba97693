//! Names, references and times of pods and containers.

use k8s_openapi::{
    api::core::v1::{Container, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use crate::pod_spec::container_list_field;

/// Returns the pod's name.
pub fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the pod's namespace.
pub fn pod_namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// Returns the pod's uid.
pub fn pod_uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Formats a pod as `name_namespace(uid)`.
pub fn format_pod(pod: &Pod) -> String {
    format!("{}_{}({})", pod_name(pod), pod_namespace(pod), pod_uid(pod))
}

/// Returns the pod's object reference for events.
pub fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// Returns a container's object reference for events.
pub fn container_reference(pod: &Pod, container: &Container) -> ObjectReference {
    let list = container_list_field(pod, &container.name);
    ObjectReference { field_path: Some(format!("spec.{list}{{{}}}", container.name)), ..pod_reference(pod) }
}

/// Converts the runtime's nanoseconds to an API time.
pub fn time_from_nanos(nanoseconds: i64) -> Option<Time> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(nanoseconds.into()).ok()).flatten().map(Time)
}
