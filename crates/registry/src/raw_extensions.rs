//! Raw extension fields in the bytes that the client sent.
//!
//! Upstream stores `RawExtension` fields byte for byte: a reformatted value counts as a change, which is rejected for
//! immutable fields; patch and apply write compact JSON. Documents therefore keep the original bytes on one line, and
//! updates compare them.

use api::{
    Value, json, meta,
    schema::{FieldType, Resource, schema},
};
use apiserver_core::{body::RequestBody, document::RawExtensions};

/// The raw fields of a request body whose bytes differ from compact JSON.
pub fn raw_extensions_in_body(resource: &Resource, body: &RequestBody) -> RawExtensions {
    match body.content_type.as_str() {
        "" | "application/json" => raw_extensions_in_document(resource, &body.body),
        _ => RawExtensions::default(),
    }
}

/// The raw fields of a document whose bytes differ from compact JSON.
pub fn raw_extensions_in_document(resource: &Resource, document: &[u8]) -> RawExtensions {
    let unusual = |name: &'static str| {
        let text = json::raw_field(document, name)?;
        let text = text.replace(['\n', '\r', '\t'], " ");
        (json::compact_json(&text) != text).then_some((name, text))
    };
    raw_fields(resource).filter_map(unusual).collect()
}

/// Whether objects of a resource have raw fields.
pub fn has_raw_fields(resource: &Resource) -> bool {
    raw_fields(resource).next().is_some()
}

/// The current object with raw fields replaced wherever their bytes changed; `None` if none did.
pub fn with_changed_raw_fields(current: &Value, before: &RawExtensions, now: &RawExtensions) -> Option<Value> {
    let said = |words: &RawExtensions, name: &str| {
        words.iter().find(|(known, _)| *known == name).map(|(_, text)| text.clone())
    };
    let names = before.iter().chain(now).map(|(name, _)| *name);
    let differs: Vec<_> = names.filter(|name| said(before, name) != said(now, name)).collect();
    (!differs.is_empty()).then(|| {
        let mut other = current.clone();
        for name in differs {
            meta::object_mut(&mut other).insert(name.to_owned(), said(before, name).unwrap_or_default().into());
        }
        other
    })
}

fn raw_fields(resource: &Resource) -> impl Iterator<Item = &'static str> {
    let built_in = resource.custom_schema.is_none().then(|| &schema().get(resource.ty).fields);
    built_in.into_iter().flatten().filter(|field| field.ty == FieldType::Raw).map(|field| field.name)
}

#[cfg(test)]
mod tests {
    use apiserver_core::loopback;
    use serde_json::json;

    use super::*;

    #[test]
    fn reformatted_raw_field_counts_as_changed() {
        let resource = loopback::find_resource("apps", "v1", "controllerrevisions").unwrap();
        assert!(has_raw_fields(resource) && !has_raw_fields(loopback::find_resource("", "v1", "configmaps").unwrap()));
        let words = |text: &str| raw_extensions_in_document(resource, text.as_bytes());
        assert_eq!(words(r#"{"data":{"a":1}, "revision": 1}"#), RawExtensions::default());
        let spaced = words("{\"data\":{\n\"a\": 1}}");
        assert_eq!(spaced, [("data", "{ \"a\": 1}".to_owned())]);
        let current = json!({"data": {"a": 1}, "revision": 1});
        assert_eq!(with_changed_raw_fields(&current, &spaced, &spaced), None);
        for (before, now) in [(&spaced, &RawExtensions::default()), (&RawExtensions::default(), &spaced)] {
            assert_ne!(with_changed_raw_fields(&current, before, now).unwrap()["data"], current["data"]);
        }
    }
}
