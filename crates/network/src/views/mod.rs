//! Compact views of objects: the fields that the network reads, so that tens of thousands of them stay small.

mod endpoint_slice_view;
mod node_view;
mod pod_view;
mod service_view;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

pub(crate) use endpoint_slice_view::{EndpointSliceView, EndpointView};
pub(crate) use node_view::NodeView;
pub(crate) use pod_view::PodView;
pub(crate) use service_view::{ServicePortView, ServiceView};

/// Implements `kube::Resource` for a view with a field `metadata`.
macro_rules! impl_view_resource {
    ($view:ty, $kind:literal, $group:literal, $version:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $view {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use impl_view_resource;

/// Reads metadata without what no view needs: annotations, managed fields, owners, finalizers.
pub(crate) fn compact_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let full = ObjectMeta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: full.name,
        namespace: full.namespace,
        uid: full.uid,
        resource_version: full.resource_version,
        labels: full.labels,
        deletion_timestamp: full.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// The namespace and name of an object, as a key.
pub(crate) fn object_key(metadata: &ObjectMeta) -> String {
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
