//! Printers: the formats of `-o`.

mod custom_columns;
mod json_format;
mod kyaml;
mod sorter;
mod table;

use std::cell::Cell;

use api::{Value, json::go_quote};

pub use custom_columns::CustomColumns;
pub use json_format::{format_json, format_typed_list, indent_json, typed_list, typed_value};
pub use kyaml::format_kyaml;
pub use sorter::sort_values;
pub use table::{TableOptions, TablePrinter, format_labels};

use crate::{
    errors::{CommandError, CommandResult},
    files,
    flag_set::FlagSet,
    go_template::GoTemplate,
    jsonpath::JsonPath,
    object::{self, ObjectFields},
    output::write_out,
};

/// A format that prints whole objects.
#[derive(Debug)]
enum PrintFormat {
    Json,
    Yaml,
    Kyaml,
    Name,
    Template(Box<GoTemplate>, String),
    JsonPath(Box<JsonPath>, String, bool),
}

/// A printer of objects.
#[derive(Debug)]
pub struct ObjectPrinter {
    format: Option<PrintFormat>,
    /// The message after the object's name, for example `created`.
    operation: String,
    show_managed_fields: bool,
    count: Cell<usize>,
}

const TEMPLATE_FORMATS: [&str; 7] =
    ["go-template", "go-template-file", "jsonpath", "jsonpath-as-json", "jsonpath-file", "template", "templatefile"];

/// The formats of most commands.
pub const OBJECT_FORMATS: [&str; 4] = ["json", "kyaml", "name", "yaml"];

/// The error of an unknown format.
pub fn unknown_format(format: &str, extra: &[&str]) -> CommandError {
    let mut allowed: Vec<&str> = TEMPLATE_FORMATS.iter().chain(extra).copied().collect();
    allowed.sort_unstable();
    CommandError::new(format!(
        "unable to match a printer suitable for the output format {}, allowed formats are: {}",
        go_quote(format),
        allowed.join(",")
    ))
}

impl ObjectPrinter {
    /// The printer of `-o` for a command that says `operation` when there is none.
    pub fn from_flags(flags: &FlagSet, operation: &str) -> CommandResult<Self> {
        Self::with_formats(flags, operation, &OBJECT_FORMATS)
    }

    /// The printer of `-o`; `formats` are those that the error of an unknown one lists.
    pub fn with_formats(flags: &FlagSet, operation: &str, formats: &[&str]) -> CommandResult<Self> {
        let mut output = flags.string("output");
        let template = flags.string("template");
        if output.is_empty() && !template.is_empty() {
            output = "go-template".to_owned();
        }
        let format = match output.as_str() {
            "" => None,
            "json" => Some(PrintFormat::Json),
            "yaml" => Some(PrintFormat::Yaml),
            "kyaml" => Some(PrintFormat::Kyaml),
            "name" if formats.contains(&"name") => Some(PrintFormat::Name),
            other => match template_format(other, &template, flags)? {
                Some(format) => Some(format),
                None => return Err(unknown_format(other, formats)),
            },
        };
        Ok(ObjectPrinter {
            format,
            operation: operation.to_owned(),
            show_managed_fields: flags.bool("show-managed-fields"),
            count: Cell::new(0),
        })
    }

    /// Whether messages are printed instead of objects.
    pub fn is_message(&self) -> bool {
        self.format.is_none()
    }

    /// The same printer with another message.
    pub fn set_operation(&mut self, operation: &str) {
        operation.clone_into(&mut self.operation);
    }

    /// Prints an object that has the fields of the answer or file it comes from.
    pub fn print(&self, object: &Value) -> CommandResult {
        self.print_as(object, &self.operation)
    }

    /// Prints an object with a message of its own.
    pub fn print_as(&self, object: &Value, operation: &str) -> CommandResult {
        let Some(format) = &self.format else {
            write_out(&format!("{}{}\n", name_line(object), prefixed(operation)));
            return Ok(());
        };
        let mut object = object.clone();
        // Templates see all fields.
        let filters = matches!(format, PrintFormat::Json | PrintFormat::Yaml | PrintFormat::Kyaml);
        if filters && !self.show_managed_fields {
            omit_managed_fields(&mut object);
        }
        match format {
            PrintFormat::Name => write_out(&format!("{}\n", name_line(&object))),
            PrintFormat::Json => write_out(&format!("{}\n", json_format::format_json(&object))),
            PrintFormat::Yaml => {
                let separator = if self.count.get() > 0 { "---\n" } else { "" };
                write_out(&format!("{separator}{}", api::yaml::write_document(&object)));
            }
            PrintFormat::Kyaml => write_out(&kyaml::format_kyaml(&object)),
            PrintFormat::Template(template, raw) => print_template(template, raw, &object)?,
            PrintFormat::JsonPath(path, raw, as_json) => print_path(path, raw, *as_json, &object)?,
        }
        self.count.set(self.count.get() + 1);
        Ok(())
    }

    /// Whether only names are printed.
    pub fn prints_names(&self) -> bool {
        matches!(self.format, Some(PrintFormat::Name))
    }

