//! Names and order of fields in upstream's internal types where they differ from the versioned ones, from
//! `schema/internal.txt`.

use crate::{
    Map, Value,
    schema::{StructField, StructType},
};

const INTERNAL_TABLE: &str = include_str!("../../schema/internal.txt");

/// The words of a line of the table.
fn line_words(line: &str) -> Option<std::str::SplitWhitespace<'static>> {
    let mut lines = INTERNAL_TABLE.lines();
    lines.find_map(|text| text.strip_prefix(line)?.strip_prefix(": ")).map(str::split_whitespace)
}

/// The Go name of a field.
pub(super) fn go_field_name(ty: &str, name: &str) -> String {
    let own = match ty {
        ty if ty.starts_with("core/v1.RBD") => "names RBD",
        ty if ty.ends_with(".DeviceAttribute") => "names DeviceAttribute",
        _ => "names",
    };
    let mut exceptions = [own, "names"].into_iter().filter_map(line_words).flatten();
    if let Some(go) = exceptions.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')) {
        return go.to_owned();
    }
    let end = name.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(name.len());
    let (head, rest) = name.split_at(end);
    let word_ends = rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_uppercase());
    if word_ends && line_words("capitals").is_some_and(|mut capitals| capitals.any(|word| word == head)) {
        return format!("{}{rest}", head.to_uppercase());
    }
    let mut letters = name.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// The fields in the order of upstream's internal type.
pub(super) fn internal_field_order(ty: &StructType) -> Vec<&StructField> {
    match line_words(&format!("order {}", ty.name)) {
        Some(order) => order.filter_map(|name| ty.field(name)).collect(),
        None => ty.fields.iter().collect(),
    }
}

/// The host fields that upstream keeps at the top of a pod's security context.
pub(super) fn host_fields(spec: &Value) -> Vec<(String, String)> {
    let empty = Map::new();
    let map = spec.as_object().unwrap_or(&empty);
    let shown = |name: &str, zero: &str| map.get(name).map_or_else(|| zero.to_owned(), Value::to_string);
    let pointer = |name: &str| ["shareProcessNamespace", "hostUsers"].contains(&name);
    let field = |name: &str| (go_field_name("", name), shown(name, if pointer(name) { "null" } else { "false" }));
    line_words("host").into_iter().flatten().map(field).collect()
}
