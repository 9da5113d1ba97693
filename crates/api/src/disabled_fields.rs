//! Drops fields whose feature gate is off by default, as kube-apiserver does before validation.
//!
//! `schema/disabled_fields.txt` has the gates and their fields. An object that already uses a field of a gate keeps all of
//! them, so that an update changes nothing that was accepted before.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    Map, Value,
    schema::{FieldType, GateOpenedTooLate, TypeId, open_gate, schema},
};

const DISABLED_FIELDS: &str = include_str!("../schema/disabled_fields.txt");

/// A step from a value to the values inside it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DisabledPathStep {
    /// A field of a struct.
    Field(&'static str),
    /// All items of a list, or all values of a map.
    Each,
}

/// A line of the table for one field.
#[derive(Clone, Copy, Debug)]
struct DisabledField {
    group: &'static str,
    type_name: &'static str,
    field: &'static str,
    /// Dropped only if it has a field of this name.
    condition: Option<&'static str>,
    /// Its struct is dropped too once that is empty.
    drops_empty_struct: bool,
}

/// A disabled field at a place of a kind.
#[derive(Clone, Debug)]
struct DisabledPath {
    steps: Vec<DisabledPathStep>,
    field: DisabledField,
}

/// The disabled fields of a kind, by gate.
type DisabledGates = Vec<Vec<DisabledPath>>;

static DISABLED_PATHS: LazyLock<HashMap<TypeId, DisabledGates>> = LazyLock::new(|| {
    let types = schema().resources().iter().map(|resource| resource.ty);
    types.map(|ty| (ty, gates_of_type(ty))).filter(|(_, gates)| !gates.is_empty()).collect()
});

/// Keeps the fields of a feature gate for the lifetime of the process; returns whether the table has the gate. Must run before
/// the schema is used.
pub fn enable_feature_gate(name: &str) -> Result<bool, GateOpenedTooLate> {
    match gates().find(|(gate, _)| *gate == name) {
        Some((gate, _)) => open_gate(gate).map(|()| true),
        None => Ok(false),
    }
}

/// The gates of the table with their fields.
fn gates() -> impl Iterator<Item = (&'static str, &'static str)> {
    DISABLED_FIELDS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(':'))
}

/// Drops the disabled fields of an object of a built-in type, unless `current`, the stored object, uses them.
pub fn drop_disabled_fields(ty: TypeId, object: &mut Value, current: Option<&Value>) {
    for paths in DISABLED_PATHS.get(&ty).into_iter().flatten() {
        if !current.is_some_and(|current| paths.iter().any(|path| path.is_used_in(current))) {
            paths.iter().for_each(|path| path.drop_from(object));
        }
    }
}

impl DisabledField {
    /// Parses `group.Type.field`, with marks.
    fn parse(word: &'static str) -> Option<Self> {
        let (word, drops_empty_struct) = word.strip_suffix('+').map_or((word, false), |word| (word, true));
        let (word, condition) = word.split_once('?').map_or((word, None), |(word, name)| (word, Some(name)));
        let (group, rest) = word.split_once('.')?;
        let (type_name, field) = rest.split_once('.')?;
        Some(Self { group, type_name, field, condition, drops_empty_struct })
    }
}

impl DisabledPath {
    fn is_used_in(&self, object: &Value) -> bool {
        let mut used = false;
        visit(object, &self.steps, &mut |found| {
            used |= found.get(self.field.field).is_some_and(|value| !value.is_null());
        });
        used
    }

    fn drop_from(&self, object: &mut Value) {
        let DisabledField { field, condition, drops_empty_struct, .. } = self.field;
        let is_dropped = |value: &Value| match condition {
            Some(name) => value.get(name).is_some_and(|inner| !inner.is_null() && inner != ""),
            None => true,
        };
        let mut drop_field = |found: &mut Map| {
            if found.get(field).is_some_and(is_dropped) {
                found.remove(field);
            }
        };
        match self.steps.split_last() {
            Some((DisabledPathStep::Field(parent), steps)) if drops_empty_struct => {
                visit_mut(object, steps, &mut |found| {
                    let Some(Value::Object(inner)) = found.get_mut(*parent) else { return };
                    let was_empty = inner.is_empty();
                    drop_field(inner);
                    if inner.is_empty() && !was_empty {
                        found.remove(*parent);
                    }
                });
            }
            _ => visit_mut(object, &self.steps, &mut drop_field),
        }
    }
}

/// Calls `use_map` with each object at the end of `steps`.
fn visit(value: &Value, steps: &[DisabledPathStep], use_map: &mut impl FnMut(&Map)) {
    match (steps.split_first(), value) {
        (None, Value::Object(map)) => use_map(map),
        (Some((DisabledPathStep::Field(name), rest)), Value::Object(map)) => {
            map.get(*name).into_iter().for_each(|inner| visit(inner, rest, use_map));
        }
        (Some((DisabledPathStep::Each, rest)), Value::Array(items)) => {
            items.iter().for_each(|item| visit(item, rest, use_map))
        }
        (Some((DisabledPathStep::Each, rest)), Value::Object(map)) => {
            map.iter().for_each(|(_, inner)| visit(inner, rest, use_map));
        }
        _ => {}
    }
}

