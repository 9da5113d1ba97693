//! Explanations from OpenAPI v2, in the older form.

use api::{Value, json::go_quote};

use super::{has_kind, wrapping::fill_paragraphs};
use crate::{
    discovery::RestMapping,
    errors::{CommandError, CommandResult},
};

/// Prints models of a document.
pub struct ModelPrinter<'a> {
    /// The whole document.
    pub document: &'a Value,
    /// Whether fields of fields are listed.
    pub recursive: bool,
}

/// The meaning of a schema.
enum ModelType<'a> {
    Reference(&'a Value, &'a str),
    Kind,
    Map(Option<&'a Value>),
    Array(Option<&'a Value>),
    Primitive(&'a str),
    Arbitrary,
}

const WIDTH: usize = 80;

impl<'a> ModelPrinter<'a> {
    /// The explanation of a kind or of one of its fields.
    pub fn print(&self, mapping: &RestMapping, path: &[String]) -> CommandResult<String> {
        let definitions = self.document["definitions"].as_object();
        let found = definitions.into_iter().flatten().find(|(_, schema)| has_kind(schema, mapping));
        let Some((_, mut schema)) = found else {
            let shown = format!("{}, Kind={}", mapping.api_version(), mapping.kind);
            crate::bail!("couldn't find resource for {}", go_quote(&shown));
        };
        for field in path {
            schema = self
                .find_field(schema, field, 0)
                .ok_or_else(|| CommandError::new(format!("field {} does not exist", go_quote(field))))?;
        }
        let mut text = format!("KIND:     {}\nVERSION:  {}\n\n", mapping.kind, mapping.api_version());
        let name = path.last().map(String::as_str).unwrap_or_default();
        self.print_model(schema, name, &mut text);
        Ok(text)
    }

    fn classify(&self, schema: &'a Value) -> ModelType<'a> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap_or_default();
            return ModelType::Reference(&self.document["definitions"][name], reference);
        }
        let has_properties = schema["properties"].is_object();
        match schema["type"].as_str() {
            None | Some("object") if has_properties => ModelType::Kind,
            None => ModelType::Arbitrary,
            Some("object") => ModelType::Map(schema.get("additionalProperties").filter(|inner| inner.is_object())),
            Some("array") => ModelType::Array(schema.get("items")),
            Some(primitive) => ModelType::Primitive(primitive),
        }
    }

    fn find_field(&self, schema: &'a Value, field: &str, depth: usize) -> Option<&'a Value> {
        if depth > 32 {
            return None;
        }
        match self.classify(schema) {
            ModelType::Reference(target, _) => self.find_field(target, field, depth + 1),
            ModelType::Map(Some(inner)) | ModelType::Array(Some(inner)) => self.find_field(inner, field, depth + 1),
            ModelType::Kind => schema["properties"].get(field),
            _ => None,
        }
    }

    fn type_name(&self, schema: &'a Value, depth: usize) -> String {
        if depth > 32 {
            return "Object".to_owned();
        }
        match self.classify(schema) {
            ModelType::Reference(target, _) => self.type_name(target, depth + 1),
            ModelType::Kind => "Object".to_owned(),
            ModelType::Array(Some(inner)) => format!("[]{}", self.type_name(inner, depth + 1)),
            ModelType::Map(Some(inner)) => format!("map[string]{}", self.type_name(inner, depth + 1)),
            ModelType::Array(None) => "[]".to_owned(),
            ModelType::Map(None) => "map[string]".to_owned(),
            ModelType::Primitive(name) => name.to_owned(),
            ModelType::Arbitrary => String::new(),
        }
    }

    fn print_model(&self, schema: &'a Value, name: &str, out: &mut String) {
        let mut descriptions: Vec<&str> = Vec::new();
        let mut at = schema;
        let type_name = self.type_name(schema, 0);
        for _ in 0..32 {
            descriptions.push(at["description"].as_str().unwrap_or_default());
            match self.classify(at) {
                ModelType::Reference(next, _) | ModelType::Map(Some(next)) | ModelType::Array(Some(next)) => at = next,
                _ => break,
            }
        }
        match self.classify(at) {
            ModelType::Kind if !name.is_empty() => *out += &format!("RESOURCE: {name} <{type_name}>\n\n"),
            ModelType::Primitive(_) => *out += &format!("FIELD:    {name} <{type_name}>\n\n"),
            _ => {}
        }
        print_descriptions(&descriptions, out);
        if matches!(self.classify(at), ModelType::Kind) {
            *out += "\nFIELDS:\n";
            if self.recursive {
                self.list_recursively(at, 3, &mut Vec::new(), out);
            } else {
                self.list_fields(at, out);
            }
        }
    }

    fn list_fields(&self, schema: &'a Value, out: &mut String) {
        let required = schema["required"].as_array();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let is_required = required.is_some_and(|names| names.iter().any(|entry| entry == name));
            let note = if is_required { " -required-" } else { "" };
            *out += &format!("   {name}\t<{}>{note}\n", self.type_name(field, 0));
            push_lines(field["description"].as_str().unwrap_or_default(), 5, out);
            out.push('\n');
        }
    }

    fn list_recursively(&self, schema: &'a Value, level: usize, visited: &mut Vec<&'a str>, out: &mut String) {
        match self.classify(schema) {
            ModelType::Reference(target, name) if !visited.contains(&name) => {
                visited.push(name);
                self.list_recursively(target, level, visited, out);
                visited.pop();
            }
            ModelType::Map(Some(inner)) | ModelType::Array(Some(inner)) => {
                self.list_recursively(inner, level, visited, out);
            }
            ModelType::Kind => {
                for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                    *out += &format!("{}{name}\t<{}>\n", " ".repeat(level), self.type_name(field, 0));
                    self.list_recursively(field, level + 3, visited, out);
                }
            }
            _ => {}
        }
    }
}

fn push_lines(text: &str, amount: usize, out: &mut String) {
    for line in fill_paragraphs(text, WIDTH - amount) {
        if line.is_empty() {
            out.push('\n');
        } else {
            *out += &format!("{}{line}\n", " ".repeat(amount));
        }
    }
}

fn print_descriptions(descriptions: &[&str], out: &mut String) {
    *out += "DESCRIPTION:\n";
    for (at, description) in descriptions.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        if at != 0 {
            out.push('\n');
        }
        push_lines(description, 5, out);
    }
    if descriptions.iter().all(|text| text.is_empty()) {
        *out += "     <empty>\n";
    }
}
