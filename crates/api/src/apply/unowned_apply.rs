//! Applies a configuration without recording ownership, as mutating admission policies do.

use super::{
    ApplyTarget, ListKeyError, SchemaMismatch, merge,
    path_element::PathElement,
    schema_check,
    type_view::{KeyOrigin, TypeView, ViewForm},
};
use crate::Value;

/// A configuration that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    /// The configuration does not match the schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Config(SchemaMismatch),
    /// The configuration sets an atomic list, map or struct.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {0}")]
    Atomic(String),
    /// The object does not match its schema.
    #[error("failed to convert original object to typed object: {0}")]
    Live(SchemaMismatch),
    /// List items lack their keys.
    #[error("failed to merge patch: {0}")]
    Merge(ListKeyError),
}

/// Merges the configuration into the live object.
pub fn apply_unowned(kind: &ApplyTarget, live: &Value, config: &Value) -> Result<Value, OverlayError> {
    let view = kind.type_view();
    schema_check::check_object(view, config, false).map_err(OverlayError::Config)?;
    let mut found = Vec::new();
    find_atomics(view, config, &mut Vec::new(), &mut found);
    if !found.is_empty() {
        return Err(OverlayError::Atomic(found.join(", ")));
    }
    schema_check::check_object(view, live, true).map_err(OverlayError::Live)?;
    merge::merge_config(view, live, config).map_err(OverlayError::Merge)
}

/// Collects the paths of atomic values.
fn find_atomics(view: TypeView, value: &Value, path: &mut Vec<PathElement>, found: &mut Vec<String>) {
    if view.atomic && (value.is_object() || value.is_array()) {
        found.push(path.iter().map(PathElement::to_string).collect());
    }
    match (view.form, value) {
        (ViewForm::Struct(_) | ViewForm::Fields(_), Value::Object(map)) => {
            for (name, value) in map {
                // As upstream, values below user-defined keys are not checked.
                let Some(child) = view.child_view(name).filter(|child| child.key_origin != KeyOrigin::UserDefined)
                else {
                    continue;
                };
                path.push(child.element(name));
                find_atomics(child.view, value, path, found);
                path.pop();
            }
        }
        (ViewForm::List(..) | ViewForm::Items(_), Value::Array(list)) => {
            for (at, item) in list.iter().enumerate() {
                path.push(PathElement::Index(at as i64));
                find_atomics(view.item_view(), item, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::schema;

    fn check(config: Value, want: Result<Value, &str>) {
        let kind = ApplyTarget::for_resource(schema().resource("apps", "v1", "deployments").unwrap(), "");
        let live = json!({"metadata": {"name": "d", "labels": {"a": "b"}}, "spec": {"template": {"spec": {
            "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y", "args": ["1"]}]}}}});
        match (apply_unowned(&kind, &live, &config), want) {
            (Ok(merged), Ok(want)) => assert_eq!(merged["spec"]["template"]["spec"]["containers"], want, "{config}"),
            (outcome, want) => assert_eq!(outcome.unwrap_err().to_string(), want.unwrap_err(), "{config}"),
        }
    }

    #[test]
    fn atomic_values_in_a_configuration_are_rejected() {
        let containers = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let both = json!([{"name": "a", "image": "z"}, {"name": "b", "image": "y", "args": ["1"]}]);
        check(containers(json!([{"name": "a", "image": "z"}])), Ok(both));
        let atomic = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: ";
        let args = format!("{atomic}.spec.template.spec.containers[0].args");
        check(containers(json!([{"name": "b", "args": ["2"]}])), Err(&args));
        let selector = format!("{atomic}.spec.selector");
        check(json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}}), Err(&selector));
        let unknown = "failed to convert patch object to typed object: .spec.nope: field not declared in schema";
        check(json!({"spec": {"nope": 1}}), Err(unknown));
    }
}
