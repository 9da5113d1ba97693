//! Validation of what steers a pod to nodes: tolerations, taints, spreading.

use crate::{
    Value,
    validate::{Errors, at::At, names, selector},
};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The faults of tolerations.
pub(in crate::validate) fn tolerations(list: &At, e: &mut Errors) {
    for toleration in list.items() {
        let (key, operator) = (toleration.get("key"), toleration.get("operator"));
        let (value, effect) = (toleration.get("value"), toleration.get("effect"));
        key.optional_form(e, names::qualified);
        if key.is_empty() && operator.text() != "Exists" {
            let message = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            operator.invalid_text(e, message);
        }
        if toleration.get("tolerationSeconds").exists() && effect.text() != "NoExecute" {
            effect.invalid_text(e, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "Equal" | "" => {
                let faults = names::label_value(value.text());
                if !faults.is_empty() {
                    operator.invalid_as(e, value.text(), faults.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    operator.invalid_as(e, value.text(), "value must be empty when `operator` is 'Exists'");
                }
            }
            "Lt" | "Gt" => operator.unsupported(e, &["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.unsupported(e, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect.text()) {
            effect.unsupported(e, EFFECTS);
        }
    }
}

/// The effect of a taint must be one that there is.
pub(in crate::validate) fn taint_effect(at: &At, e: &mut Errors) {
    at.required_one_of(e, EFFECTS);
}

const DEVICE_EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// The effect of a taint of a device must be one that there is.
pub(in crate::validate) fn device_effect(at: &At, e: &mut Errors) {
    at.required_one_of(e, DEVICE_EFFECTS);
}

/// The faults of tolerations of tainted devices.
pub(in crate::validate) fn device_tolerations(list: &At, e: &mut Errors) {
    for toleration in list.items() {
        let (key, operator, value) = (toleration.get("key"), toleration.get("operator"), toleration.get("value"));
        key.optional_form(e, names::qualified);
        match operator.text() {
            "Exists" => {
                if !value.is_empty() {
                    value.invalid_text(e, "must be empty for operator `Exists`");
                }
            }
            "Equal" => value.form(e, names::label_value),
            "" => operator.required(e, ""),
            _ => operator.unsupported(e, &["Equal", "Exists"]),
        }
        if operator.text() == "Equal" && key.is_empty() {
            key.required(e, "");
        }
        let effect = toleration.get("effect");
        if !effect.is_empty() {
            effect.one_of(e, &["NoExecute", "NoSchedule"]);
        }
    }
}

/// The faults of constraints on spreading.
pub(super) fn spread(list: &At, old: Option<&Value>, e: &mut Errors) {
    let had_faults = old.is_some_and(|old| {
        let constraints = old.get("topologySpreadConstraints").and_then(Value::as_array);
        constraints.into_iter().flatten().any(|constraint| selector::is_faulty(&constraint["labelSelector"]))
    });
    for (index, constraint) in list.items().enumerate() {
        let (key, action) = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        if constraint.get("maxSkew").int() <= 0 {
            constraint.get("maxSkew").invalid_int(e, "must be greater than zero");
        }
        if key.is_empty() {
            key.required(e, "can not be empty");
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action.text()) {
            action.unsupported(e, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let again = list.items().skip(index + 1).any(|other| {
            other.get("topologyKey").text() == key.text() && other.get("whenUnsatisfiable").text() == action.text()
        });
        if again {
            let pair = format!("{{{}, {}}}", key.text(), action.text());
            constraint.get("{topologyKey, whenUnsatisfiable}").duplicate(e, pair);
        }
        min_domains(&constraint.get("minDomains"), action.text(), e);
        constraint.get("nodeAffinityPolicy").one_of(e, &["Honor", "Ignore"]);
        constraint.get("nodeTaintsPolicy").one_of(e, &["Honor", "Ignore"]);
        label_keys(&constraint, e);
        if !had_faults {
            selector::selector(&constraint.get("labelSelector"), e);
        }
    }
}

fn min_domains(at: &At, action: &str, e: &mut Errors) {
    if !at.exists() {
        return;
    }
    if at.int() <= 0 {
        at.invalid(e, "must be greater than zero");
    }
    if action != "DoNotSchedule" {
        at.invalid(e, format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"));
    }
}

/// The faults of keys whose values are taken from the pod itself.
pub(super) fn label_keys(at: &At, e: &mut Errors) {
    let (matching, other, labels) = (at.get("matchLabelKeys"), at.get("mismatchLabelKeys"), at.get("labelSelector"));
    for keys in [&matching, &other] {
        if keys.is_empty() {
            continue;
        }
        if labels.exists() {
            keys.items().for_each(|key| key.form(e, names::qualified));
        } else {
            keys.forbidden(e, "must not be specified when labelSelector is not set");
        }
    }
    let mut seen: Vec<&str> = labels.get("matchLabels").entries().map(|(key, _)| key).collect();
    for requirement in labels.get("matchExpressions").items() {
        let key = requirement.get("key").text();
        let position = matching.texts().position(|label| label == key);
        if let Some(index) = position.filter(|_| seen.contains(&key)) {
            at.index(index).invalid_as(e, key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.push(key);
    }
    for key in matching.items().filter(|key| other.texts().any(|label| label == key.text())) {
        key.invalid_text(e, "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}
