//! Validation of the workloads that keep pods running: deployments, replica sets, stateful sets, daemon sets, replication
//! controllers.

use super::{
    Errors,
    at::At,
    error::{Bad, Fault},
    int_or_percent as amount, names, pod,
    render::{self, same},
    selector, volume_claim,
};
use crate::{Value, selector::LabelSelector};

const MISMATCH: &str = "`selector` does not match template `labels`";
const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

/// The faults of a deployment.
pub(super) fn deployment(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    spec.get("replicas").nonnegative(e);
    selector_and_template(&spec, old, "deployment", e);
    deployment_strategy(&spec.get("strategy"), e);
    spec.get("minReadySeconds").nonnegative(e);
    spec.get("revisionHistoryLimit").nonnegative(e);
    let deadline = spec.get("progressDeadlineSeconds");
    if deadline.exists() {
        deadline.nonnegative(e);
        if deadline.int() <= spec.get("minReadySeconds").int() {
            deadline.invalid(e, "must be greater than minReadySeconds");
        }
    }
    same_selector(&spec, old, e);
}

/// The faults of a replica set.
pub(super) fn replica_set(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    spec.get("replicas").nonnegative(e);
    spec.get("minReadySeconds").nonnegative(e);
    selector_and_template(&spec, old, "deployment", e);
    same_selector(&spec, old, e);
}

fn same_selector(spec: &At, old: Option<&At>, e: &mut Errors) {
    if let Some(old) = old {
        let (now, was) = (spec.get("selector"), old.get("spec"));
        if !same(now.value, was.get("selector").value) {
            now.invalid_external(e, LABEL_SELECTOR, super::at::IMMUTABLE);
        }
    }
}

fn selector_and_template(spec: &At, old: Option<&At>, kind: &str, e: &mut Errors) {
    let selector = spec.get("selector");
    required_selector(&selector, kind, e);
    match selector::parsed(selector.value) {
        Err(()) => selector.invalid_external(e, LABEL_SELECTOR, "invalid label selector"),
        Ok(parsed) => {
            let template = spec.get("template");
            labels_match(&template, parsed.as_ref(), e);
            pod::template(&template, old_template(old), e);
            always(&template, "ReplicaSet", e);
        }
    }
}

fn old_template<'v>(old: Option<&At<'v, '_>>) -> Option<&'v Value> {
    old.map(|old| old.get("spec").get("template").value)
}

