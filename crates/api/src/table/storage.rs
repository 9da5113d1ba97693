//! Rows of volumes, claims, storage classes and what drivers say of themselves.

use super::{
    format::{qualified, some, texts},
    printer::{AGE, Column, NAME, boolean, integer, text, wide},
    row::{Row, quantity},
};
use crate::{Value, meta};

const UNSET: &str = "<unset>";

pub(super) const VOLUME: &[Column] = &[
    NAME,
    text("Capacity"),
    text("Access Modes"),
    text("Reclaim Policy"),
    text("Status"),
    text("Claim"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Reason"),
    AGE,
    wide("VolumeMode"),
];

pub(super) fn volume(row: &Row) -> Vec<Value> {
    let claim = row.at(&["spec", "claimRef"]).map_or(String::new(), |claim| {
        format!("{}/{}", meta::text(claim, &["namespace"]), meta::text(claim, &["name"]))
    });
    vec![
        row.name(),
        quantity(row.at(&["spec", "capacity", "storage"])).into(),
        access_modes(row.list(&["spec", "accessModes"])).into(),
        row.text(&["spec", "persistentVolumeReclaimPolicy"]).into(),
        phase(row).into(),
        claim.into(),
        class_name(row).into(),
        set(row, &["spec", "volumeAttributesClassName"]),
        row.text(&["status", "reason"]).into(),
        row.age(),
        set(row, &["spec", "volumeMode"]),
    ]
}

pub(super) const CLAIM: &[Column] = &[
    NAME,
    text("Status"),
    text("Volume"),
    text("Capacity"),
    text("Access Modes"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    AGE,
    wide("VolumeMode"),
];

pub(super) fn claim(row: &Row) -> Vec<Value> {
    let volume = row.text(&["spec", "volumeName"]);
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (quantity(row.at(&["status", "capacity", "storage"])), access_modes(row.list(&["status", "accessModes"]))),
    };
    vec![
        row.name(),
        phase(row).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class_name(row).into(),
        set(row, &["spec", "volumeAttributesClassName"]),
        row.age(),
        set(row, &["spec", "volumeMode"]),
    ]
}

fn phase<'a>(row: &Row<'a>) -> &'a str {
    if row.deleting() { "Terminating" } else { row.text(&["status", "phase"]) }
}

fn class_name<'a>(row: &Row<'a>) -> &'a str {
    match row.annotation("volume.beta.kubernetes.io/storage-class") {
        "" => row.text(&["spec", "storageClassName"]),
        class => class,
    }
}

fn set(row: &Row, path: &[&str]) -> Value {
    row.at(path).and_then(Value::as_str).unwrap_or(UNSET).into()
}

fn access_modes(modes: &[Value]) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let named = SHORT.iter().filter(|(mode, _)| modes.iter().any(|given| given == mode));
    named.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

pub(super) const CLASS: &[Column] =
    &[NAME, text("Provisioner"), text("ReclaimPolicy"), text("VolumeBindingMode"), text("AllowVolumeExpansion"), AGE];

pub(super) fn class(row: &Row) -> Vec<Value> {
    let default = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let mut name = row.text(&["metadata", "name"]).to_owned();
    if default.iter().any(|annotation| row.annotation(annotation) == "true") {
        name.push_str(" (default)");
    }
    vec![
        name.into(),
        row.text(&["provisioner"]).into(),
        row.text_or(&["reclaimPolicy"], "Delete"),
        row.text_or(&["volumeBindingMode"], "Immediate"),
        row.boolean_or(&["allowVolumeExpansion"], false),
        row.age(),
    ]
}

pub(super) const ATTRIBUTES_CLASS: &[Column] = &[NAME, text("DriverName"), AGE];

pub(super) fn attributes_class(row: &Row) -> Vec<Value> {
    vec![row.name(), row.text(&["driverName"]).into(), row.age()]
}

pub(super) const ATTACHMENT: &[Column] =
    &[NAME, Column { format: "name", ..text("Attacher") }, text("PV"), text("Node"), boolean("Attached"), AGE];

pub(super) fn attachment(row: &Row) -> Vec<Value> {
    vec![
        row.name(),
        row.text(&["spec", "attacher"]).into(),
        row.text(&["spec", "source", "persistentVolumeName"]).into(),
        row.text(&["spec", "nodeName"]).into(),
        row.boolean_or(&["status", "attached"], false),
        row.age(),
    ]
}

pub(super) const CSI_NODE: &[Column] = &[NAME, integer("Drivers"), AGE];

pub(super) fn csi_node(row: &Row) -> Vec<Value> {
    vec![row.name(), row.count(&["spec", "drivers"]).into(), row.age()]
}

pub(super) const CSI_DRIVER: &[Column] = &[
    NAME,
    boolean("AttachRequired"),
    boolean("PodInfoOnMount"),
    boolean("StorageCapacity"),
    text("TokenRequests"),
    boolean("RequiresRepublish"),
    text("Modes"),
    AGE,
];

pub(super) fn csi_driver(row: &Row) -> Vec<Value> {
    let audience = |request: &Value| meta::text(request, &["audience"]).to_owned();
    let tokens = row.at(&["spec", "tokenRequests"]).and_then(Value::as_array);
    let tokens = tokens.map(|requests| requests.iter().map(audience).collect::<Vec<_>>().join(","));
    let modes = texts(row.list(&["spec", "volumeLifecycleModes"])).join(",");
    vec![
        row.name(),
        row.boolean_or(&["spec", "attachRequired"], true),
        row.boolean_or(&["spec", "podInfoOnMount"], false),
        row.boolean_or(&["spec", "storageCapacity"], false),
        tokens.unwrap_or_else(|| UNSET.to_owned()).into(),
        row.boolean_or(&["spec", "requiresRepublish"], false),
        if modes.is_empty() { "<none>".into() } else { modes.into() },
        row.age(),
    ]
}

pub(super) const MIGRATION: &[Column] = &[text("Name"), text("Resource"), text("Status")];

pub(super) fn migration(row: &Row) -> Vec<Value> {
    let resource = qualified(row.text(&["spec", "resource", "resource"]), row.text(&["spec", "resource", "group"]));
    let conditions = row.list(&["status", "conditions"]).iter().filter(|condition| condition["status"] == "True");
    let mut known = conditions.map(|condition| meta::text(condition, &["type"]));
    let status = known.rfind(|ty| matches!(*ty, "Running" | "Failed" | "Succeeded")).unwrap_or("Unknown");
    vec![row.name(), resource.into(), status.into()]
}

pub(super) const STORAGE_VERSION: &[Column] = &[NAME, text("CommonEncodingVersion"), text("StorageVersions"), AGE];

pub(super) fn storage_version(row: &Row) -> Vec<Value> {
    let version = |version: &Value| {
        format!("{}={}", meta::text(version, &["apiServerID"]), meta::text(version, &["encodingVersion"]))
    };
    let versions: Vec<String> = row.list(&["status", "storageVersions"]).iter().map(version).collect();
    vec![row.name(), set(row, &["status", "commonEncodingVersion"]), some(&versions).into(), row.age()]
}
