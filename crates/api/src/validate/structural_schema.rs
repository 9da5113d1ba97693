//! Validation of CRD schemas beyond the rule tables.

use super::{prelude::*, schema_value};

const PRESERVE_UNKNOWN_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED_RESOURCE: &str = "x-kubernetes-embedded-resource";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";

/// Validates the schema of a version.
pub(super) fn validate_schema(root: &FieldCursor, has_status: bool, e: &mut ErrorList) {
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
    if is_structural(root.value) {
        check_block("SchemaRoot", root, &mut structural);
    }
    structural.sort_by_key(ToString::to_string);
    if structural.is_empty() {
        validate_defaults(root, e);
    }
    e.append(&mut structural);
    validate_supported(root, SchemaContext { root: true, ..SchemaContext::default() }, e);
}

/// The fields that a structural schema cannot have; if present, only they are reported.
const NON_STRUCTURAL_FIELDS: &[&str] =
    &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

fn is_structural(schema: &Value) -> bool {
    let Some(map) = schema.as_object() else { return true };
    let own = !NON_STRUCTURAL_FIELDS.iter().any(|field| map.contains_key(*field))
        && !map.get("items").is_some_and(Value::is_array);
    let parts = |field: &str| map.get(field).into_iter();
    own && parts("items").chain(parts("additionalProperties")).chain(parts("not")).all(is_structural)
        && ["allOf", "anyOf", "oneOf"]
            .iter()
            .flat_map(|list| parts(list))
            .flat_map(Value::as_array)
            .flatten()
            .all(is_structural)
        && parts("properties").flat_map(Value::as_object).flat_map(|map| map.values()).all(is_structural)
}

/// Allows only name and generateName constraints in metadata schemas.
pub fn validate_only_names(at: &FieldCursor, e: &mut ErrorList) {
    let mut fields = at.value.as_object().into_iter().flatten();
    let more = fields.any(|(name, _)| !matches!(name.as_str(), "type" | "properties" | "default" | "description"));
    let named = at.get("properties").entries().all(|(name, _)| name == "name" || name == "generateName");
    if more || !named {
        let message =
            "must not specify anything other than name and generateName, but metadata is implicitly specified";
        at.forbidden(e, message);
    }
}

/// Validates anyOf, allOf and oneOf as narrowing, except the int-or-string pattern.
pub fn validate_alternatives(at: &FieldCursor, e: &mut ErrorList) {
    let both = serde_json::json!([{"type": "integer"}, {"type": "string"}]);
    for list in ["anyOf", "allOf", "oneOf"] {
        for (index, part) in at.get(list).items().enumerate() {
            let mixed = list == "anyOf" && at.get(list).value == &both;
            let first = list == "allOf" && index == 0 && part.get("anyOf").value == &both;
            if !mixed && !first {
                check_block("NarrowingSchema", &part, e);
            }
        }
    }
    if at.get("not").exists() {
        check_block("NarrowingSchema", &at.get("not"), e);
    }
}

/// Validates defaults: no unknown fields, and valid by the schema.
fn validate_defaults(at: &FieldCursor, e: &mut ErrorList) {
    let default = at.get("default");
    if default.exists() {
        if has_unknown_fields(default.value, at.value) {
            default.invalid(e, "must not have unknown fields");
        }
        schema_value::check_value(&FieldCursor::for_create(at.value), default.value, &default, e);
    }
    if at.get("items").value.is_object() {
        validate_defaults(&at.get("items"), e);
    }
    at.get("properties").entries().for_each(|(_, property)| validate_defaults(&property, e));
}

fn has_unknown_fields(value: &Value, schema: &Value) -> bool {
    if schema.get(PRESERVE_UNKNOWN_FIELDS) == Some(&Value::Bool(true)) || !schema.is_object() {
        return false;
    }
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            let property = schema.get("properties").and_then(|properties| properties.get(key));
            match property.or(schema.get("additionalProperties")) {
                Some(Value::Bool(allowed)) => !allowed,
                Some(inner) => has_unknown_fields(value, inner),
                None => true,
            }
        }),
        Value::Array(items) => {
            let inner = schema.get("items").unwrap_or(&Value::Null);
            items.iter().any(|item| has_unknown_fields(item, inner))
        }
        _ => false,
    }
}

/// The context that a subschema inherits.
#[derive(Clone, Copy, Default)]
struct SchemaContext<'a> {
    root: bool,
    in_meta: bool,
    no_defaults: Option<&'a str>,
}

/// Rejects unsupported schema features.
fn validate_supported(at: &FieldCursor, place: SchemaContext, e: &mut ErrorList) {
    if !at.value.is_object() {
        return;
    }
    if let Some(reason) = place.no_defaults.filter(|_| at.get("default").exists()) {
        at.get("default").forbidden(e, format!("must not be set {reason}"));
    }
    if place.in_meta && at.get(EMBEDDED_RESOURCE).is_true() {
        at.get(EMBEDDED_RESOURCE).forbidden(e, "must not be used inside of resource meta");
    }
    let inner = SchemaContext { root: false, ..place };
    let in_meta = place.in_meta.then_some("inside additionalProperties applying to object metadata");
    validate_supported(
        &at.get("additionalProperties"),
        SchemaContext { no_defaults: in_meta.or(place.no_defaults), ..inner },
        e,
    );
    for (name, property) in at.get("properties").entries() {
        let resource = place.root || at.get(EMBEDDED_RESOURCE).is_true();
        let meta = resource && ["metadata", "kind", "apiVersion"].contains(&name);
        let reason = format!("in top-level {name}");
        let no_defaults = if meta && place.root { Some(reason.as_str()) } else { place.no_defaults };
        validate_supported(&property, SchemaContext { root: false, in_meta: place.in_meta || meta, no_defaults }, e);
    }
    validate_supported(&at.get("not"), inner, e);
    for list in ["allOf", "oneOf", "anyOf"] {
        at.get(list).items().for_each(|part| validate_supported(&part, inner, e));
    }
    validate_supported(&at.get("items"), inner, e);
    check_block("SupportedSchema", at, e);
}

/// Requires a message for multi-line rules.
pub fn validate_explained_rule(rule: &FieldCursor, e: &mut ErrorList) {
    if rule.text_at("rule").trim().contains(['\n', '\r']) && rule.text_at("message").trim().is_empty() {
        rule.get("message").required(e, "message must be specified if rule contains line breaks");
    }
}

/// Validates list map keys: declared, scalar, and required or defaulted.
pub fn validate_map_keys(list: &FieldCursor, e: &mut ErrorList) {
    let (keys, items) = (list.get(LIST_MAP_KEYS), list.get("items"));
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
        let property = properties.entry(key);
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
    for key in keys.texts().filter(|key| properties.entry(key).exists()) {
        let property = properties.entry(key);
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
