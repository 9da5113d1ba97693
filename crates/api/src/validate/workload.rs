//! The workloads that keep pods running and what scales them, as far as the tables cannot say what is right.

use super::{prelude::*, resource_name as resource, selector};
use crate::selector::LabelSelector;

const MISMATCH: &str = "`selector` does not match template `labels`";
const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

/// The selector of a deployment or replica set, and the template that it selects.
pub fn selected_template(spec: &At, e: &mut Errors) {
    let selector = spec.get("selector");
    required_selector(&selector, "deployment", e);
    match selector::parsed(selector.value) {
        Err(()) => selector.invalid_struct(e, LABEL_SELECTOR, "invalid label selector"),
        Ok(parsed) => {
            let template = spec.get("template");
            labels_match(&template, parsed.as_ref(), e);
            rules::check("ReplicaTemplate", &template, e);
        }
    }
}

fn required_selector(at: &At, kind: &str, e: &mut Errors) {
    if !at.exists() {
        return at.required(e, "");
    }
    selector::check(at, false, e);
    not_empty(at, kind, e);
}

fn not_empty(at: &At, kind: &str, e: &mut Errors) {
    if at.get("matchLabels").is_empty() && at.get("matchExpressions").is_empty() {
        at.invalid_struct(e, LABEL_SELECTOR, format!("empty selector is invalid for {kind}"));
    }
}

/// Pods of a template are selected by the selector beside it; no selector selects nothing.
fn labels_match(template: &At, selector: Option<&LabelSelector>, e: &mut Errors) {
    let meta = template.get("metadata");
    let labels = meta.get("labels");
    let right = selector.is_some_and(|selector| selector.is_empty() || selector.matches(labels.value));
    if !right {
        labels.invalid(e, MISMATCH);
    }
}

/// A rolling update that may neither remove nor add pods gets nowhere.
pub fn some_progress(rolling: &At, e: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    if number_of(&unavailable) == 0 && number_of(&surge) == 0 {
        unavailable.invalid_as(e, shown(&unavailable), "may not be 0 when `maxSurge` is 0");
    }
}

pub fn daemon_selector(spec: &At, e: &mut Errors) {
    let selector = spec.get("selector");
    if let Ok(parsed) = selector::parsed(selector.value) {
        labels_match(&spec.get("template"), parsed.as_ref(), e);
    }
    if selector.exists() {
        not_empty(&selector, "daemonset", e);
    }
}

/// Of daemons on a node there is one more for a while, or one less.
pub fn surge_or_unavailable(rolling: &At, e: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    match (number_of(&unavailable) != 0, number_of(&surge) != 0) {
        (true, true) => surge.invalid_as(e, shown(&surge), "may not be set when maxUnavailable is non-zero"),
        (false, false) => unavailable.required(e, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// The selector of a stateful set, and its template as pods get it.
pub fn stateful_template(spec: &At, e: &mut Errors) {
    let selector = spec.get("selector");
    required_selector(&selector, "statefulset", e);
    match selector::parsed(selector.value) {
        Err(()) => selector.invalid_struct(e, LABEL_SELECTOR, ""),
        Ok(parsed) => {
            let adjusted = adjusted_template(spec);
            let template = spec.get("template").holding(&adjusted);
            labels_match(&template, parsed.as_ref(), e);
            rules::check("StatefulTemplate", &template, e);
        }
    }
}

/// The template as pods get it: names of their own, and volumes from the claims.
fn adjusted_template(spec: &At) -> Value {
    let mut template = spec.get("template").value.clone();
    let claims = spec.get("volumeClaimTemplates");
    let Some(inner) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    inner.remove("subdomain");
    inner.remove("hostname");
    if !claims.is_empty() {
        let names: Vec<&str> = claims.items().map(|claim| claim.get("metadata").get("name").text()).collect();
        let mut volumes: Vec<Value> = names
            .iter()
            .map(|name| serde_json::json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .collect();
        let own = inner.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        volumes.extend(own.into_iter().filter(|volume| !names.contains(&volume["name"].as_str().unwrap_or_default())));
        inner.insert("volumes".to_owned(), volumes.into());
    }
    template
}

/// Most of a stateful set stays as it is.
pub fn stateful_change(spec: &At, e: &mut Errors) {
    const FREE: &[&str] = &[
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    let fixed = |at: &At| {
        let mut value = at.value.clone();
        value.as_object_mut().into_iter().for_each(|map| FREE.iter().for_each(|field| drop(map.remove(*field))));
        value
    };
    if !same(&fixed(spec), &fixed(&spec.before())) {
        let message = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
            'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        spec.forbidden(e, message);
    }
}

/// A replication controller selects by labels alone.
pub fn controller_selector(spec: &At, e: &mut Errors) {
    let template = spec.get("template");
    let meta = template.get("metadata");
    let labels = meta.get("labels");
    if spec.get("selector").entries().any(|(key, value)| labels.get(key).value != value.value) {
        labels.invalid(e, MISMATCH);
    }
}

/// The faults of an amount.
pub fn amount(at: &At, e: &mut Errors) {
    if at.value.is_string() { at.form(e, names::percent) } else { at.nonnegative(e) }
}

fn percent(at: &At) -> Option<i64> {
    let text = at.value.as_str().filter(|text| names::percent(text).is_empty())?;
    text.trim_end_matches('%').parse().ok()
}

/// The number, of things or of hundredths.
fn number_of(at: &At) -> i64 {
    match at.value {
        Value::String(text) => percent(at).unwrap_or_else(|| text.parse().unwrap_or(0)),
        value => value.as_i64().unwrap_or(0),
    }
}

/// A part of all is at most all.
pub fn at_most_all(at: &At, e: &mut Errors) {
    if percent(at).is_some_and(|percent| percent > 100) {
        at.invalid(e, "must not be greater than 100%");
    }
}

/// The amount as it is told; none is 0.
fn shown(at: &At) -> Bad {
    if at.exists() { at.value.clone().into() } else { 0.into() }
}

pub fn not_none(at: &At, e: &mut Errors) {
    if number_of(at) == 0 {
        at.invalid_as(e, shown(at), "cannot be 0");
    }
}

/// Type, field and rules of the sources of metrics.
const SOURCES: [(&str, &str, &str); 5] = [
    ("Object", "object", "ObjectMetric"),
    ("External", "external", "ExternalMetric"),
    ("Pods", "pods", "PodsMetric"),
    ("Resource", "resource", "ResourceMetric"),
    ("ContainerResource", "containerResource", "ContainerMetric"),
];

pub fn scaling_to_zero(list: &At, e: &mut Errors) {
    let outside = list.items().any(|metric| ["Object", "External"].contains(&metric.text_of("type")));
    if list.up(1).get("minReplicas").int() == 0 && !outside {
        list.forbidden(e, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

/// What is scaled is in a group, except for what is older than groups; what was named before may stay.
pub fn target_version(target: &At, e: &mut Errors) {
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

pub fn group_version(version: &At, e: &mut Errors) {
    if version.text().matches('/').count() > 1 {
        version.invalid_text(e, format!("unexpected GroupVersion string: {}", version.text()));
    }
}

/// The source that the type names is there, and no other.
pub fn metric_source(at: &At, e: &mut Errors) {
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

pub fn name_of_container_resource(name: &At, e: &mut Errors) {
    resource::of_container(name.text(), name, e);
}
