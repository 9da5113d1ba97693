//! The text of a description: indented lines whose cells are aligned.

use api::{Map, Value};
use jiff::Timestamp;

use crate::{object::ObjectFields, output::escape_terminal, tab_writer::TabWriter};

/// A description under construction.
#[derive(Default)]
pub struct Description {
    text: String,
}

impl Description {
    /// Adds a line; `level` indents it by two spaces each, tabs separate cells.
    pub fn line(&mut self, level: usize, text: &str) {
        (0..level).for_each(|_| self.text.push_str("  "));
        self.text.push_str(&escape_terminal(text));
        self.text.push('\n');
    }

    /// Adds `label:` and a value.
    pub fn field(&mut self, level: usize, label: &str, value: &str) {
        self.line(level, &format!("{label}:\t{value}"));
    }

    /// Adds raw text.
    pub fn raw(&mut self, text: &str) {
        self.text.push_str(&escape_terminal(text));
    }

    /// Adds a map, one entry a line: `Labels: a=b`.
    pub fn map(&mut self, level: usize, label: &str, map: Option<&Map>) {
        let indent = "  ".repeat(level);
        self.raw(&format!("{indent}{label}:\t"));
        let entries: Vec<_> = map.into_iter().flatten().collect();
        if entries.is_empty() {
            self.raw("<none>\n");
            return;
        }
        for (at, (key, value)) in entries.iter().enumerate() {
            if at > 0 {
                self.raw("\t");
            }
            self.raw(&format!("{key}={}\n", value.as_str().unwrap_or_default()));
        }
    }

    /// Adds annotations, without the one of client-side apply.
    pub fn annotations(&mut self, level: usize, label: &str, map: Option<&Map>) {
        let indent = "  ".repeat(level);
        self.raw(&format!("{indent}{label}:\t"));
        let entries: Vec<_> =
            map.into_iter().flatten().filter(|(key, _)| *key != crate::object::LAST_APPLIED).collect();
        if entries.is_empty() {
            self.raw("<none>\n");
            return;
        }
        for (at, (key, value)) in entries.iter().enumerate() {
            if at > 0 {
                self.raw("\t");
            }
            let value = value.as_str().unwrap_or_default().trim_end_matches('\n');
            if value.len() + key.len() + 2 > 140 || value.contains('\n') {
                self.raw(&format!("{key}:\n"));
                for line in value.split('\n') {
                    self.raw(&format!("{indent}\t  {}\n", shorten(line)));
                }
            } else {
                self.raw(&format!("{key}: {value}\n"));
            }
        }
    }

    /// Name, namespace, labels and annotations.
    pub fn metadata(&mut self, object: &Value, namespaced: bool) {
        self.field(0, "Name", object.text("metadata.name"));
        if namespaced {
            self.field(0, "Namespace", object.text("metadata.namespace"));
        }
        self.map(0, "Labels", object.map("metadata.labels"));
        self.annotations(0, "Annotations", object.map("metadata.annotations"));
    }

    /// The text with tabs, for output that is not aligned.
    pub fn into_raw(self) -> String {
        self.text
    }

    /// The aligned text.
    pub fn finish(self) -> String {
        let mut writer = TabWriter::new(0, 2);
        writer.push(&self.text);
        writer.flush()
    }
}

/// Cuts a line at 140 characters.
fn shorten(line: &str) -> String {
    if line.chars().count() > 140 {
        format!("{}...", line.chars().take(140).collect::<String>())
    } else {
        line.to_owned()
    }
}

/// A time as descriptions write it.
pub fn format_time(text: &str) -> String {
    match api::time::parse(text) {
        Some(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime("%a, %d %b %Y %H:%M:%S %z").to_string(),
        None => "<unset>".to_owned(),
    }
}

/// The age since a time.
pub fn format_age(text: &str) -> String {
    api::time::format_age((!text.is_empty()).then_some(text), Timestamp::now())
}

/// A list of strings joined, or `<none>`.
pub fn join_or_none(items: &[Value], separator: &str) -> String {
    let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    if texts.is_empty() { "<none>".to_owned() } else { texts.join(separator) }
}

/// An integer or a string as text.
pub fn scalar_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(value) => api::json::go_value(value),
    }
}
