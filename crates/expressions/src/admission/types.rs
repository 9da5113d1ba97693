//! The CEL types of `request` and `namespaceObject`.

use crate::record::{
    RecordFieldType::{Any, Bool, Int, Record as Of, Records, Text, TextLists, TextMap, Texts, Time},
    RecordType,
};

const KIND: RecordType =
    RecordType { name: "kubernetes.GroupVersionKind", fields: &[("group", Text), ("version", Text), ("kind", Text)] };
const RESOURCE: RecordType = RecordType {
    name: "kubernetes.GroupVersionResource",
    fields: &[("group", Text), ("version", Text), ("resource", Text)],
};
const USER: RecordType = RecordType {
    name: "kubernetes.UserInfo",
    fields: &[("username", Text), ("uid", Text), ("groups", Texts), ("extra", TextLists)],
};

/// The type of `request`, without the objects, which are variables of their own.
pub const REQUEST: RecordType = RecordType {
    name: "kubernetes.AdmissionRequest",
    fields: &[
        ("kind", Of(&KIND)),
        ("resource", Of(&RESOURCE)),
        ("subResource", Text),
        ("requestKind", Of(&KIND)),
        ("requestResource", Of(&RESOURCE)),
        ("requestSubResource", Text),
        ("name", Text),
        ("namespace", Text),
        ("operation", Text),
        ("userInfo", Of(&USER)),
        ("dryRun", Bool),
        ("options", Any),
    ],
};

const CONDITION: RecordType = RecordType {
    name: "kubernetes.NamespaceCondition",
    fields: &[("status", Text), ("type", Text), ("lastTransitionTime", Time), ("message", Text), ("reason", Text)],
};
const METADATA: RecordType = RecordType {
    name: "kubernetes.NamespaceMetadata",
    fields: &[
        ("name", Text),
        ("generateName", Text),
        ("namespace", Text),
        ("labels", TextMap),
        ("annotations", TextMap),
        ("UID", Text),
        ("creationTimestamp", Time),
        ("deletionGracePeriodSeconds", Int),
        ("deletionTimestamp", Time),
        ("generation", Int),
        ("resourceVersion", Text),
        ("finalizers", Texts),
    ],
};

/// The type of `namespaceObject`, limited to the fields that upstream exposes.
pub const NAMESPACE: RecordType = RecordType {
    name: "kubernetes.Namespace",
    fields: &[
        ("metadata", Of(&METADATA)),
        ("spec", Of(&RecordType { name: "kubernetes.NamespaceSpec", fields: &[("finalizers", Texts)] })),
        (
            "status",
            Of(&RecordType {
                name: "kubernetes.NamespaceStatus",
                fields: &[("conditions", Records(&CONDITION)), ("phase", Text)],
            }),
        ),
    ],
};
