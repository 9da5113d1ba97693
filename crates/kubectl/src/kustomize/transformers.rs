//! Transformers: namespace, names, labels, annotations, replicas and images.

use api::{Map, Value};

use super::{
    field_specs::{FieldSpec, FieldSpecTables, parse_specs},
    kustomization::Kustomization,
    resources::BuildResource,
    sort_order,
};
use crate::{
    errors::CommandResult,
    object::{ObjectFields, set_path},
};

/// Sets the namespace of objects that are in one, and of what refers to it.
pub fn set_namespace(kustomization: &Kustomization, specs: &FieldSpecTables, resources: &mut [BuildResource]) {
    let namespace = kustomization.text("namespace");
    if namespace.is_empty() {
        return;
    }
    for resource in resources {
        resource.remember();
        let kind = resource.object.text("kind").to_owned();
        if kind == "Namespace" && resource.object.text("apiVersion") == "v1" {
            resource.object["metadata"]["name"] = namespace.into();
        } else if !resource.is_cluster_wide() {
            set_path(&mut resource.object, "metadata.namespace", namespace.into());
        }
        if ["RoleBinding", "ClusterRoleBinding"].contains(&kind.as_str()) {
            for subject in resource.object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
                if subject["name"] == "default" {
                    subject["namespace"] = namespace.into();
                }
            }
        }
        for spec in &specs.namespace {
            spec.visit(&mut resource.object, &mut |value| *value = namespace.into());
        }
    }
}

/// Adds prefix and suffix to names, but for kinds whose names are given.
pub fn add_prefix_and_suffix(kustomization: &Kustomization, specs: &FieldSpecTables, resources: &mut [BuildResource]) {
    let (prefix, suffix) = (kustomization.text("namePrefix"), kustomization.text("nameSuffix"));
    if prefix.is_empty() && suffix.is_empty() {
        return;
    }
    for resource in resources {
        let fixed = ["CustomResourceDefinition", "APIService", "Namespace"];
        if fixed.contains(&resource.object.text("kind")) {
            continue;
        }
        resource.remember();
        let mut change = |specs: &[FieldSpec], form: &dyn Fn(&str) -> String| {
            for spec in specs {
                spec.visit(&mut resource.object, &mut |value| {
                    if let Some(text) = value.as_str() {
                        *value = form(text).into();
                    }
                });
            }
        };
        change(&specs.name_prefix, &|name| format!("{prefix}{name}"));
        change(&specs.name_suffix, &|name| format!("{name}{suffix}"));
    }
}

fn add_entries(resources: &mut [BuildResource], specs: &[FieldSpec], entries: &Map) {
    if entries.is_empty() {
        return;
    }
    for resource in resources {
        for spec in specs {
            spec.visit(&mut resource.object, &mut |value| {
                let mut map = value.as_object().cloned().unwrap_or_default();
                map.extend(entries.clone());
                *value = Value::Object(map);
            });
        }
    }
}

/// Adds labels, with selectors where that is asked for.
pub fn add_labels(kustomization: &Kustomization, specs: &FieldSpecTables, resources: &mut [BuildResource]) {
    for entry in kustomization.list("labels") {
        let pairs = entry.map("pairs").cloned().unwrap_or_default();
        let metadata = FieldSpec { path: "metadata/labels".into(), create: true, ..Default::default() };
        let mut fields = match (entry.flag("includeSelectors"), entry.flag("includeTemplates")) {
            (true, _) => specs.common_labels.clone(),
            (false, true) => specs.template_labels.clone(),
            (false, false) => vec![metadata],
        };
        fields.extend(parse_specs(entry.list("fields")));
        add_entries(resources, &fields, &pairs);
    }
    add_entries(resources, &specs.common_labels, &kustomization.map("commonLabels"));
}

/// Adds annotations.
pub fn add_annotations(kustomization: &Kustomization, specs: &FieldSpecTables, resources: &mut [BuildResource]) {
    add_entries(resources, &specs.annotations, &kustomization.map("commonAnnotations"));
}

