//! Tables: those of the server, and simple ones made here.

use api::Value;
use jiff::Timestamp;

use crate::{
    object::{self, ObjectFields},
    output::escape_terminal,
    tab_writer::TabWriter,
};

/// Options of table printing.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// Whether headers are left out.
    pub no_headers: bool,
    /// Whether all columns are shown.
    pub wide: bool,
    /// Whether a column has the namespace.
    pub with_namespace: bool,
    /// Whether a column has all labels.
    pub show_labels: bool,
    /// Labels that get a column each.
    pub label_columns: Vec<String>,
    /// The kind before each name; empty for none.
    pub kind: String,
}

/// A printer of tables, which prints headers once per kind of table.
#[derive(Clone, Debug, Default)]
pub struct TablePrinter {
    options: TableOptions,
    columns: Vec<Value>,
    printed_headers: bool,
}

impl TablePrinter {
    /// A printer.
    pub fn new(options: TableOptions) -> Self {
        TablePrinter { options, ..Default::default() }
    }

    /// Adds an object, a list or a table to the writer; `event` is the type of a watch event.
    pub fn write(&mut self, writer: &mut TabWriter, value: &Value, event: &str) {
        if value.text("kind") == "Table" && value.text("apiVersion").starts_with("meta.k8s.io/") {
            self.write_table(writer, value.list("columnDefinitions").to_vec(), value.list("rows").to_vec(), event);
            return;
        }
        let items = if object::is_list(value) { value.list("items").to_vec() } else { vec![value.clone()] };
        let columns = vec![
            serde_json::json!({"name": "Name", "type": "string", "format": "name"}),
            serde_json::json!({"name": "Age", "type": "string"}),
        ];
        let now = Timestamp::now();
        let row = |object: Value| {
            let created = object.text("metadata.creationTimestamp");
            let age = api::time::format_age((!created.is_empty()).then_some(created), now);
            serde_json::json!({"cells": [object::name_of(&object), age], "object": object})
        };
        self.write_table(writer, columns, items.into_iter().map(row).collect(), event);
    }

    fn write_table(&mut self, writer: &mut TabWriter, columns: Vec<Value>, rows: Vec<Value>, event: &str) {
        let mut no_headers = self.options.no_headers;
        if self.printed_headers && (columns.is_empty() || columns == self.columns) {
            no_headers = true;
        }
        if !columns.is_empty() && columns != self.columns {
            self.columns = columns;
            self.printed_headers = false;
        }
        if rows.is_empty() {
            return;
        }
        self.printed_headers = true;
        let shown: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| self.options.wide || column.integer("priority").unwrap_or(0) == 0)
            .map(|(at, _)| at)
            .collect();
        if !no_headers {
            writer.push_row(&self.header(&shown, event));
        }
        for row in &rows {
            let cells = self.row_cells(row, &shown, event);
            writer.push_row(&cells);
        }
    }

    fn header(&self, shown: &[usize], event: &str) -> Vec<String> {
        let mut cells = Vec::new();
        if !event.is_empty() {
            cells.push("EVENT".to_owned());
        }
        if self.options.with_namespace {
            cells.push("NAMESPACE".to_owned());
        }
        cells.extend(shown.iter().map(|at| self.columns[*at].text("name").to_uppercase()));
        let short = |label: &String| label.rsplit('/').next().unwrap_or(label).to_uppercase();
        cells.extend(self.options.label_columns.iter().map(short));
        if self.options.show_labels {
            cells.push("LABELS".to_owned());
        }
        cells
    }

    fn row_cells(&self, row: &Value, shown: &[usize], event: &str) -> Vec<String> {
        let name_column = self.columns.iter().position(|column| column.text("format") == "name");
        let mut cells = Vec::new();
        if !event.is_empty() {
            cells.push(format!("{event:<10}"));
        }
        if self.options.with_namespace {
            cells.push(row.text("object.metadata.namespace").to_owned());
        }
        let values = row.list("cells");
        for at in shown {
            let text = values.get(*at).map(cell_text).unwrap_or_default();
            let named = Some(*at) == name_column && !self.options.kind.is_empty();
            cells.push(if named { format!("{}/{text}", self.options.kind.to_lowercase()) } else { text });
        }
        let labels = row.map("object.metadata.labels");
        let label = |name: &String| {
            let value = labels.and_then(|labels| labels.get(name)).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        cells.extend(self.options.label_columns.iter().map(label));
        if self.options.show_labels {
            cells.push(format_labels(row.at("object.metadata.labels")));
        }
        cells
    }
}

/// `a=b,c=d`, or `<none>`.
pub fn format_labels(labels: Option<&Value>) -> String {
    let pairs: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// The text of a cell: its first line, with control characters made visible.
fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => match text.find(['\u{c}', '\n', '\r']) {
            Some(at) => format!("{}...", escape_terminal(&text[..at])),
            None => escape_terminal(text),
        },
        other => escape_terminal(&api::json::go_value(other)),
    }
}