fn required_selector(at: &At, kind: &str, e: &mut Errors) {
    if !at.exists() {
        return at.required(e, "");
    }
    selector::selector(at, e);
    if at.get("matchLabels").is_empty() && at.get("matchExpressions").is_empty() {
        at.invalid_external(e, LABEL_SELECTOR, format!("empty selector is invalid for {kind}"));
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

fn always(template: &At, kind: &str, e: &mut Errors) {
    let spec = template.get("spec");
    if spec.get("restartPolicy").text() != "Always" {
        spec.get("restartPolicy").unsupported(e, &["Always"]);
    }
    let deadline = spec.get("activeDeadlineSeconds");
    if deadline.exists() {
        deadline.forbidden(e, format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

fn deployment_strategy(at: &At, e: &mut Errors) {
    let rolling = at.get("rollingUpdate");
    match at.get("type").text() {
        "Recreate" => {
            if rolling.exists() {
                rolling.forbidden(e, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" if !rolling.exists() => {
            rolling.required(e, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            amount::check(&unavailable, e);
            amount::check(&surge, e);
            if amount::value(&unavailable) == 0 && amount::value(&surge) == 0 {
                unavailable.invalid_as(e, amount::shown(&unavailable), "may not be 0 when `maxSurge` is 0");
            }
            amount::at_most_all(&unavailable, e);
        }
        _ => unsupported(at, "apps/v1.DeploymentStrategy", &["Recreate", "RollingUpdate"], e),
    }
}

/// Upstream shows the whole strategy when its type is none.
fn unsupported(at: &At, ty: &str, supported: &[&str], e: &mut Errors) {
    let shown = Bad::Shown(render::internal(ty, at.value));
    e.push(super::FieldError::not_supported(at.to_string(), shown, supported));
}

/// The faults of a daemon set.
pub(super) fn daemon_set(new: &At, old: Option<&At>, e: &mut Errors) {
    let (spec, template) = (new.get("spec"), new.get("spec"));
    let template = template.get("template");
    if old.is_some() {
        same_selector(&spec, old, e);
    }
    let selector = spec.get("selector");
    selector::selector(&selector, e);
    if let Ok(parsed) = selector::parsed(selector.value) {
        labels_match(&template, parsed.as_ref(), e);
    }
    if selector.exists() && selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty() {
        selector.invalid_external(e, LABEL_SELECTOR, "empty selector is invalid for daemonset");
    }
    pod::template(&template, old_template(old), e);
    always(&template, "DaemonSet", e);
    spec.get("minReadySeconds").nonnegative(e);
    daemon_strategy(&spec.get("updateStrategy"), e);
    spec.get("revisionHistoryLimit").nonnegative(e);
}

fn daemon_strategy(at: &At, e: &mut Errors) {
    let rolling = at.get("rollingUpdate");
    match at.get("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.exists() => rolling.required(e, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            amount::check(&unavailable, e);
            amount::check(&surge, e);
            amount::at_most_all(&unavailable, e);
            amount::at_most_all(&surge, e);
            match (amount::value(&unavailable) != 0, amount::value(&surge) != 0) {
                (true, true) => {
                    surge.invalid_as(e, amount::shown(&surge), "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => unavailable.required(e, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => unsupported(at, "apps/v1.DaemonSetUpdateStrategy", &["RollingUpdate", "OnDelete"], e),
    }
}

/// The faults of a stateful set.
pub(super) fn stateful_set(new: &At, old: Option<&At>, e: &mut Errors) {
    stateful_spec(&new.get("spec"), old, e);
    if let Some(old) = old {
        stateful_change(&new.get("spec"), &old.get("spec"), e);
    }
}

fn stateful_spec(spec: &At, old: Option<&At>, e: &mut Errors) {
    let policy = spec.get("podManagementPolicy");
    match policy.text() {
        "" => policy.required(e, ""),
        "OrderedReady" | "Parallel" => {}
        _ => policy.invalid_text(e, "must be 'OrderedReady' or 'Parallel'"),
    }
    stateful_strategy(&spec.get("updateStrategy"), e);
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        if retention.exists() && !["Retain", "Delete"].contains(&retention.get(field).text()) {
            retention.get(field).unsupported(e, &["Retain", "Delete"]);
        }
    }
    if old.is_none() {
        for claim in spec.get("volumeClaimTemplates").items() {
            volume_claim::spec(&claim.get("spec"), None, e);
        }
    }
    spec.get("replicas").nonnegative(e);
    spec.get("minReadySeconds").nonnegative(e);
    spec.called("ordinals.start", spec.get("ordinals").get("start").value).nonnegative(e);
    if old.is_none() {
        spec.get("serviceName").optional_form(e, names::label);
    }
    let selector = spec.get("selector");
    required_selector(&selector, "statefulset", e);
    let template = spec.get("template");
    match selector::parsed(selector.value) {
        Err(()) => selector.invalid_external(e, LABEL_SELECTOR, ""),
        Ok(parsed) => {
            let adjusted = stateful_template(spec);
            let place = spec.called("template", &adjusted);
            labels_match(&place, parsed.as_ref(), e);
            pod::template(&place, old_template(old), e);
            let meta = place.get("metadata");
            selector::labels(&place.called("labels", meta.get("labels").value), e);
            super::metadata::annotations(&place.called("annotations", meta.get("annotations").value), e);
        }
    }
    always(&template, "StatefulSet", e);
}

fn stateful_strategy(at: &At, e: &mut Errors) {
    let rolling = at.get("rollingUpdate");
    match at.get("type").text() {
        "" => at.required(e, ""),
        "OnDelete" => {
            if rolling.exists() {
                let ty = "apps/v1.RollingUpdateStatefulSetStrategy";
                rolling.invalid_internal(e, ty, "only allowed for updateStrategy 'RollingUpdate'");
            }
        }
        "RollingUpdate" => {
            rolling.get("partition").nonnegative(e);
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.exists() {
                amount::check(&unavailable, e);
                if amount::value(&unavailable) == 0 {
                    unavailable.invalid_as(e, amount::shown(&unavailable), "cannot be 0");
                }
                amount::at_most_all(&unavailable, e);
            }
        }
        _ => {
            let shown = Bad::Shown(render::internal("apps/v1.StatefulSetUpdateStrategy", at.value));
            at.fault(e, Fault::Invalid(shown), "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

/// The template as pods get it: names of their own, and volumes from the claims.
fn stateful_template(spec: &At) -> Value {
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

fn stateful_change(spec: &At, old: &At, e: &mut Errors) {
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
    if !same(&fixed(spec), &fixed(old)) {
        let message = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
            'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        spec.forbidden(e, message);
    }
}

/// The faults of a replication controller.
pub(super) fn replication_controller(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    spec.get("minReadySeconds").nonnegative(e);
    selector.require(e);
    if spec.get("replicas").exists() {
        spec.get("replicas").nonnegative(e);
    } else {
        spec.get("replicas").required(e, "");
    }
    if !template.exists() {
        return template.required(e, "");
    }
    let meta = template.get("metadata");
    let labels = meta.get("labels");
    if selector.entries().any(|(key, value)| labels.get(key).value != value.value) {
        labels.invalid(e, MISMATCH);
    }
    pod::template(&template, old_template(old), e);
    always(&template, "ReplicationController", e);
}

/// The faults of a revision of a controller.
pub(super) fn revision(new: &At, old: Option<&At>, e: &mut Errors) {
    new.get("revision").nonnegative(e);
    let data = new.get("data");
    match old {
        Some(old) => data.unchanged(e, &old.get("data")),
        None if !data.exists() => data.required(e, "data is mandatory"),
        None if !data.value.is_object() => data.required(e, "data must be a valid JSON object"),
        None => {}
    }
}
