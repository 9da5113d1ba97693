//! Autoscalers, as far as the tables cannot say what is right.

use super::{prelude::*, resource_name as resource};

pub(super) const FUNCTIONS: Functions = functions! {
    at_least_min scaling_to_zero target_version group_version metric_source name_of_container_resource

};

/// Type, field and rules of the sources of metrics.
const SOURCES: [(&str, &str, &str); 5] = [
    ("Object", "object", "ObjectMetric"),
    ("External", "external", "ExternalMetric"),
    ("Pods", "pods", "PodsMetric"),
    ("Resource", "resource", "ResourceMetric"),
    ("ContainerResource", "containerResource", "ContainerMetric"),
];

fn at_least_min(max: &At, e: &mut Errors) {
    if max.int() < max.up(1).get("minReplicas").int() {
        max.invalid_int(e, "must be greater than or equal to `minReplicas`");
    }
}

fn scaling_to_zero(list: &At, e: &mut Errors) {
    let outside = list.items().any(|metric| ["Object", "External"].contains(&metric.text_of("type")));
    if list.up(1).get("minReplicas").int() == 0 && !outside {
        list.forbidden(e, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

/// What is scaled is in a group, except for what is older than groups; what was named before may stay.
fn target_version(target: &At, e: &mut Errors) {
    if target.is_change() && ["apiVersion", "kind"].iter().all(|field| target.old.get(field) == target.value.get(field))
    {
        return;
    }
    let version = target.get("apiVersion");
    let group = version.text().split_once('/').map_or("", |(group, _)| group);
    group_version(&version, e);
    let whole = version.text().matches('/').count() <= 1;
    if whole && target.text_of("kind") != "ReplicationController" && group.is_empty() {
        version.invalid_text(e, "apiVersion must specify API group");
    }
}

fn group_version(version: &At, e: &mut Errors) {
    if version.text().matches('/').count() > 1 {
        version.invalid_text(e, format!("unexpected GroupVersion string: {}", version.text()));
    }
}

/// The source that the type names is there, and no other.
fn metric_source(at: &At, e: &mut Errors) {
    let kind = at.get("type");
    let given = |field: &str| at.value.get(field).is_some();
    let present = || SOURCES.iter().filter(|(_, field, _)| given(field));
    if let Some((_, field, rules)) = present().next() {
        rules::check(rules, &at.get(field), e);
    }
    let expected = SOURCES.iter().find(|(name, ..)| *name == kind.text()).map(|(_, field, _)| *field);
    match expected {
        Some(field) if !given(field) => {
            at.get(field).required(e, "must populate information for the given metric source");
        }
        Some(_) => {}
        None => kind.unsupported(e, &["ContainerResource", "External", "Object", "Pods", "Resource"]),
    }
    if present().count() != 1 {
        for (_, field, _) in present().filter(|(_, field, _)| Some(*field) != expected) {
            at.get(field).forbidden(e, "must populate the given metric source only");
        }
    }
}

fn name_of_container_resource(name: &At, e: &mut Errors) {
    resource::of_container(name.text(), name, e);
}
