//! An object as the garbage collector sees it: who owns it, and whether it is being deleted.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::{
    Resource,
    api::{ApiResource, DynamicObject},
    core::DynamicResourceScope,
};
use serde::{Deserialize, Deserializer};

/// The part of any object that the collector reads; the rest is skipped while it is decoded.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OwnedObject {
    #[serde(deserialize_with = "decode_metadata")]
    pub(super) metadata: ObjectMeta,
}

impl Resource for OwnedObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(resource)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(resource)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(resource)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(resource)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn decode_metadata<'de, D: Deserializer<'de>>(decoder: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OwnedMetadata {
        deletion_timestamp: Option<Time>,
        finalizers: Option<Vec<String>>,
        name: Option<String>,
        namespace: Option<String>,
        owner_references: Option<Vec<OwnerReference>>,
        resource_version: Option<String>,
        uid: Option<String>,
    }
    let OwnedMetadata { deletion_timestamp, finalizers, name, namespace, owner_references, resource_version, uid } =
        OwnedMetadata::deserialize(decoder)?;
    Ok(ObjectMeta {
        deletion_timestamp,
        finalizers,
        name,
        namespace,
        owner_references,
        resource_version,
        uid,
        ..Default::default()
    })
}
