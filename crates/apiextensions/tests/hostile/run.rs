//! Runs all operations on a CRD and a custom resource: the CRD is decoded and validated; if it is valid, the object is
//! pruned, defaulted, validated, applied, printed and converted to other versions.

use std::sync::Arc;

use api::{
    Value,
    apply::{self, ApplyRequest, ApplyTarget},
    decode::{self, FieldValidation},
    json, request_body,
    schema::{CustomResourceSchema, ObjectWrite, Resource, schema},
    validate,
};
use ferry_apiextensions::{
    CrdInfo, CrdVersion,
    openapi::{OpenApiVersion, version_schemas},
};
use serde_json::json;

/// Runs an input of three lines: a version of a CRD, an object, and the old object. Returns whether the CRD is valid.
pub fn run_input(data: &[u8]) -> bool {
    let mut lines = data.splitn(3, |byte| *byte == b'\n').map(|line| json::parse(line).map(|(value, _)| value));
    let Some(Ok(version)) = lines.next() else { return false };
    let Some(definition) = parse_accepted(version) else { return false };
    let objects: Vec<Value> = lines.filter_map(Result::ok).collect();
    for (at, _) in definition.versions.iter().enumerate() {
        let _ = [OpenApiVersion::V2, OpenApiVersion::V3].map(|dialect| version_schemas(&definition, at, dialect));
        let row = definition.build_resource(at);
        let read: Vec<Value> = objects.iter().filter_map(|object| decode_object(&row, object.clone())).collect();
        exercise_resource(&row, &read);
    }
    true
}

/// Parses the CRD; `None` if validation rejects it.
fn parse_accepted(version: Value) -> Option<Arc<CrdInfo>> {
    let resource = schema().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
    let whole = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.io"}, "spec": {"group": "example.io", "scope": "Namespaced",
        "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
        "versions": [version, {"name": "v0", "served": true, "storage": false, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let mut object = decode::canonicalize(resource.ty, whole).ok()?.object;
    api::defaults::apply_defaults(resource.ty, &mut object);
    let mut errors = validate::validate_create(resource, &object);
    if errors.is_empty() {
        errors = ferry_apiextensions::validate_crd_rules(&object, None);
    }
    if !errors.is_empty() {
        errors.iter().for_each(|error| drop(error.to_string()));
        return None;
    }
    object["status"]["acceptedNames"] = object["spec"]["names"].clone();
    let document = object.to_string().into();
    let definition = CrdInfo::new(&object, &document).expect("what is let pass can be served");
    Some(Arc::new(definition))
}

fn decode_object(row: &Resource, mut object: Value) -> Option<Value> {
    let map = object.as_object_mut()?;
    map.insert("apiVersion".into(), row.api_version().into());
    map.insert("kind".into(), row.kind.into());
    let (object, _) = request_body::decode_custom_value(row, object, FieldValidation::Warn).ok()?;
    let again = request_body::decode_custom_value(row, object.clone(), FieldValidation::Warn)
        .expect("what was read can be read")
        .0;
    assert_eq!(again, object, "what has its defaults is not changed");
    Some(object)
}

fn exercise_resource(row: &Arc<Resource>, objects: &[Value]) {
    let version = row.custom_schema.as_deref().and_then(CrdVersion::from_schema).expect("it is of a definition");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let _ = version.printer_columns();
    for object in objects {
        let _ = (
            version.table_cells(object, now),
            validate::validate_create(row, object),
            version.upgrade_stored(object.clone()),
        );
    }
    let [object, old] = objects else { return };
    for subresource in ["", "status"] {
        let faults = version.validate_write(ObjectWrite { object, old: Some(old), subresource });
        faults.iter().for_each(|fault| drop(fault.to_string()));
    }
    let writer =
        |manager| ApplyRequest { target: ApplyTarget::for_resource(row, ""), manager, now: "2026-01-01T00:00:00Z" };
    if let Ok(applied) = apply::apply_config(&writer("a"), Some(old), object, true) {
        let _ = apply::apply_config(&writer("b"), Some(&applied), old, false);
    }
}
