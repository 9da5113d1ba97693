//! Objects of any kind as the API server sent them: one list and watch serves all kinds, and each informer decodes its own.

use std::borrow::Cow;

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicResourceScope},
    runtime::{WatchStreamExt, watcher},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error};
use serde_json::value::RawValue;

use crate::unmanaged_object::UnmanagedObject;

/// An object that is not decoded yet, with the metadata that a watch needs: the resource version.
#[derive(Clone, Debug)]
pub(crate) struct RawObject {
    metadata: ObjectMeta,
    json: Box<RawValue>,
}

#[derive(Deserialize)]
struct VersionedObject<'a> {
    #[serde(borrow, default)]
    metadata: ResourceVersion<'a>,
}

#[derive(Default, Deserialize)]
struct ResourceVersion<'a> {
    #[serde(borrow, default, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(decoder: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(decoder)?;
        let versioned: VersionedObject<'_> = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let resource_version = versioned.metadata.resource_version.map(Cow::into_owned);
        Ok(Self { metadata: ObjectMeta { resource_version, ..ObjectMeta::default() }, json })
    }
}

impl RawObject {
    /// Decodes the object without its managed fields.
    fn decode<K: DeserializeOwned>(&self) -> serde_json::Result<K> {
        serde_json::from_str(self.json.get()).map(|UnmanagedObject(object)| object)
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Lists and watches the objects of a resource, in one namespace or in all.
pub(crate) fn watch_raw_objects(
    client: Client,
    namespace: Option<&str>,
    resource: &ApiResource,
    config: watcher::Config,
) -> BoxStream<'static, watcher::Result<watcher::Event<RawObject>>> {
    let api = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    watcher(api, config.streaming_lists()).default_backoff().boxed()
}

/// Decodes the object of an event.
pub(crate) fn decode_event<K: DeserializeOwned>(
    event: watcher::Event<RawObject>,
) -> serde_json::Result<watcher::Event<K>> {
    Ok(match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(object.decode()?),
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::Apply(object) => watcher::Event::Apply(object.decode()?),
        watcher::Event::Delete(object) => watcher::Event::Delete(object.decode()?),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const OBJECT: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": [{"manager": "m"}],
        "name": "a", "resourceVersion": "7"}, "data": {"managedFields": "b"}}"#;

    fn check(object: &RawObject) {
        assert_eq!(object.meta().resource_version.as_deref(), Some("7"));
        let map: ConfigMap = object.decode().unwrap();
        assert_eq!((map.metadata.name.as_deref(), &map.metadata.managed_fields), (Some("a"), &None));
        assert_eq!(map.data.unwrap()["managedFields"], "b");
    }

    #[test]
    fn events_and_lists_carry_objects_as_they_were_sent() {
        let line = format!(r#"{{"type": "ADDED", "object": {OBJECT}}}"#);
        let event: WatchEvent<RawObject> = serde_json::from_str(&line).unwrap();
        let WatchEvent::Added(object) = event else { panic!("{event:?}") };
        check(&object);
        let list = format!(
            r#"{{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {{"resourceVersion": "9"}}, "items": [{OBJECT}]}}"#
        );
        let list: ObjectList<RawObject> = serde_json::from_str(&list).unwrap();
        check(&list.items[0]);
    }

    #[test]
    fn object_of_another_type_is_an_error() {
        let object: RawObject = serde_json::from_str(r#"{"metadata": {"resourceVersion": "1"}, "data": [1]}"#).unwrap();
        assert!(decode_event::<ConfigMap>(watcher::Event::Apply(object)).is_err());
        assert!(serde_json::from_str::<RawObject>(r#"{"metadata": 1}"#).is_err());
    }
}
