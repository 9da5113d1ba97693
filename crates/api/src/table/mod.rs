//! Tables: what `kubectl get` prints, computed on the server as upstream does.
//!
//! `schema/columns.txt` has the columns of each kind and what stands in them; what its words cannot say is a function here.
//! Kinds without an entry get a name and a time of creation.

mod cell;
mod columns;
mod functions;
mod network;
mod pod;
mod row;

use std::borrow::Cow;

use columns::Printer;
use jiff::Timestamp;
use row::Row;
use serde_json::json;

use crate::{
    Map, Value, convert, meta,
    schema::{CustomResourceSchema, PrinterColumn, Resource, schema},
};

/// How much of each object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// A table of `objects`; `metadata` is the list's.
pub fn table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let mut objects: Vec<&Value> = objects.collect();
    if let Some(custom) = &resource.custom {
        return custom_table(&**custom, &objects, metadata, include, now);
    }
    let printer = objects
        .first()
        .and_then(|first| printer_of(first))
        .unwrap_or_else(|| columns::of(resource.group, resource.kind));
    if let Some(order) = printer.order {
        objects.sort_by_cached_key(|object| (Row { object, now }.number(order), meta::name(object).to_owned()));
    }
    let rows: Vec<Value> = objects.into_iter().map(|object| row(printer, resource, object, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns(printer), "rows": rows,
    })
}

/// A table by the columns of a definition.
fn custom_table(
    custom: &dyn CustomResourceSchema,
    objects: &[&Value],
    metadata: Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let column = |column: PrinterColumn| {
        json!({"name": column.name, "type": column.ty, "format": column.format,
            "description": column.description, "priority": column.priority})
    };
    let row = |object: &&Value| {
        let mut row = Map::new();
        row.insert("cells".into(), custom.table_cells(object, now).into());
        carry(&mut row, object, include);
        Value::Object(row)
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": custom.printer_columns().into_iter().map(column).collect::<Vec<_>>(),
        "rows": objects.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The printer of an object that says what it is: subresources answer with other kinds than their resource.
fn printer_of(object: &Value) -> Option<&'static Printer> {
    let (api_version, kind) = (meta::text(object, &["apiVersion"]), meta::text(object, &["kind"]));
    if kind.is_empty() {
        return None;
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Some(columns::of(group, kind))
}

fn columns(printer: &Printer) -> Vec<Value> {
    let column = |column: &columns::Column| json!({"name": column.name, "type": column.ty, "format": column.format, "description": "", "priority": column.priority});
    printer.columns.iter().map(column).collect()
}

fn row(printer: &Printer, resource: &Resource, object: &Value, include: Include, now: Timestamp) -> Value {
    let printed = as_printed(printer, resource, object);
    let mut row = Map::new();
    row.insert("cells".into(), printer.cells(&Row { object: &printed, now }).into());
    if let Some(marks) = printer.marks.map(|marks| marks(&Row { object, now })).filter(|marks| !marks.is_null()) {
        row.insert("conditions".into(), marks);
    }
    carry(&mut row, object, include);
    Value::Object(row)
}

/// Puts as much of an object into its row as is asked for.
fn carry(row: &mut Map, object: &Value, include: Include) {
    match include {
        Include::None => {}
        Include::Metadata => {
            let mut metadata = partial_metadata(object);
            hide(&mut metadata["metadata"]);
            row.insert("object".into(), metadata);
        }
        Include::Object => {
            row.insert("object".into(), object.clone());
        }
    }
}

/// Tables show upstream's inner objects, where the count of a template's changes is a field and no annotation.
fn hide(metadata: &mut Value) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(meta::TEMPLATE_GENERATION);
    if annotations.is_empty() {
        meta::object_mut(metadata).remove("annotations");
    }
}

/// The object in the version that its printer reads.
fn as_printed<'a>(printer: &Printer, resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    let Some((group, version)) = printer.reads.filter(|reads| *reads != (resource.group, resource.version)) else {
        return Cow::Borrowed(object);
    };
    let Some(wanted) = schema().resource(group, version, resource.name) else { return Cow::Borrowed(object) };
    let mut object = object.clone();
    if meta::text(&object, &["apiVersion"]).is_empty() {
        meta::object_mut(&mut object).insert("apiVersion".into(), resource.api_version().into());
    }
    Cow::Owned(convert::to(wanted, object))
}

/// The object's metadata as a `PartialObjectMetadata`.
pub fn partial_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
