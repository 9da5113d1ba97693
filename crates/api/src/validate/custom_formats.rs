//! The formats of values that the schemas of definitions name. One that is not known says nothing about values, so that who
//! names it is told; who named it before is not told again.

use std::collections::BTreeSet;

use super::prelude::*;

/// The formats in the schemas of a definition that nobody knows.
pub fn unknown_formats(spec: &At, e: &mut Errors) {
    let before = unknown(spec.before().value);
    for format in unknown(spec.value).difference(&before) {
        e.push(FieldError::new("", Fault::Warning, format!("unrecognized format {format:?}")));
    }
}

fn unknown(spec: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions.for_each(|version| walk(&version["schema"]["openAPIV3Schema"], &mut found));
    found
}

/// Looks at a schema and all that are in it; what is none has nothing in it.
fn walk<'v>(schema: &'v Value, found: &mut BTreeSet<&'v str>) {
    let Some(parts) = schema.as_object() else { return };
    let text = |field: &str| schema[field].as_str().unwrap_or_default();
    let format = text("format");
    if !format.is_empty() && !formats::named::is_known(text("type"), format) {
        found.insert(format);
    }
    for (field, part) in parts {
        match field.as_str() {
            "items" | "not" | "additionalProperties" => walk(part, found),
            "allOf" | "anyOf" | "oneOf" => part.as_array().into_iter().flatten().for_each(|one| walk(one, found)),
            "properties" => part.as_object().into_iter().flatten().for_each(|(_, one)| walk(one, found)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(old: Value, new: Value) -> Vec<String> {
        let spec = |schema: Value| json!({"versions": [{"schema": {"openAPIV3Schema": schema}}]});
        let (old, new) = (spec(old), spec(new));
        let mut errors = Vec::new();
        unknown_formats(&At::changed(&new, &old), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn formats_are_told_once() {
        let new = json!({"properties": {
            "a": {"type": "string", "format": "date-time"}, "b": {"type": "string", "format": "hue"},
            "c": {"type": "integer", "format": "int32"}, "d": {"type": "integer", "format": "uint32"},
            "e": {"type": "array", "format": "uuid", "items": {"anyOf": [{"format": "int-or-string"}, {"format": "uuid"}]}},
            "f": {"type": "string", "format": "k8s-short-name"}, "g": {"type": "string", "format": "hue"}}});
        let all = ["hue", "int-or-string", "uint32", "uuid"].map(|format| format!("unrecognized format {format:?}"));
        assert_eq!(told(json!({}), new.clone()), all);
        assert_eq!(told(json!({"properties": {"z": {"type": "string", "format": "hue"}}}), new.clone()), all[1..]);
        assert_eq!(told(new.clone(), new), [""; 0]);
    }
}
