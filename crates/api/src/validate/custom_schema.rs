//! The schemas of custom resources, as far as the tables cannot say what is right.

use super::{custom_value, prelude::*};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";

/// The faults of the schema of a version.
pub(super) fn check(root: &At, has_status: bool, e: &mut Errors) {
    if !root.exists() {
        return;
    }
    let kind = root.get("type");
    if has_status && !kind.is_empty() && kind.text() != "object" {
        let message =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        kind.invalid_text(e, message);
    }
    if root.get("nullable").is_true() {
        root.get("nullable").forbidden(e, "nullable cannot be true at the root");
    }
    let mut structural = Vec::new();
    if is_expressible(root.value) {
        rules::check("SchemaRoot", root, &mut structural);
    }
    structural.sort_by_key(ToString::to_string);
    if structural.is_empty() {
        defaults(root, e);
    }
    e.append(&mut structural);
    supported(root, Place { root: true, ..Place::default() }, e);
}

/// Parts that no structural schema has; where there are some, only they are told.
const INEXPRESSIBLE: &[&str] = &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

fn is_expressible(schema: &Value) -> bool {
    let Some(map) = schema.as_object() else { return true };
    let own =
        !INEXPRESSIBLE.iter().any(|field| map.contains_key(*field)) && !map.get("items").is_some_and(Value::is_array);
    let parts = |field: &str| map.get(field).into_iter();
    own && parts("items").chain(parts("additionalProperties")).chain(parts("not")).all(is_expressible)
        && ["allOf", "anyOf", "oneOf"]
            .iter()
            .flat_map(|list| parts(list))
            .flat_map(Value::as_array)
            .flatten()
            .all(is_expressible)
        && parts("properties").flat_map(Value::as_object).flat_map(|map| map.values()).all(is_expressible)
}

/// Of what metadata is, a schema may say more only of names.
pub fn only_names(at: &At, e: &mut Errors) {
    let mut fields = at.value.as_object().into_iter().flatten();
    let more = fields.any(|(name, _)| !matches!(name.as_str(), "type" | "properties" | "default" | "description"));
    let named = at.get("properties").entries().all(|(name, _)| name == "name" || name == "generateName");
    if more || !named {
        let message =
            "must not specify anything other than name and generateName, but metadata is implicitly specified";
        at.forbidden(e, message);
    }
}

/// Alternatives narrow, but for the one that stands for numbers and texts alike.
pub fn alternatives(at: &At, e: &mut Errors) {
    let both = serde_json::json!([{"type": "integer"}, {"type": "string"}]);
    for list in ["anyOf", "allOf", "oneOf"] {
        for (index, part) in at.get(list).items().enumerate() {
            let mixed = list == "anyOf" && at.get(list).value == &both;
            let first = list == "allOf" && index == 0 && part.get("anyOf").value == &both;
            if !mixed && !first {
                rules::check("NarrowingSchema", &part, e);
            }
        }
    }
    if at.get("not").exists() {
        rules::check("NarrowingSchema", &at.get("not"), e);
    }
}

/// A default has no fields that would be dropped at once, and is what its own schema says.
fn defaults(at: &At, e: &mut Errors) {
    let default = at.get("default");
    if default.exists() {
        if has_unknown(default.value, at.value) {
            default.invalid(e, "must not have unknown fields");
        }
        custom_value::check(&At::top(at.value), default.value, &default, e);
    }
    if at.get("items").value.is_object() {
        defaults(&at.get("items"), e);
    }
    at.get("properties").entries().for_each(|(_, property)| defaults(&property, e));
}

fn has_unknown(value: &Value, schema: &Value) -> bool {
    if schema.get(PRESERVE) == Some(&Value::Bool(true)) || !schema.is_object() {
        return false;
    }
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            let property = schema.get("properties").and_then(|properties| properties.get(key));
            match property.or(schema.get("additionalProperties")) {
                Some(Value::Bool(allowed)) => !allowed,
                Some(inner) => has_unknown(value, inner),
                None => true,
            }
        }),
        Value::Array(items) => {
            let inner = schema.get("items").unwrap_or(&Value::Null);
            items.iter().any(|item| has_unknown(item, inner))
        }
        _ => false,
    }
}

/// What a part of a schema inherits from the parts around it.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    root: bool,
    in_meta: bool,
    no_defaults: Option<&'a str>,
}

/// The faults of what the server does not support.
fn supported(at: &At, place: Place, e: &mut Errors) {
    if !at.value.is_object() {
        return;
    }
    if let Some(reason) = place.no_defaults.filter(|_| at.get("default").exists()) {
        at.get("default").forbidden(e, format!("must not be set {reason}"));
    }
    if place.in_meta && at.get(EMBEDDED).is_true() {
        at.get(EMBEDDED).forbidden(e, "must not be used inside of resource meta");
    }
    let inner = Place { root: false, ..place };
    let in_meta = place.in_meta.then_some("inside additionalProperties applying to object metadata");
    supported(&at.get("additionalProperties"), Place { no_defaults: in_meta.or(place.no_defaults), ..inner }, e);
    for (name, property) in at.get("properties").entries() {
        let resource = place.root || at.get(EMBEDDED).is_true();
        let meta = resource && ["metadata", "kind", "apiVersion"].contains(&name);
        let reason = format!("in top-level {name}");
        let no_defaults = if meta && place.root { Some(reason.as_str()) } else { place.no_defaults };
        supported(&property, Place { root: false, in_meta: place.in_meta || meta, no_defaults }, e);
    }
    supported(&at.get("not"), inner, e);
    for list in ["allOf", "oneOf", "anyOf"] {
        at.get(list).items().for_each(|part| supported(&part, inner, e));
    }
    supported(&at.get("items"), inner, e);
    rules::check("SupportedSchema", at, e);
}

/// A rule of several lines says in words what it is about.
pub fn explained_rule(rule: &At, e: &mut Errors) {
    if rule.text_of("rule").trim().contains(['\n', '\r']) && rule.text_of("message").trim().is_empty() {
        rule.get("message").required(e, "message must be specified if rule contains line breaks");
    }
}

/// What tells elements of a list apart is there in each of them, and is a scalar.
pub fn map_keys(list: &At, e: &mut Errors) {
    let (keys, items) = (list.get(LIST_KEYS), list.get("items"));
    if keys.is_empty() {
        keys.required(e, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.exists() {
        return items.required(e, "must have a schema if x-kubernetes-list-type is map");
    }
    let kind = items.get("type");
    if kind.text() != "object" {
        return kind.invalid_text(e, "must be object if parent array's x-kubernetes-list-type is map");
    }
    let properties = items.get("properties");
    let mut seen = Vec::new();
    for key in keys.texts() {
        let property = properties.key(key);
        if !property.exists() {
            keys.invalid(e, "entries must all be names of item properties");
        } else if ["array", "object"].contains(&property.get("type").text()) {
            let message = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            property.get("type").invalid_as(e, kind.text(), message);
        }
        if seen.contains(&key) {
            keys.invalid(e, "must not contain duplicate entries");
        }
        seen.push(key);
    }
    for key in keys.texts().filter(|key| properties.key(key).exists()) {
        let property = properties.key(key);
        let required = items.get("required").texts().any(|field| field == key);
        let why = "this property is in x-kubernetes-list-map-keys, so it";
        if !required && !property.get("default").exists() {
            property.get("default").required(e, format!("{why} must have a default or be a required property"));
        }
        if property.get("nullable").is_true() {
            property.get("nullable").forbidden(e, format!("{why} cannot be nullable"));
        }
    }
}
