//! Explanations from OpenAPI v3.

use api::Value;

use super::{
    has_kind,
    wrapping::{indent, wrap_words},
};
use crate::{
    discovery::RestMapping,
    errors::{CommandError, CommandResult},
};

/// Prints schemas of a document.
pub struct SchemaPrinter<'a> {
    /// The document of a group-version.
    pub document: &'a Value,
    /// Whether fields of fields are listed.
    pub recursive: bool,
}

fn present(value: &Value) -> Option<&Value> {
    match value {
        Value::Null | Value::Bool(_) => None,
        Value::Object(map) if map.is_empty() => None,
        value => Some(value),
    }
}

impl<'a> SchemaPrinter<'a> {
    /// The text, as far as it goes, and the error if the field does not exist.
    pub fn print(&self, mapping: &RestMapping, path: &[String]) -> (String, CommandResult) {
        let mut text = String::new();
        if !mapping.group.is_empty() {
            text += &format!("GROUP:      {}\n", mapping.group);
        }
        text += &format!("KIND:       {}\nVERSION:    {}\n\n", mapping.kind, mapping.version);
        let schemas = self.document["components"]["schemas"].as_object();
        let found = schemas.into_iter().flatten().find(|(_, schema)| has_kind(schema, mapping));
        let Some((_, schema)) = found else {
            let shown = format!("map[group:{} kind:{} version:{}]", mapping.group, mapping.kind, mapping.version);
            return (text, Err(CommandError::new(format!("GVK {shown} not found in OpenAPI schema"))));
        };
        let printed = self.print_path(schema, path, &mut Vec::new());
        if printed.is_empty() {
            let field = path.last().map(String::as_str).unwrap_or_default();
            return (text, Err(CommandError::new(format!("field \"{field}\" does not exist"))));
        }
        (format!("{text}{printed}\n"), Ok(()))
    }

    fn resolve(&self, schema: &'a Value) -> (&'a Value, &'a str) {
        let reference = schema["$ref"].as_str().unwrap_or_default();
        let name = reference.rsplit('/').next().unwrap_or_default();
        match present(&self.document["components"]["schemas"][name]) {
            Some(resolved) if !reference.is_empty() => (resolved, reference),
            _ => (schema, reference),
        }
    }

    fn print_path(&self, schema: &'a Value, path: &[String], history: &mut Vec<&'a str>) -> String {
        let (resolved, reference) = self.resolve(schema);
        let Some((first, rest)) = path.split_first() else { return self.print_schema(resolved) };
        if !reference.is_empty() && history.contains(&reference) {
            return String::new();
        }
        history.push(reference);
        let property = present(&resolved["properties"][first]);
        let printed = if let Some(property) = property {
            let mut text = String::new();
            if rest.is_empty() {
                text = format!("FIELD: {first} <{}>\n{}\n\n", self.type_name(property), long_enum(property));
            }
            text + &self.print_path(property, rest, &mut Vec::new())
        } else if let Some(items) = present(&resolved["items"]) {
            self.print_path(items, path, history)
        } else if let Some(values) = present(&resolved["additionalProperties"]) {
            self.print_path(values, path, history)
        } else {
            let parts = resolved["allOf"].as_array().into_iter().flatten();
            { parts }.map(|part| self.print_path(part, path, history)).find(|text| !text.is_empty()).unwrap_or_default()
        };
        history.pop();
        printed
    }

    fn print_schema(&self, schema: &'a Value) -> String {
        let mut description = String::new();
        self.collect_description(schema, &mut description, 0);
        if description.is_empty() {
            description = "<empty>".to_owned();
        }
        let mut text = format!("DESCRIPTION:\n{}\n", indent(&wrap_words(&description, 76), 4));
        if let Some(docs) = present(&schema["externalDocs"]) {
            text += &format!("\nEXTERNAL DOCS:\n{}", external_docs(docs, 4, 76));
        }
        let mut fields = String::new();
        self.list_fields(schema, 1, &mut Vec::new(), &mut fields);
        if !fields.is_empty() {
            text += &format!("FIELDS:\n{fields}");
        }
        text
    }

