//! Creation and deletion of pods for a controller, with its events.

use client::{ApiErrorExt, EventRecorder};
use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use crate::controller_ref::new_controller_ref;

/// Maximum length of an object name.
const MAX_NAME_LENGTH: usize = 253;

/// Creates and deletes pods and records events about their controller.
#[derive(Clone)]
pub(crate) struct PodControl {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
}

impl PodControl {
    /// Creates a pod in `about`'s namespace and records `SuccessfulCreate` or `FailedCreate` about it. A failure in a
    /// terminating namespace is not recorded.
    pub(crate) async fn create_pod(&self, pod: &Pod, about: &ObjectReference) -> Result<Pod, kube::Error> {
        let created = self.pod_api(about).create(&PostParams::default(), pod).await;
        match &created {
            Ok(pod) => {
                let message = format!("Created pod: {}", pod.name_any());
                self.recorder.record_normal(about.clone(), "SuccessfulCreate", message);
            }
            Err(error) if error.is_namespace_terminating() => {}
            Err(error) => {
                let message = format!("Error creating: {}", error.server_message());
                self.recorder.record_warning(about.clone(), "FailedCreate", message);
            }
        }
        created
    }

    /// Deletes a pod in `about`'s namespace and records `SuccessfulDelete` or `FailedDelete` about it. An absent pod is
    /// an error without an event.
    pub(crate) async fn delete_pod(&self, name: &str, about: &ObjectReference) -> Result<(), kube::Error> {
        let deleted = self.pod_api(about).delete(name, &DeleteParams::default()).await;
        match &deleted {
            Ok(_) => {
                self.recorder.record_normal(about.clone(), "SuccessfulDelete", format!("Deleted pod: {name}"));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let message = format!("Error deleting: {}", error.server_message());
                self.recorder.record_warning(about.clone(), "FailedDelete", message);
            }
        }
        deleted.map(drop)
    }

    fn pod_api(&self, about: &ObjectReference) -> Api<Pod> {
        Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or(""))
    }
}

/// Builds a pod from a template, with a generated name, controlled by `owner`.
pub(crate) fn pod_from_template<K: Resource<DynamicType = ()>>(template: &PodTemplateSpec, owner: &K) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(pod_name_prefix(owner.meta().name.as_deref().unwrap_or(""))),
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: Some(vec![new_controller_ref(owner)]),
        ..Default::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// Returns the prefix of generated pod names: the controller's name and a dash, if that is a valid prefix.
fn pod_name_prefix(controller: &str) -> String {
    if controller.len() < MAX_NAME_LENGTH { format!("{controller}-") } else { controller.into() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_has_the_metadata_of_its_template() {
        let template = serde_json::from_value(json!({"metadata": {"name": "ignored", "labels": {"app": "web"},
            "annotations": {"a": "b"}, "finalizers": ["x/y"]}, "spec": {"containers": []}}))
        .unwrap();
        let owner: ReplicaSet = serde_json::from_value(json!({"metadata": {"name": "web", "uid": "u"}})).unwrap();
        let pod = serde_json::to_value(pod_from_template(&template, &owner)).unwrap();
        assert_eq!(
            pod["metadata"],
            json!({"generateName": "web-", "labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["x/y"],
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true}]})
        );
        assert_eq!(pod_name_prefix(&"a".repeat(252)).len(), 253);
        assert_eq!(pod_name_prefix(&"a".repeat(253)).len(), 253);
    }
}
