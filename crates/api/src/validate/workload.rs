//! The workloads that keep pods running, as far as the tables cannot say what is right.

use super::{int_or_percent as amount, prelude::*, selector};
use crate::selector::LabelSelector;

pub(super) const FUNCTIONS: Functions = functions! {
    selected_template some_progress daemon_selector surge_or_unavailable stateful_template
    stateful_change controller_selector json_object only_grows
};

const MISMATCH: &str = "`selector` does not match template `labels`";
const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

/// The selector of a deployment or replica set, and the template that it selects.
fn selected_template(spec: &At, e: &mut Errors) {
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
fn some_progress(rolling: &At, e: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    if amount::value(&unavailable) == 0 && amount::value(&surge) == 0 {
        unavailable.invalid_as(e, amount::shown(&unavailable), "may not be 0 when `maxSurge` is 0");
    }
}

fn daemon_selector(spec: &At, e: &mut Errors) {
    let selector = spec.get("selector");
    if let Ok(parsed) = selector::parsed(selector.value) {
        labels_match(&spec.get("template"), parsed.as_ref(), e);
    }
    if selector.exists() {
        not_empty(&selector, "daemonset", e);
    }
}

/// Of daemons on a node there is one more for a while, or one less.
fn surge_or_unavailable(rolling: &At, e: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    match (amount::value(&unavailable) != 0, amount::value(&surge) != 0) {
        (true, true) => surge.invalid_as(e, amount::shown(&surge), "may not be set when maxUnavailable is non-zero"),
        (false, false) => unavailable.required(e, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// The selector of a stateful set, and its template as pods get it.
fn stateful_template(spec: &At, e: &mut Errors) {
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
fn stateful_change(spec: &At, e: &mut Errors) {
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
fn controller_selector(spec: &At, e: &mut Errors) {
    let template = spec.get("template");
    let meta = template.get("metadata");
    let labels = meta.get("labels");
    if spec.get("selector").entries().any(|(key, value)| labels.get(key).value != value.value) {
        labels.invalid(e, MISMATCH);
    }
}

fn json_object(data: &At, e: &mut Errors) {
    if !data.value.is_object() {
        data.required(e, "data must be a valid JSON object");
    }
}

/// A count of collisions only grows.
fn only_grows(now: &At, e: &mut Errors) {
    let was = now.before();
    if was.exists() && (!now.exists() || now.int() < was.int()) {
        now.invalid_int(e, "cannot be decremented");
    }
}
