//! Printer columns of a CRD version: the object's name, then `additionalPrinterColumns` evaluated by JSONPath.

use api::{Value, meta, schema::PrinterColumn, time};
use jiff::Timestamp;

use crate::jsonpath::JsonPath;

/// The printer columns of one CRD version, with their parsed JSONPaths.
#[derive(Debug)]
pub struct TableConvertor {
    columns: Vec<(PrinterColumn, Option<JsonPath>)>,
}

impl TableConvertor {
    /// Parses `additionalPrinterColumns`; defaults to a single `Age` column.
    pub fn new(version: &Value) -> Self {
        let list = version.get("additionalPrinterColumns").and_then(Value::as_array).filter(|list| !list.is_empty());
        let columns = match list {
            Some(list) => list.iter().map(parse_printer_column).collect(),
            None => {
                let age = PrinterColumn {
                    name: "Age".into(),
                    ty: "date".into(),
                    format: String::new(),
                    description: "When the object was created.".into(),
                    priority: 0,
                };
                vec![(age, JsonPath::parse(".metadata.creationTimestamp"))]
            }
        };
        Self { columns }
    }

    /// Returns the column definitions of the table.
    pub fn printer_columns(&self) -> Vec<PrinterColumn> {
        let name = PrinterColumn {
            name: "Name".into(),
            ty: "string".into(),
            format: "name".into(),
            description: "The name of the object.".into(),
            priority: 0,
        };
        std::iter::once(name).chain(self.columns.iter().map(|(column, _)| column.clone())).collect()
    }

    /// Returns the cells of an object's table row.
    pub fn row_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let cell = |(column, path): &(PrinterColumn, Option<JsonPath>)| {
            let found = path.as_ref().map(|path| path.find_values(object)).unwrap_or_default();
            found.first().map_or(Value::Null, |value| format_cell(&column.ty, value, now))
        };
        std::iter::once(meta::name(object).into()).chain(self.columns.iter().map(cell)).collect()
    }
}

fn parse_printer_column(column: &Value) -> (PrinterColumn, Option<JsonPath>) {
    let text = |name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let path = text("jsonPath");
    let description = match text("description") {
        none if none.is_empty() => format!("Custom resource definition column (in JSONPath format): {path}"),
        text => text,
    };
    let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
    let column = PrinterColumn { name: text("name"), ty: text("type"), format: text("format"), description, priority };
    (column, JsonPath::parse(&path))
}

fn format_cell(ty: &str, value: &Value, now: Timestamp) -> Value {
    match (ty, value) {
        ("string", Value::String(text)) => text.clone().into(),
        ("string", Value::Null) => "null".into(),
        ("string", value) => value.to_string().into(),
        ("integer", value) => match value.as_i64() {
            Some(number) => number.into(),
            None => value.as_f64().map_or(Value::Null, |number| (number as i64).into()),
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match time::parse(text) {
            Some(_) => time::format_age(Some(text), now).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}
