//! Server-side printing: `Table` responses as for `kubectl get`.
//!
//! `schema/columns.txt` has the columns of each kind; functions here compute the cells that it cannot express. Kinds
//! without an entry print name and age.

mod cell_expression;
mod network_cells;
mod pod_cells;
mod printed_object;
mod printer_functions;
mod printers;

use std::borrow::Cow;

use jiff::Timestamp;
use printed_object::PrintedObject;
use printers::TablePrinter;
use serde_json::json;

use crate::{
    Map, Value, convert, meta,
    schema::{CustomResourceSchema, PrinterColumn, Resource, schema},
};

/// The object in each row (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// No object.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// Builds the table of `objects`; `metadata` is the list's.
pub fn build_table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let mut objects: Vec<&Value> = objects.collect();
    if let Some(custom) = &resource.custom_schema {
        return build_custom_table(&**custom, &objects, metadata, include, now);
    }
    let printer = objects
        .first()
        .and_then(|first| printer_for_object(first))
        .unwrap_or_else(|| printers::printer_for(resource.group, resource.kind));
    if let Some(order) = printer.sort_path {
        objects.sort_by_cached_key(|object| {
            (PrintedObject { object, now }.integer_at(order), meta::name(object).to_owned())
        });
    }
    let rows: Vec<Value> =
        objects.into_iter().map(|object| build_row(printer, resource, object, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": column_definitions(printer), "rows": rows,
    })
}

/// Builds a table with the printer columns of a CRD.
fn build_custom_table(
    custom: &dyn CustomResourceSchema,
    objects: &[&Value],
    metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let column = |column: PrinterColumn| {
        json!({"name": column.name, "type": column.ty, "format": column.format,
            "description": column.description, "priority": column.priority})
    };
    let row = |object: &&Value| {
        let mut row = Map::new();
        row.insert("cells".into(), custom.table_cells(object, now).into());
        insert_object(&mut row, object, include);
        Value::Object(row)
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": custom.printer_columns().into_iter().map(column).collect::<Vec<_>>(),
        "rows": objects.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The printer of an object by its own kind: subresources respond with other kinds.
fn printer_for_object(object: &Value) -> Option<&'static TablePrinter> {
    let (api_version, kind) = (meta::string_at(object, &["apiVersion"]), meta::string_at(object, &["kind"]));
    if kind.is_empty() {
        return None;
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Some(printers::printer_for(group, kind))
}

fn column_definitions(printer: &TablePrinter) -> Vec<Value> {
    let column = |column: &printers::ColumnDefinition| json!({"name": column.name, "type": column.ty, "format": column.format, "description": "", "priority": column.priority});
    printer.columns.iter().map(column).collect()
}

fn build_row(
    printer: &TablePrinter,
    resource: &Resource,
    object: &Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let printed = convert_for_printer(printer, resource, object);
    let mut row = Map::new();
    row.insert("cells".into(), printer.row_cells(&PrintedObject { object: &printed, now }).into());
    if let Some(marks) =
        printer.row_conditions.map(|marks| marks(&PrintedObject { object, now })).filter(|marks| !marks.is_null())
    {
        row.insert("conditions".into(), marks);
    }
    insert_object(&mut row, object, include);
    Value::Object(row)
}

/// Inserts the requested part of an object into its row.
fn insert_object(row: &mut Map, object: &Value, include: IncludeObject) {
    match include {
        IncludeObject::None => {}
        IncludeObject::Metadata => {
            let mut metadata = partial_metadata(object);
            hide_template_generation(&mut metadata["metadata"]);
            row.insert("object".into(), metadata);
        }
        IncludeObject::Object => {
            row.insert("object".into(), object.clone());
        }
    }
}

/// Tables print upstream's internal objects, where the template generation is a field instead of an annotation.
fn hide_template_generation(metadata: &mut Value) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(meta::TEMPLATE_GENERATION_ANNOTATION);
    if annotations.is_empty() {
        meta::object_mut(metadata).remove("annotations");
    }
}

/// Converts the object to the version that its printer reads.
fn convert_for_printer<'a>(printer: &TablePrinter, resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    let Some((group, version)) = printer.source_version.filter(|reads| *reads != (resource.group, resource.version))
    else {
        return Cow::Borrowed(object);
    };
    let Some(wanted) = schema().resource(group, version, resource.name) else { return Cow::Borrowed(object) };
    let mut object = object.clone();
    if meta::string_at(&object, &["apiVersion"]).is_empty() {
        meta::object_mut(&mut object).insert("apiVersion".into(), resource.api_version().into());
    }
    Cow::Owned(convert::convert_to(wanted, object))
}

/// Wraps the object's metadata in a `PartialObjectMetadata`.
pub fn partial_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// Joins the first `most` texts and appends the number of the others.
fn join_truncated(list: &[String], most: usize, between: &str) -> String {
    let shown = list[..list.len().min(most)].join(between);
    if list.len() > most { format!("{shown} + {} more...", list.len() - most) } else { shown }
}
