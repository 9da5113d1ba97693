//! Objects of any kind as the API server sent them: one list and watch serves all kinds, and each informer decodes its own.

use std::{borrow::Cow, fmt, io::Cursor};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicResourceScope},
    runtime::{WatchStreamExt, watcher},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

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
        let json = Box::<RawValue>::deserialize(RawDecoder(decoder))?;
        let versioned: VersionedObject<'_> = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let resource_version = versioned.metadata.resource_version.map(Cow::into_owned);
        Ok(Self { metadata: ObjectMeta { resource_version, ..ObjectMeta::default() }, json })
    }
}

/// Decodes a raw value from JSON, or from a buffered value: that of an event whose `type` follows its `object`.
struct RawDecoder<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for RawDecoder<D> {
    type Error = D::Error;

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, RawVisitor { name, visitor })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

struct RawVisitor<V> {
    name: &'static str,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for RawVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(formatter)
    }

    fn visit_map<A: MapAccess<'de>>(self, raw: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(raw)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, buffered: D) -> Result<V::Value, D::Error> {
        let text = Value::deserialize(buffered)?.to_string();
        let mut json = serde_json::Deserializer::from_reader(Cursor::new(text));
        json.deserialize_newtype_struct(self.name, self.visitor).map_err(D::Error::custom)
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
        for line in [
            format!(r#"{{"type": "ADDED", "object": {OBJECT}}}"#),
            format!(r#"{{"object": {OBJECT}, "type": "ADDED"}}"#),
        ] {
            let event: WatchEvent<RawObject> = serde_json::from_str(&line).unwrap();
            let WatchEvent::Added(object) = event else { panic!("{event:?}") };
            check(&object);
        }
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
