//! Objects that are decoded without `metadata.managedFields`: no informer reads them, and they are a good part of an object,
//! nested in maps.
//!
//! An adapter between the decoder of JSON and that of the object passes everything through but the key to be skipped.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, EnumAccess, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor},
};

/// An object without managed fields.
#[derive(Clone, Debug)]
pub(crate) struct UnmanagedObject<K>(pub(crate) K);

impl<'de, K: Deserialize<'de>> Deserialize<'de> for UnmanagedObject<K> {
    fn deserialize<D: Deserializer<'de>>(decoder: D) -> Result<Self, D::Error> {
        K::deserialize(SkippingDecoder { inner: decoder, level: ObjectLevel::Object }).map(Self)
    }
}

/// The map that is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectLevel {
    /// The object; its metadata are watched for.
    Object,
    /// The metadata, whose managed fields are skipped.
    Metadata,
}

/// Decodes a value, skipping managed fields.
struct SkippingDecoder<D> {
    inner: D,
    level: ObjectLevel,
}

/// Gives each method of a decoder to the inner one, with the visitor wrapped.
macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self $(, $argument: $type)*, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* SkippingVisitor { inner: visitor, level: self.level })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for SkippingDecoder<D> {
    type Error = D::Error;

    forward! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }
}

struct SkippingVisitor<V> {
    inner: V,
    level: ObjectLevel,
}

/// Gives each scalar to the inner visitor.
macro_rules! visit {
    ($($method:ident: $type:ty;)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for SkippingVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    visit! {
        visit_bool: bool;
        visit_i64: i64;
        visit_u64: u64;
        visit_f64: f64;
        visit_str: &str;
        visit_borrowed_str: &'de str;
        visit_string: String;
        visit_bytes: &[u8];
        visit_borrowed_bytes: &'de [u8];
        visit_byte_buf: Vec<u8>;
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, decoder: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(SkippingDecoder { inner: decoder, level: self.level })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, decoder: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(SkippingDecoder { inner: decoder, level: self.level })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(items)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(variant)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(SkippingMap { inner: entries, level: self.level, at_metadata: false })
    }
}

struct SkippingMap<A> {
    inner: A,
    level: ObjectLevel,
    /// The last key was that of the object's metadata.
    at_metadata: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SkippingMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, mut seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            let key = KeySeed { seed, level: self.level, lifetime: PhantomData };
            match self.inner.next_key_seed(key)? {
                None => return Ok(None),
                Some(KeyOutcome::Key { key, is_metadata }) => {
                    self.at_metadata = is_metadata;
                    return Ok(Some(key));
                }
                Some(KeyOutcome::Skip(unused)) => {
                    self.inner.next_value::<IgnoredAny>()?;
                    seed = unused;
                }
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.at_metadata {
            true => self.inner.next_value_seed(MetadataSeed(seed)),
            false => self.inner.next_value_seed(seed),
        }
    }
}

/// A key, or its seed back if the entry is to be skipped.
enum KeyOutcome<S, K> {
    Key { key: K, is_metadata: bool },
    Skip(S),
}

struct KeySeed<'de, S> {
    seed: S,
    level: ObjectLevel,
    lifetime: PhantomData<&'de ()>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<'de, S> {
    type Value = KeyOutcome<S, S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<Self::Value, D::Error> {
        decoder.deserialize_str(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for KeySeed<'de, S> {
    type Value = KeyOutcome<S, S::Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        if self.level == ObjectLevel::Metadata && name == "managedFields" {
            return Ok(KeyOutcome::Skip(self.seed));
        }
        let is_metadata = self.level == ObjectLevel::Object && name == "metadata";
        Ok(KeyOutcome::Key { key: self.seed.deserialize(name.into_deserializer())?, is_metadata })
    }
}

struct MetadataSeed<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for MetadataSeed<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(SkippingDecoder { inner: decoder, level: ObjectLevel::Metadata })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;

    const MANAGED: &str = r#"[{"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]"#;

    #[test]
    fn only_the_managed_fields_of_the_object_are_skipped() {
        let template = json!({"metadata": {"labels": {"managedFields": "label"},
            "managedFields": [{"manager": "template"}]}});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "managedFields": serde_json::from_str::<serde_json::Value>(MANAGED).unwrap(),
                "labels": {"metadata": "x"}, "generation": 3, "deletionTimestamp": null},
            "spec": {"replicas": 2, "selector": {}, "template": template}});
        let mut expected: Deployment = serde_json::from_value(object.clone()).unwrap();
        expected.metadata.managed_fields = None;
        let UnmanagedObject::<Deployment>(decoded) = serde_json::from_str(&object.to_string()).unwrap();
        assert_eq!(decoded, expected);
        assert!(expected.spec.unwrap().template.metadata.unwrap().managed_fields.is_some());
    }
}
