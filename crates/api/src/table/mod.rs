//! Tables: what `kubectl get` prints, computed on the server as upstream does.

mod event;
mod node;
mod pod;
mod workload;

use jiff::Timestamp;
use serde_json::json;

use crate::{Map, Value, meta, schema::Resource, time};

/// One column: name, type, format, priority.
pub(crate) struct Column(pub &'static str, pub &'static str, pub &'static str, pub u8);

/// How the objects of one kind are printed.
struct Printer {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

const NAME: Column = Column("Name", "string", "name", 0);
const AGE: Column = Column("Age", "string", "", 0);

const PRINTERS: &[Printer] = &[
    Printer { group: "", kind: "Pod", columns: pod::COLUMNS, cells: pod::cells },
    Printer { group: "", kind: "Node", columns: node::COLUMNS, cells: node::cells },
    Printer { group: "", kind: "Namespace", columns: NAMESPACE, cells: namespace },
    Printer { group: "", kind: "Event", columns: event::COLUMNS, cells: event::cells },
    Printer { group: "apps", kind: "Deployment", columns: workload::DEPLOYMENT, cells: workload::deployment },
    Printer { group: "apps", kind: "ReplicaSet", columns: workload::REPLICA_SET, cells: workload::replica_set },
];

const GENERIC: Printer = Printer {
    group: "",
    kind: "",
    columns: &[NAME, Column("Created At", "date", "", 0)],
    cells: |object, _| vec![meta::name(object).into(), meta::text(object, &["metadata", "creationTimestamp"]).into()],
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
    let printer = printer(resource);
    let rows: Vec<Value> = objects.map(|object| row(printer, object, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns(printer), "rows": rows,
    })
}

fn printer(resource: &Resource) -> &'static Printer {
    PRINTERS.iter().find(|p| p.group == resource.group && p.kind == resource.kind).unwrap_or(&GENERIC)
}

fn columns(printer: &Printer) -> Vec<Value> {
    let column = |Column(name, ty, format, priority): &Column| {
        json!({"name": name, "type": ty, "format": format, "description": "", "priority": priority})
    };
    printer.columns.iter().map(column).collect()
}

fn row(printer: &Printer, object: &Value, include: Include, now: Timestamp) -> Value {
    let mut row = Map::new();
    row.insert("cells".into(), (printer.cells)(object, now).into());
    match include {
        Include::None => {}
        Include::Metadata => {
            row.insert("object".into(), partial_metadata(object));
        }
        Include::Object => {
            row.insert("object".into(), object.clone());
        }
    }
    Value::Object(row)
}

/// The object's metadata as a `PartialObjectMetadata`.
pub fn partial_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn age(object: &Value, now: Timestamp) -> Value {
    time::age(Some(meta::text(object, &["metadata", "creationTimestamp"])), now).into()
}

const NAMESPACE: &[Column] = &[NAME, Column("Status", "string", "", 0), AGE];

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![meta::name(object).into(), meta::text(object, &["status", "phase"]).into(), age(object, now)]
}
