//! Conversion of CustomResourceDefinitions from `v1beta1`, in which kube-apiserver still stores them: there, fields
//! shared by all versions stand beside the versions.

use crate::{Map, Value};

/// Converts from `v1beta1` to `v1`.
pub(super) fn from_v1beta1(map: &mut Map) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let only = spec.remove("version");
    let shared = [
        ("schema", spec.remove("validation")),
        ("subresources", spec.remove("subresources")),
        ("additionalPrinterColumns", spec.remove("additionalPrinterColumns")),
    ];
    let versions = spec.entry("versions").or_insert_with(|| Value::Array(Vec::new()));
    if let (Value::Array(versions), Some(name)) = (&mut *versions, only)
        && versions.is_empty()
    {
        versions.push(serde_json::json!({"name": name, "served": true, "storage": true}));
    }
    for version in versions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        for (name, value) in &shared {
            if let Some(value) = value {
                version.entry(*name).or_insert_with(|| value.clone());
            }
        }
        rename_json_paths(version);
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        nest_webhook(conversion);
    }
}

/// Renames `JSONPath` to `jsonPath`.
fn rename_json_paths(version: &mut Map) {
    let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove("JSONPath") {
            column.insert("jsonPath".into(), path);
        }
    }
}

/// Moves the webhook fields into an object.
fn nest_webhook(conversion: &mut Map) {
    let mut webhook = Map::new();
    for (from, to) in
        [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
    {
        if let Some(value) = conversion.remove(from) {
            webhook.insert(to.into(), value);
        }
    }
    if !webhook.is_empty() {
        conversion.insert("webhook".into(), Value::Object(webhook));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shared_fields_are_copied_to_each_version() {
        let mut beta = json!({"spec": {"version": "v1", "validation": {"openAPIV3Schema": {"type": "object"}},
            "additionalPrinterColumns": [{"name": "a", "JSONPath": ".a"}], "versions": [{"name": "v1"}, {"name": "v2"}],
            "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "u"}}}});
        from_v1beta1(beta.as_object_mut().unwrap());
        let version = |name: &str| {
            json!({"name": name, "schema": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": [{"name": "a", "jsonPath": ".a"}]})
        };
        let want = json!({"spec": {"versions": [version("v1"), version("v2")],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "u"}}}}});
        assert_eq!(beta, want);
        let mut alone = json!({"spec": {"version": "v1"}});
        from_v1beta1(alone.as_object_mut().unwrap());
        assert_eq!(alone["spec"]["versions"], json!([{"name": "v1", "served": true, "storage": true}]));
    }
}