    /// Prints a watch event.
    pub fn print_event(&self, event: &str, object: &Value) -> CommandResult {
        if self.prints_names() {
            return self.print(object);
        }
        if matches!(self.format, Some(PrintFormat::Json)) {
            let text = api::json::escape_html(object.to_string());
            write_out(&format!("{{\"type\":\"{event}\",\"object\":{text}}}\n"));
            return Ok(());
        }
        self.print(&serde_json::json!({"type": event, "object": object}))
    }

    /// Prints an object of a known type, as Go prints its struct: all fields that are never left out are there, and JSON has
    /// their order.
    pub fn print_typed(&self, object: &Value) -> CommandResult {
        if let (Some(PrintFormat::Json), Some(text)) =
            (&self.format, json_format::typed_json(object, self.show_managed_fields))
        {
            write_out(&format!("{text}\n"));
            return Ok(());
        }
        self.print(&typed_value(object))
    }
}

fn prefixed(operation: &str) -> String {
    if operation.is_empty() { String::new() } else { format!(" {operation}") }
}

/// `kind.group/name`
pub fn name_line(object: &Value) -> String {
    let (group, _, kind) = object::group_version_kind(object);
    let mut name = object::name_of(object);
    if name.is_empty() {
        name = object.text("metadata.generateName");
    }
    let name = if name.is_empty() { "<unknown>" } else { name };
    let kind = if kind.is_empty() { "<unknown>".to_owned() } else { kind.to_lowercase() };
    if group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{group}/{name}") }
}

/// Removes managed fields from an object and the items of a list.
pub fn omit_managed_fields(object: &mut Value) {
    object::remove_path(object, "metadata.managedFields");
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        object::remove_path(item, "metadata.managedFields");
    }
    if object.get("object").is_some_and(Value::is_object) && object.get("type").is_some() {
        object::remove_path(object, "object.metadata.managedFields");
    }
}

fn template_format(output: &str, template: &str, flags: &FlagSet) -> CommandResult<Option<PrintFormat>> {
    let (name, inline) = output.split_once('=').map_or((output, None), |(name, text)| (name, Some(text)));
    let known: Option<&str> = TEMPLATE_FORMATS.iter().find(|known| **known == name).copied();
    let Some(name) = known else { return Ok(None) };
    let text = match inline {
        Some(text) => text,
        None if !template.is_empty() => template,
        None => crate::bail!("template format specified but no template given"),
    };
    if text.is_empty() {
        crate::bail!("template format specified but no template given");
    }
    let lenient = !flags.has("allow-missing-template-keys") || flags.bool("allow-missing-template-keys");
    if name.starts_with("jsonpath") {
        let text = match name {
            "jsonpath-file" => {
                let read = files::read_file(text);
                let read =
                    read.map_err(|error| CommandError::new(format!("error reading --template {text}, {error}\n")))?;
                String::from_utf8_lossy(&read).into_owned()
            }
            _ => text.to_owned(),
        };
        let mut path = JsonPath::parse(&text)
            .map_err(|error| CommandError::new(format!("error parsing jsonpath {text}, {error}\n")))?;
        path.allow_missing_keys = lenient;
        return Ok(Some(PrintFormat::JsonPath(Box::new(path), text, name == "jsonpath-as-json")));
    }
    let text = match name {
        "go-template-file" | "templatefile" => {
            let read = files::read_file(text);
            let read =
                read.map_err(|error| CommandError::new(format!("error reading --template {text}, {error}\n")))?;
            String::from_utf8_lossy(&read).into_owned()
        }
        _ => text.to_owned(),
    };
    let mut template = GoTemplate::parse(&text)
        .map_err(|error| CommandError::new(format!("error parsing template {text}, {error}\n")))?;
    template.strict = !lenient;
    Ok(Some(PrintFormat::Template(Box::new(template), text)))
}

fn print_template(template: &GoTemplate, raw: &str, object: &Value) -> CommandResult {
    let output = template.execute(object);
    write_out(&output.text);
    let Some(error) = output.error else { return Ok(()) };
    write_out(&format!(
        "Error executing template: {error}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{raw}\n\traw \
         data was:\n\t\t{object}\n\tobject given to template engine was:\n\t\t{}\n\n",
        api::json::go_value(object)
    ));
    Err(CommandError::new(format!("error executing template {}: {error}", go_quote(raw))))
}

fn print_path(path: &JsonPath, raw: &str, as_json: bool, object: &Value) -> CommandResult {
    let text = if as_json {
        path.find_results(object).map(|results| {
            let lists = results.into_iter().map(|results| json_format::format_json(&Value::Array(results)) + "\n");
            lists.collect::<String>()
        })
    } else {
        path.format(object)
    };
    match text {
        Ok(text) => {
            write_out(&text);
            Ok(())
        }
        Err(error) => {
            let shown = json_format::go_syntax(object);
            let text = format!(
                "Error executing template: {error}. Printing more information for debugging the template:\n\ttemplate \
                 was:\n\t\t{raw}\n\tobject given to jsonpath engine was:\n\t\t{shown}\n\n"
            );
            Err(CommandError::new(format!("error executing jsonpath {}: {text}\n", go_quote(raw))))
        }
    }
}