/// As [`visit`], with objects that may be changed.
fn visit_mut(value: &mut Value, steps: &[DisabledPathStep], use_map: &mut impl FnMut(&mut Map)) {
    match (steps.split_first(), value) {
        (None, Value::Object(map)) => use_map(map),
        (Some((DisabledPathStep::Field(name), rest)), Value::Object(map)) => {
            map.get_mut(*name).into_iter().for_each(|inner| visit_mut(inner, rest, use_map));
        }
        (Some((DisabledPathStep::Each, rest)), Value::Array(items)) => {
            items.iter_mut().for_each(|item| visit_mut(item, rest, use_map));
        }
        (Some((DisabledPathStep::Each, rest)), Value::Object(map)) => {
            map.iter_mut().for_each(|(_, inner)| visit_mut(inner, rest, use_map));
        }
        _ => {}
    }
}

fn gates_of_type(ty: TypeId) -> DisabledGates {
    let closed = gates().filter(|(gate, _)| !schema().has_gate(gate));
    let gates = closed.map(|(_, fields)| fields.split_whitespace().filter_map(DisabledField::parse));
    let paths = |fields: Vec<DisabledField>| {
        let mut found = Vec::new();
        find_fields(ty, &fields, &mut Vec::new(), &mut Vec::new(), &mut found);
        found
    };
    gates.map(|fields| paths(fields.collect())).filter(|paths| !paths.is_empty()).collect()
}

/// Finds the places of fields below a type; a type inside itself is not searched again.
fn find_fields(
    ty: TypeId,
    fields: &[DisabledField],
    steps: &mut Vec<DisabledPathStep>,
    outer: &mut Vec<TypeId>,
    found: &mut Vec<DisabledPath>,
) {
    if outer.contains(&ty) {
        return;
    }
    let definition = schema().get(ty);
    let is_here = |field: &&DisabledField| {
        definition.short_name() == field.type_name
            && definition.name.split('/').next() == Some(field.group)
            && definition.field(field.field).is_some()
    };
    found.extend(fields.iter().filter(is_here).map(|field| DisabledPath { steps: steps.clone(), field: *field }));
    outer.push(ty);
    for field in &definition.fields {
        let depth = steps.len();
        steps.push(DisabledPathStep::Field(field.name));
        let mut inner = &field.ty;
        while let FieldType::List(element) | FieldType::Map(element) = inner {
            steps.push(DisabledPathStep::Each);
            inner = element;
        }
        if let FieldType::Struct(id) = inner {
            find_fields(*id, fields, steps, outer, found);
        }
        steps.truncate(depth);
    }
    outer.pop();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drop_from(group: &str, version: &str, kind: &str, object: Value, current: Option<Value>) -> Value {
        let ty = schema().type_of_kind(group, version, kind).unwrap();
        let mut object = object;
        drop_disabled_fields(ty, &mut object, current.as_ref());
        object
    }

    #[test]
    fn every_line_of_the_table_names_a_field() {
        for line in DISABLED_FIELDS.lines().filter(|line| !line.starts_with('#')) {
            for word in line.split_once(':').unwrap().1.split_whitespace() {
                let field = DisabledField::parse(word).unwrap();
                let known = schema().types().any(|(_, ty)| {
                    ty.name.starts_with(&format!("{}/", field.group))
                        && ty.short_name() == field.type_name
                        && ty.field(field.field).is_some()
                });
                assert!(known, "{word}");
            }
        }
    }

    #[test]
    fn stop_signal_takes_an_empty_lifecycle_with_it() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "lifecycle": {"stopSignal": "SIGUSR1"}},
            {"name": "b", "lifecycle": {"stopSignal": "SIGUSR1", "preStop": {}}}, {"name": "c", "lifecycle": {}}]}});
        let dropped = drop_from("", "v1", "Pod", pod.clone(), None);
        let wanted = json!({"spec": {"containers": [
            {"name": "a"}, {"name": "b", "lifecycle": {"preStop": {}}}, {"name": "c", "lifecycle": {}}]}});
        assert_eq!(dropped, wanted);
        assert_eq!(drop_from("", "v1", "Pod", pod.clone(), Some(pod.clone())), pod, "it is in use");
        let template = json!({"spec": {"template": pod}});
        assert_eq!(drop_from("apps", "v1", "Deployment", template, None), json!({"spec": {"template": wanted}}));
    }

    #[test]
    fn projections_stay_as_empty_sources() {
        let volumes = |source: Value| json!({"spec": {"volumes": [{"projected": {"sources": [source]}}]}});
        let dropped = drop_from("", "v1", "Pod", volumes(json!({"clusterTrustBundle": {"path": "x"}})), None);
        assert_eq!(dropped, volumes(json!({})));
    }

    #[test]
    fn data_source_of_another_namespace_is_dropped() {
        let claim = |source: Value| json!({"spec": {"dataSourceRef": source}});
        let own = claim(json!({"kind": "K", "name": "n"}));
        assert_eq!(drop_from("", "v1", "PersistentVolumeClaim", own.clone(), None), own);
        let other = claim(json!({"kind": "K", "name": "n", "namespace": "other"}));
        assert_eq!(drop_from("", "v1", "PersistentVolumeClaim", other.clone(), None), json!({"spec": {}}));
        assert_eq!(drop_from("", "v1", "PersistentVolumeClaim", other.clone(), Some(own)), other);
    }
}
