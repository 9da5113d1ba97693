//! Validation of the schemas of custom resources: they are structural, and use what the server supports.

use super::{custom_lists, prelude::*};

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
const MIXED_TYPE: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
pub(super) const LIST_TYPE: &str = "x-kubernetes-list-type";
pub(super) const LIST_KEYS: &str = "x-kubernetes-list-map-keys";
pub(super) const MAP_TYPE: &str = "x-kubernetes-map-type";
const RULES: &str = "x-kubernetes-validations";

/// Where in a schema a part stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

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
        invariants(root, Level::Root, &mut structural);
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

fn invariants(at: &At, level: Level, e: &mut Errors) {
    if !at.value.is_object() {
        return;
    }
    let (kind, items, properties) = (at.get("type"), at.get("items"), at.get("properties"));
    if kind.text() == "array" && !items.exists() {
        items.required(e, "must be specified");
    }
    invariants(&items, Level::Item, e);
    properties.entries().for_each(|(_, property)| invariants(&property, Level::Field, e));
    let additional = at.get("additionalProperties");
    if additional.exists() {
        if level == Level::Root {
            additional.forbidden(e, "must not be used at the root");
        }
        invariants(&additional, Level::Field, e);
    }
    let (mixed, preserve, embedded) = (at.get(MIXED_TYPE), at.get(PRESERVE), at.get(EMBEDDED));
    for extension in [&preserve, &embedded].into_iter().filter(|x| mixed.is_true() && x.is_true()) {
        extension.invalid(e, "must be false if x-kubernetes-int-or-string is true");
    }
    nested(at, e);
    let object = "must be object if x-kubernetes-embedded-resource is true";
    if embedded.is_true() && kind.text() != "object" {
        if kind.is_empty() { kind.required(e, object) } else { kind.invalid_text(e, object) }
    } else if kind.is_empty() && !mixed.is_true() && !preserve.is_true() {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        kind.required(e, format!("must not be empty {place}"));
    }
    if embedded.is_true() && additional.exists() {
        additional.forbidden(e, "must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !kind.is_empty() && kind.text() != "object" {
        kind.invalid_text(e, "must be object at the root");
    }
    if level == Level::Root || embedded.is_true() {
        for field in ["kind", "apiVersion"] {
            let property = properties.key(field);
            if property.exists() && property.get("type").text() != "string" {
                property.get("type").invalid_text(e, "must be string");
            }
        }
        metadata(&properties.key("metadata"), level, e);
    }
    if embedded.is_true() && !preserve.is_true() && properties.is_empty() {
        let message = "must not be empty if x-kubernetes-embedded-resource is true without \
            x-kubernetes-preserve-unknown-fields";
        properties.required(e, message);
    }
}

fn metadata(at: &At, level: Level, e: &mut Errors) {
    if !at.exists() {
        return;
    }
    if at.get("type").text() != "object" {
        at.get("type").invalid_text(e, "must be object");
    }
    let fields = at.value.as_object().into_iter().flatten();
    let mut more =
        fields.filter(|(name, _)| !matches!(name.as_str(), "type" | "properties" | "default" | "description"));
    let named = at.get("properties").entries().all(|(name, _)| name == "name" || name == "generateName");
    if level == Level::Root && (more.next().is_some() || !named) {
        let message =
            "must not specify anything other than name and generateName, but metadata is implicitly specified";
        at.forbidden(e, message);
    }
}

/// What stands within alternatives only narrows values, and says nothing of their form.
fn nested(at: &At, e: &mut Errors) {
    let both = serde_json::json!([{"type": "integer"}, {"type": "string"}]);
    let mixed = at.get("anyOf").value == &both;
    for list in ["anyOf", "allOf", "oneOf"] {
        for (index, part) in at.get(list).items().enumerate() {
            let first_all = list == "allOf" && index == 0 && part.get("anyOf").value == &both;
            if !(list == "anyOf" && mixed || first_all) {
                narrowing(&part, e);
            }
        }
    }
    if at.get("not").exists() {
        narrowing(&at.get("not"), e);
    }
}

fn narrowing(at: &At, e: &mut Errors) {
    nested(at, e);
    if at.get("items").exists() {
        narrowing(&at.get("items"), e);
    }
    at.get("properties").entries().for_each(|(_, property)| narrowing(&property, e));
    let rules = [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        (PRESERVE, "false"),
        (EMBEDDED, "false"),
        (MIXED_TYPE, "false"),
        (LIST_KEYS, "empty"),
        (LIST_TYPE, "undefined"),
        (MAP_TYPE, "undefined"),
        (RULES, "empty"),
    ];
    for (field, wanted) in rules {
        let given = at.get(field);
        if given.exists() && given.value != &Value::Bool(false) {
            given.forbidden(e, format!("must be {wanted} to be structural"));
        }
    }
    if at.get("properties").key("metadata").exists() {
        at.get("properties").key("metadata").forbidden(e, "must not be specified in a nested context");
    }
}

/// A default has no fields that would be dropped at once.
fn defaults(at: &At, e: &mut Errors) {
    let default = at.get("default");
    if default.exists() && has_unknown(default.value, at.value) {
        default.invalid(e, "must not have unknown fields");
    }
    at.get("properties").entries().for_each(|(_, property)| defaults(&property, e));
    for field in ["items", "additionalProperties"] {
        if at.get(field).value.is_object() {
            defaults(&at.get(field), e);
        }
    }
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
    standard(at, place, e);
    if at.get("uniqueItems").is_true() {
        let message = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        at.get("uniqueItems").forbidden(e, message);
    }
    let (additional, properties, items) = (at.get("additionalProperties"), at.get("properties"), at.get("items"));
    if additional.exists() && !properties.is_empty() && !additional.is_true() {
        additional.forbidden(e, "additionalProperties and properties are mutual exclusive");
    }
    let inner = Place { root: false, ..place };
    let in_meta = "inside additionalProperties applying to object metadata";
    supported(
        &additional,
        Place { no_defaults: if place.in_meta { Some(in_meta) } else { place.no_defaults }, ..inner },
        e,
    );
    for (name, property) in properties.entries() {
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
    supported(&items, inner, e);
    let preserve = at.get(PRESERVE);
    if preserve.value == &Value::Bool(false) {
        preserve.invalid(e, "must be true or undefined");
    }
    custom_lists::check(at, e);
    rules(at, e);
}

fn standard(at: &At, place: Place, e: &mut Errors) {
    let kind = at.get("type");
    if !kind.is_empty() && !TYPES.contains(&kind.text()) {
        kind.unsupported(e, TYPES);
    }
    if let Some(reason) = place.no_defaults.filter(|_| at.get("default").exists()) {
        at.get("default").forbidden(e, format!("must not be set {reason}"));
    }
    for field in INEXPRESSIBLE {
        if at.get(field).exists() {
            at.get(field).forbidden(e, format!("{field} is not supported"));
        }
    }
    if kind.text() == "null" {
        kind.forbidden(e, "type cannot be set to null, use nullable as an alternative");
    }
    if at.get("items").value.is_array() {
        at.get("items").forbidden(e, "items must be a schema object and not an array");
    }
    if place.in_meta && at.get(EMBEDDED).is_true() {
        at.get(EMBEDDED).forbidden(e, "must not be used inside of resource meta");
    }
}

/// The faults of rules, expressions aside.
fn rules(at: &At, e: &mut Errors) {
    let breaks = |text: &str| text.trim().contains(['\n', '\r']);
    for rule in at.get(RULES).items() {
        let (text, message, expression) = (rule.get("rule"), rule.get("message"), rule.get("messageExpression"));
        if text.text().trim().is_empty() {
            text.required(e, "rule is not specified");
        } else if !message.is_empty() && message.text().trim().is_empty() {
            message.invalid_text(e, "must be non-empty if specified");
        } else if breaks(message.text()) {
            message.invalid_text(e, "must not contain line breaks");
        } else if breaks(text.text()) && message.text().trim().is_empty() {
            message.required(e, "message must be specified if rule contains line breaks");
        }
        if !expression.is_empty() && expression.text().trim().is_empty() {
            expression.required(e, "messageExpression must be non-empty if specified");
        }
        rule.get("reason").one_of(e, REASONS);
        let path = rule.get("fieldPath");
        if !path.is_empty() && path.text().trim().is_empty() {
            path.invalid_text(e, "must be non-empty if specified");
        }
        if path.text().contains(['\n', '\r']) {
            path.invalid_text(e, "must not contain line breaks");
        }
    }
}