    fn collect_description(&self, schema: &'a Value, out: &mut String, depth: usize) {
        // Schemas can refer to themselves.
        if depth > 16 {
            return;
        }
        let (resolved, _) = self.resolve(schema);
        if let Some(description) = resolved["description"].as_str().filter(|text| !text.is_empty()) {
            out.push_str(description);
            out.push('\n');
        }
        for part in resolved["allOf"].as_array().into_iter().flatten() {
            self.collect_description(part, out, depth + 1);
        }
        for field in ["items", "additionalProperties"] {
            if let Some(inner) = present(&resolved[field]) {
                self.collect_description(inner, out, depth + 1);
            }
        }
    }

    fn list_fields(&self, schema: &'a Value, level: usize, history: &mut Vec<&'a str>, out: &mut String) {
        let (resolved, reference) = self.resolve(schema);
        if !reference.is_empty() && history.contains(&reference) {
            return;
        }
        history.push(reference);
        for (name, field) in resolved["properties"].as_object().into_iter().flatten() {
            self.print_field(resolved, name, field, level, out);
            if self.recursive {
                self.list_fields(field, level + 1, history, out);
            }
        }
        for part in resolved["allOf"].as_array().into_iter().flatten() {
            self.list_fields(part, level, history, out);
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = present(&resolved[inner]) {
                self.list_fields(inner, level, history, out);
            }
        }
        history.pop();
    }

    fn print_field(&self, schema: &Value, name: &str, field: &'a Value, level: usize, out: &mut String) {
        let amount = level * 2;
        let required = schema["required"].as_array().is_some_and(|names| names.iter().any(|entry| entry == name));
        let required = if required { " -required-" } else { "" };
        let pad = " ".repeat(amount);
        *out += &format!("{pad}{name}\t<{}>{required}{}\n", self.type_name(field), short_enum(field, amount));
        if self.recursive {
            return;
        }
        let description = field["description"].as_str().filter(|text| !text.is_empty()).unwrap_or("<no description>");
        *out += &indent(&wrap_words(description, 78usize.saturating_sub(amount)), amount + 2);
        out.push('\n');
        if let Some(docs) = present(&field["externalDocs"]) {
            let width = 76usize.saturating_sub(amount);
            *out += &format!("\n{pad}  EXTERNAL DOCS:\n{}", external_docs(docs, amount + 4, width));
        }
        out.push('\n');
    }

    /// A hint about the type: `[]Container`, `map[string]string`.
    fn type_name(&self, schema: &'a Value) -> String {
        if let Some(items) = present(&schema["items"]) {
            return format!("[]{}", self.type_name(items));
        }
        if let Some(values) = present(&schema["additionalProperties"]) {
            return format!("map[string]{}", self.type_name(values));
        }
        if let Some([one]) = schema["allOf"].as_array().map(Vec::as_slice)
            && present(&schema["properties"]).is_none()
        {
            return self.type_name(one);
        }
        let (resolved, reference) = self.resolve(schema);
        let kind = resolved["type"].as_str().unwrap_or_default();
        if !reference.is_empty() && matches!(kind, "" | "object") {
            return reference.rsplit(['/', '.']).next().unwrap_or("Object").to_owned();
        }
        if matches!(kind, "" | "object") { "Object".to_owned() } else { kind.to_owned() }
    }
}

fn external_docs(docs: &Value, amount: usize, width: usize) -> String {
    let mut text = String::new();
    if let Some(description) = docs["description"].as_str() {
        text += &format!("{}\n", indent(&wrap_words(description, width), amount));
    }
    if let Some(url) = docs["url"].as_str() {
        text += &format!("{}\n", indent(&format!("URL: {url}"), amount));
    }
    text
}

fn enum_values(schema: &Value) -> Vec<String> {
    let shown = |value: &Value| match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        value => api::json::go_value(value),
    };
    schema["enum"].as_array().into_iter().flatten().map(shown).collect()
}

fn short_enum(schema: &Value, amount: usize) -> String {
    let values = enum_values(schema);
    if values.is_empty() {
        return String::new();
    }
    let more = if values.len() > 4 { ", ...." } else { "" };
    let shown = values.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
    format!("\n{}enum: {shown}{more}", " ".repeat(amount))
}

fn long_enum(schema: &Value) -> String {
    let values = enum_values(schema);
    if values.is_empty() {
        return String::new();
    }
    format!("ENUM:{}", values.iter().map(|value| format!("\n    {value}")).collect::<String>())
}
