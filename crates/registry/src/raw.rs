//! Raw JSON in the words that it came in.
//!
//! Upstream keeps what a client writes into a raw field byte for byte: the same value in other words is a change to it, which
//! is refused where the field must not change, and what patches or applies is written without spaces. So documents keep
//! such words, on one line, and an update is compared by them.

use api::{
    Value, json, meta,
    schema::{FieldType, Resource, schema},
};
use apiserver_core::{body::RequestBody, document::RawExtensions};

/// The words of an object's raw fields that are not what the server itself would write.
pub fn words(resource: &Resource, input: &RequestBody) -> RawExtensions {
    match input.content_type.as_str() {
        "" | "application/json" => stored(resource, &input.body),
        _ => RawExtensions::default(),
    }
}

/// The same of a document.
pub fn stored(resource: &Resource, document: &[u8]) -> RawExtensions {
    let unusual = |name: &'static str| {
        let text = json::field(document, name)?;
        let text = text.replace(['\n', '\r', '\t'], " ");
        (json::compact(&text) != text).then_some((name, text))
    };
    fields(resource).filter_map(unusual).collect()
}

/// Whether objects of a resource have raw fields.
pub fn has_any(resource: &Resource) -> bool {
    fields(resource).next().is_some()
}

/// What an object is compared with: where words differ the value does too.
pub fn compared(current: &Value, before: &RawExtensions, now: &RawExtensions) -> Option<Value> {
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

fn fields(resource: &Resource) -> impl Iterator<Item = &'static str> {
    let built_in = resource.custom_schema.is_none().then(|| &schema().get(resource.ty).fields);
    built_in.into_iter().flatten().filter(|field| field.ty == FieldType::Raw).map(|field| field.name)
}

#[cfg(test)]
mod tests {
    use apiserver_core::loopback;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_value_in_other_words_is_another() {
        let resource = loopback::find_resource("apps", "v1", "controllerrevisions").unwrap();
        assert!(has_any(resource) && !has_any(loopback::find_resource("", "v1", "configmaps").unwrap()));
        let words = |text: &str| stored(resource, text.as_bytes());
        assert_eq!(words(r#"{"data":{"a":1}, "revision": 1}"#), RawExtensions::default());
        let spaced = words("{\"data\":{\n\"a\": 1}}");
        assert_eq!(spaced, [("data", "{ \"a\": 1}".to_owned())]);
        let current = json!({"data": {"a": 1}, "revision": 1});
        assert_eq!(compared(&current, &spaced, &spaced), None);
        for (before, now) in [(&spaced, &RawExtensions::default()), (&RawExtensions::default(), &spaced)] {
            assert_ne!(compared(&current, before, now).unwrap()["data"], current["data"]);
        }
    }
}
