//! Parses a structural schema from a CRD. Schemas that passed CRD validation always parse; anything else is ignored.

use std::sync::Arc;

use api::Value;

use super::{
    AdditionalProperties, JsonType, LazyPattern, ListType, OBJECT_META_FIELDS, Structural, ValidationRule,
    ValidationRules, ValueValidation,
};
use crate::format::supported_format;

/// Parses the root schema of a version.
pub fn parse_schema(schema: &Value) -> Structural {
    let mut node = parse_node(schema);
    node.root = true;
    add_implied_meta(&mut node);
    node
}

fn parse_node(schema: &Value) -> Structural {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let mut node = Structural {
        kind: JsonType::from_name(string_field(schema, "type")),
        nullable: flag("nullable"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        atomic: string_field(schema, "x-kubernetes-map-type") == "atomic",
        list_type: parse_list_type(schema),
        properties: parse_properties(schema),
        items: schema.get("items").filter(|items| items.is_object()).map(|items| Arc::new(self::parse_node(items))),
        additional_properties: match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => AdditionalProperties::Any,
            Some(inner @ Value::Object(_)) => AdditionalProperties::Schema(Arc::new(self::parse_node(inner))),
            _ => AdditionalProperties::None,
        },
        default: schema.get("default").filter(|value| !value.is_null()).map(|value| Box::new(value.clone())),
        validation: parse_value_validation(schema),
        rules: ValidationRules::new(
            list_field(schema, "x-kubernetes-validations").map(ValidationRule::parse).collect(),
        ),
        ..Structural::default()
    };
    if node.embedded {
        add_implied_meta(&mut node);
    }
    node.has_rules = contains_rules(&node);
    node
}

fn contains_rules(node: &Structural) -> bool {
    !node.rules.list.is_empty()
        || node.properties.iter().any(|(_, node)| node.has_rules)
        || node.items.as_ref().is_some_and(|node| node.has_rules)
        || matches!(&node.additional_properties, AdditionalProperties::Schema(node) if node.has_rules)
        || node.value_validation().all_of.iter().any(|node| node.has_rules)
}

fn string_field<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list_field<'a>(schema: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn string_list<T: for<'a> From<&'a str>>(schema: &Value, name: &str) -> Box<[T]> {
    list_field(schema, name).filter_map(Value::as_str).map(T::from).collect()
}

fn parse_properties(schema: &Value) -> Box<[(Box<str>, Arc<Structural>)]> {
    let map = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    // JSON maps are sorted by key already.
    map.map(|(name, schema)| (name.as_str().into(), Arc::new(parse_node(schema)))).collect()
}

fn parse_list_type(schema: &Value) -> ListType {
    match string_field(schema, "x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => ListType::Map(string_list(schema, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn parse_value_validation(schema: &Value) -> Option<Box<ValueValidation>> {
    const SAID: &[&str] = &[
        "format",
        "maximum",
        "minimum",
        "multipleOf",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
        "required",
        "enum",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ];
    SAID.iter().any(|name| schema.get(name).is_some()).then(|| Box::new(read_value_validation(schema)))
}

fn read_value_validation(schema: &Value) -> ValueValidation {
    let number = |name: &str| schema.get(name).and_then(Value::as_f64);
    let count = |name: &str| schema.get(name).and_then(Value::as_i64);
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let nodes = |name: &str| list_field(schema, name).map(|part| Arc::new(parse_node(part))).collect();
    ValueValidation {
        format: supported_format(string_field(schema, "type"), string_field(schema, "format")).into(),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: Some(string_field(schema, "pattern"))
            .filter(|text| !text.is_empty())
            .map(|text| Box::new(LazyPattern::new(text))),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        unique_items: flag("uniqueItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        required: string_list(schema, "required"),
        enumeration: list_field(schema, "enum").cloned().collect(),
        all_of: nodes("allOf"),
        any_of: nodes("anyOf"),
        one_of: nodes("oneOf"),
        not: schema.get("not").map(|not| Arc::new(parse_node(not))),
    }
}

/// Adds `apiVersion`, `kind` and `metadata.name`/`generateName`, which CEL rules may use even if the schema omits them.
fn add_implied_meta(node: &mut Structural) {
    let text = || Arc::new(Structural { kind: JsonType::String, implied: true, ..Structural::default() });
    let mut properties = std::mem::take(&mut node.properties).into_vec();
    for name in OBJECT_META_FIELDS {
        let at = properties.binary_search_by(|(known, _)| (**known).cmp(name));
        match (at, name) {
            (Ok(at), "metadata") => {
                if let Some(meta) = Arc::get_mut(&mut properties[at].1) {
                    add_implied_names(meta);
                }
            }
            (Err(at), "metadata") => {
                let mut meta = Structural { kind: JsonType::Object, implied: true, ..Structural::default() };
                add_implied_names(&mut meta);
                properties.insert(at, (name.into(), Arc::new(meta)));
            }
            (Err(at), _) => properties.insert(at, (name.into(), text())),
            (Ok(_), _) => {}
        }
    }
    node.properties = properties.into();
}

fn add_implied_names(meta: &mut Structural) {
    let mut properties = std::mem::take(&mut meta.properties).into_vec();
    for name in ["generateName", "name"] {
        if let Err(at) = properties.binary_search_by(|(known, _)| (**known).cmp(name)) {
            let text = Structural { kind: JsonType::String, implied: true, ..Structural::default() };
            properties.insert(at, (name.into(), Arc::new(text)));
        }
    }
    meta.properties = properties.into();
}
