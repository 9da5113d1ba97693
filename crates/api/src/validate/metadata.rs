//! Validation of `metadata`, the same for every resource.

use super::{FieldError, names};
use crate::{Value, meta, schema::Resource};

/// Fields that never change once they are set.
const IMMUTABLE: [&str; 4] = ["name", "namespace", "uid", "creationTimestamp"];

pub(super) fn create(resource: &Resource, object: &Value, errors: &mut Vec<FieldError>) {
    let name = meta::name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        let faults = name_rule(resource)(name);
        errors.extend(faults.into_iter().map(|fault| FieldError::invalid("metadata.name", name, fault)));
    }
    common(object, errors);
}

pub(super) fn update(object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in IMMUTABLE {
        let (new, old) = (meta::at(object, &["metadata", field]), meta::at(old, &["metadata", field]));
        if new != old {
            let value = new.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(format!("metadata.{field}"), value, "field is immutable"));
        }
    }
    common(object, errors);
}

/// The form of names of a resource.
fn name_rule(resource: &Resource) -> fn(&str) -> Vec<String> {
    match (resource.group, resource.name) {
        ("rbac.authorization.k8s.io", _) => names::path_segment,
        ("", "namespaces") => names::label,
        ("", "services") => names::label_1035,
        _ => names::subdomain,
    }
}

fn common(object: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in entries(object, "labels") {
        errors.extend(names::qualified(key).into_iter().map(|f| FieldError::invalid("metadata.labels", key, f)));
        errors.extend(names::label_value(value).into_iter().map(|f| FieldError::invalid("metadata.labels", value, f)));
    }
    for (key, _) in entries(object, "annotations") {
        let faults = names::qualified(&key.to_lowercase());
        errors.extend(faults.into_iter().map(|f| FieldError::invalid("metadata.annotations", key, f)));
    }
    for finalizer in meta::finalizers(object) {
        let faults = names::qualified(finalizer);
        errors.extend(faults.into_iter().map(|f| FieldError::invalid("metadata.finalizers", finalizer, f)));
    }
    for (at, owner) in meta::list(object, &["metadata", "ownerReferences"]).iter().enumerate() {
        let field = |name: &str| format!("metadata.ownerReferences[{at}].{name}");
        for (name, message) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if meta::text(owner, &[name]).is_empty() {
                errors.push(FieldError::invalid(field(name), "", message));
            }
        }
    }
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = meta::at(object, &["metadata", field]).and_then(Value::as_object).into_iter().flatten();
    map.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}