/// Sets numbers of replicas by name.
pub fn set_replicas(
    kustomization: &Kustomization,
    specs: &FieldSpecTables,
    resources: &mut [BuildResource],
) -> CommandResult {
    for entry in kustomization.list("replicas") {
        let (name, count) = (entry.text("name"), entry.get("count").cloned().unwrap_or_default());
        let mut found = false;
        for resource in resources.iter_mut() {
            let named = resource.identities().any(|(_, known, _)| known == name);
            for spec in specs.replicas.iter().filter(|_| named) {
                found |= spec.fits(&resource.object);
                spec.visit(&mut resource.object, &mut |value| *value = count.clone());
            }
        }
        if !found {
            let mut kinds: Vec<&str> = specs.replicas.iter().map(|spec| spec.kind.as_str()).collect();
            kinds.sort_by_key(|kind| sort_order::kind_rank(kind));
            let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind}.[noVer].[noGrp]")).collect();
            crate::bail!(
                "resource with name {name} does not match a config with the following GVK [{}]",
                kinds.join(" ")
            );
        }
    }
    Ok(())
}

/// Changes images by name.
pub fn set_images(kustomization: &Kustomization, specs: &FieldSpecTables, resources: &mut [BuildResource]) {
    for entry in kustomization.list("images") {
        for resource in resources.iter_mut() {
            if resource.object.text("kind") == "CustomResourceDefinition" {
                continue;
            }
            visit_container_images(&mut resource.object, &mut |image| change_image(entry, image));
            for spec in &specs.images {
                spec.visit(&mut resource.object, &mut |image| change_image(entry, image));
            }
        }
    }
}

/// Visits the images in all lists of containers.
fn visit_container_images(value: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map.iter_mut() {
                if ["containers", "initContainers"].contains(&name.as_str()) {
                    for container in inner.as_array_mut().into_iter().flatten() {
                        if let Some(image) = container.get_mut("image") {
                            visit(image);
                        }
                    }
                } else {
                    visit_container_images(inner, visit);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| visit_container_images(item, visit)),
        _ => {}
    }
}

fn change_image(entry: &Value, image: &mut Value) {
    let Some(text) = image.as_str() else { return };
    let (name, tag, digest) = split_image(text);
    let is_match = match regex_lite::Regex::new(&format!("^(?:{})$", entry.text("name"))) {
        Ok(pattern) => pattern.is_match(name),
        Err(_) => name == entry.text("name"),
    };
    if !is_match {
        return;
    }
    let (new_tag, new_digest, suffix) = (entry.text("newTag"), entry.text("digest"), entry.text("tagSuffix"));
    let name = if entry.text("newName").is_empty() { name } else { entry.text("newName") };
    let (tag, digest) = match (new_tag.is_empty(), new_digest.is_empty()) {
        (false, false) => (new_tag.to_owned(), new_digest),
        (false, true) => (new_tag.to_owned(), ""),
        (true, false) => (String::new(), new_digest),
        (true, true) if !suffix.is_empty() => (format!("{tag}{suffix}"), ""),
        (true, true) => (tag.to_owned(), digest),
    };
    let mut changed = name.to_owned();
    if !tag.is_empty() {
        changed += &format!(":{tag}");
    }
    if !digest.is_empty() {
        changed += &format!("@{digest}");
    }
    *image = changed.into();
}

/// Name, tag and digest of an image.
fn split_image(image: &str) -> (&str, &str, &str) {
    let (rest, digest) = image.split_once('@').unwrap_or((image, ""));
    let after_host = rest.find('/').unwrap_or(0);
    match rest[after_host..].find(':') {
        Some(at) => (&rest[..after_host + at], &rest[after_host + at + 1..], digest),
        None => (rest, "", digest),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_matched_by_name_and_changed() {
        let change = |entry: Value, image: &str| {
            let mut value: Value = image.into();
            change_image(&entry, &mut value);
            value.as_str().unwrap().to_owned()
        };
        assert_eq!(change(json!({"name": "nginx", "newTag": "2"}), "nginx:1"), "nginx:2");
        assert_eq!(change(json!({"name": "nginx", "newTag": "2"}), "my-nginx:1"), "my-nginx:1");
        assert_eq!(change(json!({"name": "host:5000/a", "newName": "b"}), "host:5000/a:1"), "b:1");
        assert_eq!(change(json!({"name": "a", "digest": "sha256:x"}), "a:1"), "a@sha256:x");
    }
}
