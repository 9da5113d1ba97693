//! The view of a pod that the controllers' informer keeps: the fields that controllers read, in the shape of the API.
//!
//! A pod as an object takes several times the memory, and there are tens of thousands. A view cannot be written: code that changes
//! a pod patches it or reads it first.

mod known_text;
mod spec;
mod status;

use std::borrow::Cow;

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

pub(crate) use self::{
    spec::{ContainerView, PodSpecView},
    status::{ContainerStatusView, ContainerTermination, PodConditionView, PodStatusView},
};

/// A pod as controllers see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodView {
    #[serde(deserialize_with = "decode_metadata")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Option<PodSpecView>,
    pub(crate) status: Option<PodStatusView>,
}

impl Resource for PodView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Decodes metadata without the managed fields, which are most of it and which no controller reads.
fn decode_metadata<'de, D: Deserializer<'de>>(decoder: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct ViewMetadata {
        annotations: Option<std::collections::BTreeMap<String, String>>,
        creation_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        deletion_timestamp: Option<Time>,
        finalizers: Option<Vec<String>>,
        generation: Option<i64>,
        labels: Option<std::collections::BTreeMap<String, String>>,
        name: Option<String>,
        namespace: Option<String>,
        owner_references: Option<Vec<OwnerReference>>,
        resource_version: Option<String>,
        uid: Option<String>,
    }
    let metadata = Option::<ViewMetadata>::deserialize(decoder)?.unwrap_or_default();
    Ok(ObjectMeta {
        annotations: metadata.annotations,
        creation_timestamp: metadata.creation_timestamp,
        deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
        deletion_timestamp: metadata.deletion_timestamp,
        finalizers: metadata.finalizers,
        generation: metadata.generation,
        labels: metadata.labels,
        name: metadata.name,
        namespace: metadata.namespace,
        owner_references: metadata.owner_references,
        resource_version: metadata.resource_version,
        uid: metadata.uid,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn view_has_what_controllers_read_and_drops_the_rest() {
        let view: PodView = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "uid": "u", "labels": {"app": "web"}, "generateName": "p-",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "env": [{"name": "E"}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}, {"name": "s", "secret": {}}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}],
                "containerStatuses": [{"name": "c", "restartCount": 2, "state": {"terminated": {"exitCode": 3}}}]}
        }))
        .unwrap();
        assert_eq!((view.metadata.name.as_deref(), &view.metadata.managed_fields), (Some("p"), &None));
        let (spec, status) = (view.spec.unwrap(), view.status.unwrap());
        assert_eq!(spec.node_name.as_deref(), Some("n"));
        let names: Vec<_> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        assert_eq!(names, ["v"]);
        assert_eq!(status.conditions.as_ref().unwrap()[0].type_, "Ready");
        let container = &status.container_statuses.as_ref().unwrap()[0];
        assert_eq!((container.restart_count, container.termination().unwrap().exit_code), (2, 3));
    }

    #[test]
    fn view_is_small() {
        assert!(size_of::<PodView>() * 2 < size_of::<Pod>(), "{} of {}", size_of::<PodView>(), size_of::<Pod>());
    }
}
