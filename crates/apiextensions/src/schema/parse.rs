//! Parses a structural schema from a CRD. Schemas that passed CRD validation always parse; anything else is ignored.

use std::sync::Arc;

use api::Value;

use super::{Bounds, Kind, ListKind, META, Node, Others, Pattern};
use crate::rules::{Rule, Rules};

/// Parses the root schema of a version.
pub fn parse(schema: &Value) -> Node {
    let mut node = node(schema);
    node.root = true;
    imply_meta(&mut node);
    node
}

fn node(schema: &Value) -> Node {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let mut node = Node {
        kind: Kind::of(text(schema, "type")),
        nullable: flag("nullable"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        preserve: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        atomic: text(schema, "x-kubernetes-map-type") == "atomic",
        list: list_kind(schema),
        properties: properties(schema),
        items: schema.get("items").filter(|items| items.is_object()).map(|items| Arc::new(self::node(items))),
        others: match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Others::Any,
            Some(inner @ Value::Object(_)) => Others::Node(Arc::new(self::node(inner))),
            _ => Others::None,
        },
        default: schema.get("default").filter(|value| !value.is_null()).map(|value| Box::new(value.clone())),
        bounds: bounds(schema),
        rules: Rules::new(list(schema, "x-kubernetes-validations").map(Rule::parse).collect()),
        ..Node::default()
    };
    if node.embedded {
        imply_meta(&mut node);
    }
    node.ruled = is_ruled(&node);
    node
}

fn is_ruled(node: &Node) -> bool {
    !node.rules.list.is_empty()
        || node.properties.iter().any(|(_, node)| node.ruled)
        || node.items.as_ref().is_some_and(|node| node.ruled)
        || matches!(&node.others, Others::Node(node) if node.ruled)
        || node.bounds().all_of.iter().any(|node| node.ruled)
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(schema: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn names<T: for<'a> From<&'a str>>(schema: &Value, name: &str) -> Box<[T]> {
    list(schema, name).filter_map(Value::as_str).map(T::from).collect()
}

fn properties(schema: &Value) -> Box<[(Box<str>, Arc<Node>)]> {
    let map = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    // JSON maps are sorted by key already.
    map.map(|(name, schema)| (name.as_str().into(), Arc::new(node(schema)))).collect()
}

fn list_kind(schema: &Value) -> ListKind {
    match text(schema, "x-kubernetes-list-type") {
        "set" => ListKind::Set,
        "map" => ListKind::Map(names(schema, "x-kubernetes-list-map-keys")),
        _ => ListKind::Atomic,
    }
}

fn bounds(schema: &Value) -> Option<Box<Bounds>> {
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
    SAID.iter().any(|name| schema.get(name).is_some()).then(|| Box::new(said(schema)))
}

fn said(schema: &Value) -> Bounds {
    let number = |name: &str| schema.get(name).and_then(Value::as_f64);
    let count = |name: &str| schema.get(name).and_then(Value::as_i64);
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let nodes = |name: &str| list(schema, name).map(|part| Arc::new(node(part))).collect();
    Bounds {
        format: crate::validate::supported_format(text(schema, "type"), text(schema, "format")).into(),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: Some(text(schema, "pattern")).filter(|text| !text.is_empty()).map(|text| Box::new(Pattern::new(text))),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        unique_items: flag("uniqueItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        required: names(schema, "required"),
        one_of_values: list(schema, "enum").cloned().collect(),
        all_of: nodes("allOf"),
        any_of: nodes("anyOf"),
        one_of: nodes("oneOf"),
        not: schema.get("not").map(|not| Arc::new(node(not))),
    }
}

/// Adds `apiVersion`, `kind` and `metadata.name`/`generateName`, which CEL rules may use even if the schema omits them.
fn imply_meta(node: &mut Node) {
    let text = || Arc::new(Node { kind: Kind::String, implied: true, ..Node::default() });
    let mut properties = std::mem::take(&mut node.properties).into_vec();
    for name in META {
        let at = properties.binary_search_by(|(known, _)| (**known).cmp(name));
        match (at, name) {
            (Ok(at), "metadata") => {
                if let Some(meta) = Arc::get_mut(&mut properties[at].1) {
                    imply_names(meta);
                }
            }
            (Err(at), "metadata") => {
                let mut meta = Node { kind: Kind::Object, implied: true, ..Node::default() };
                imply_names(&mut meta);
                properties.insert(at, (name.into(), Arc::new(meta)));
            }
            (Err(at), _) => properties.insert(at, (name.into(), text())),
            (Ok(_), _) => {}
        }
    }
    node.properties = properties.into();
}

fn imply_names(meta: &mut Node) {
    let mut properties = std::mem::take(&mut meta.properties).into_vec();
    for name in ["generateName", "name"] {
        if let Err(at) = properties.binary_search_by(|(known, _)| (**known).cmp(name)) {
            let text = Node { kind: Kind::String, implied: true, ..Node::default() };
            properties.insert(at, (name.into(), Arc::new(text)));
        }
    }
    meta.properties = properties.into();
}
