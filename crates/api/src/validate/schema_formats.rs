//! Warns about unknown formats in CRD schemas. An unknown format validates nothing; formats already stored are not
//! reported again.

use std::collections::BTreeSet;

use super::prelude::*;

/// Warns about the unknown formats of a CRD's schemas.
pub fn validate_unknown_formats(spec: &FieldCursor, e: &mut ErrorList) {
    let before = find_unknown_formats(spec.old_cursor().value);
    for format in find_unknown_formats(spec.value).difference(&before) {
        e.push(FieldError::new("", FieldErrorType::Warning, format!("unrecognized format {format:?}")));
    }
}

fn find_unknown_formats(spec: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions.for_each(|version| collect_unknown_formats(&version["schema"]["openAPIV3Schema"], &mut found));
    found
}

/// Collects the unknown formats of a schema and its subschemas.
fn collect_unknown_formats<'v>(schema: &'v Value, found: &mut BTreeSet<&'v str>) {
    let Some(parts) = schema.as_object() else { return };
    let text = |field: &str| schema[field].as_str().unwrap_or_default();
    let format = text("format");
    if !format.is_empty() && !formats::strfmt::is_known_format(text("type"), format) {
        found.insert(format);
    }
    for (field, part) in parts {
        match field.as_str() {
            "items" | "not" | "additionalProperties" => collect_unknown_formats(part, found),
            "allOf" | "anyOf" | "oneOf" => {
                part.as_array().into_iter().flatten().for_each(|one| collect_unknown_formats(one, found))
            }
            "properties" => {
                part.as_object().into_iter().flatten().for_each(|(_, one)| collect_unknown_formats(one, found))
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn warnings_for(old: Value, new: Value) -> Vec<String> {
        let spec = |schema: Value| json!({"versions": [{"schema": {"openAPIV3Schema": schema}}]});
        let (old, new) = (spec(old), spec(new));
        let mut errors = Vec::new();
        validate_unknown_formats(&FieldCursor::for_update(&new, &old), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_format_is_warned_about_once() {
        let new = json!({"properties": {
            "a": {"type": "string", "format": "date-time"}, "b": {"type": "string", "format": "hue"},
            "c": {"type": "integer", "format": "int32"}, "d": {"type": "integer", "format": "uint32"},
            "e": {"type": "array", "format": "uuid", "items": {"anyOf": [{"format": "int-or-string"}, {"format": "uuid"}]}},
            "f": {"type": "string", "format": "k8s-short-name"}, "g": {"type": "string", "format": "hue"}}});
        let all = ["hue", "int-or-string", "uint32", "uuid"].map(|format| format!("unrecognized format {format:?}"));
        assert_eq!(warnings_for(json!({}), new.clone()), all);
        assert_eq!(
            warnings_for(json!({"properties": {"z": {"type": "string", "format": "hue"}}}), new.clone()),
            all[1..]
        );
        assert_eq!(warnings_for(new.clone(), new), [""; 0]);
    }
}
