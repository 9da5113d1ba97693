//! References by name: fields that name an object whose name has changed.

use api::Value;

use super::{
    field_specs::{FieldSpecTables, NameReferenceSpec},
    resources::BuildResource,
};
use crate::{
    errors::CommandResult,
    object::{ObjectFields, group_version_kind, name_of, namespace_of},
};

/// An object that can be referred to.
struct ReferenceTarget {
    kind: String,
    group: String,
    cluster_wide: bool,
    previous: Vec<(String, String, String)>,
    name: String,
    namespace: String,
}

/// Puts the current names into all references.
pub fn update_references(resources: &mut [BuildResource], specs: &FieldSpecTables) -> CommandResult {
    let targets: Vec<ReferenceTarget> = resources
        .iter()
        .filter(|resource| {
            resource.previous.iter().any(|(_, name, _)| name != name_of(&resource.object)) || has_namespace(resource)
        })
        .map(|resource| ReferenceTarget {
            kind: resource.object.text("kind").to_owned(),
            group: group_version_kind(&resource.object).0,
            cluster_wide: resource.is_cluster_wide(),
            previous: resource.previous.clone(),
            name: name_of(&resource.object).to_owned(),
            namespace: namespace_of(&resource.object).to_owned(),
        })
        .collect();
    for resource in resources {
        for reference in &specs.references {
            update_resource(resource, reference, &targets);
        }
    }
    Ok(())
}

fn has_namespace(resource: &BuildResource) -> bool {
    !namespace_of(&resource.object).is_empty()
}

fn update_resource(resource: &mut BuildResource, reference: &NameReferenceSpec, targets: &[ReferenceTarget]) {
    let namespaces: Vec<String> = resource.identities().map(|(_, _, namespace)| namespace.to_owned()).collect();
    let referrer_cluster_wide = resource.is_cluster_wide();
    let find = |name: &str, namespace: Option<&str>| -> Option<&ReferenceTarget> {
        targets.iter().find(|target| {
            let fits = target.kind == reference.kind && (reference.group.is_empty() || target.group == reference.group);
            let in_reach = |known: &str| match namespace {
                Some(namespace) => known == namespace,
                None => target.cluster_wide || referrer_cluster_wide || namespaces.iter().any(|own| own == known),
            };
            fits && target.previous.iter().any(|(_, known, space)| known == name && in_reach(space))
        })
    };
    let scale_target = |object: &Value| object.text("spec.scaleTargetRef.kind").to_owned();
    let scaled = scale_target(&resource.object);
    let role_kind = resource.object.text("roleRef.kind").to_owned();
    for field in &reference.fields {
        // A reference that says its kind is to that kind only.
        if field.path.starts_with("spec/scaleTargetRef") && scaled != reference.kind
            || field.path.starts_with("roleRef") && role_kind != reference.kind
        {
            continue;
        }
        field.visit(&mut resource.object, &mut |value| update_value(value, &reference.kind, &find));
    }
}

fn update_value<'a>(value: &mut Value, kind: &str, find: &dyn Fn(&str, Option<&str>) -> Option<&'a ReferenceTarget>) {
    match value {
        Value::String(name) => {
            if let Some(target) = find(name, None) {
                name.clone_from(&target.name);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| update_value(item, kind, find)),
        Value::Object(map) => {
            let text = |field: &str| map.get(field).and_then(Value::as_str).map(str::to_owned);
            if text("kind").is_some_and(|own| own != kind) {
                return;
            }
            let Some(name) = text("name") else { return };
            let target = find(&name, text("namespace").as_deref()).or_else(|| find(&name, None));
            if let Some(target) = target {
                map.insert("name".into(), target.name.clone().into());
                if !target.namespace.is_empty() {
                    map.insert("namespace".into(), target.namespace.clone().into());
                }
            }
        }
        _ => {}
    }
}
