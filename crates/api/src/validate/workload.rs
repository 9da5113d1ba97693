//! Validation of the workloads that make pods from a template: selector, template, replicas.

use super::{FieldError, pod};
use crate::{Value, meta, selector::LabelSelector};

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let replicas = meta::number(spec, &["replicas"]);
    if replicas < 0 {
        errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
    }
    match meta::at(spec, &["selector"]) {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => matches_template(selector, spec, errors),
    }
    pod::spec(&spec["template"]["spec"], "spec.template.spec", errors);
    let policy = meta::text(spec, &["template", "spec", "restartPolicy"]);
    if !policy.is_empty() && policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if let Some(old) = old
        && meta::at(spec, &["selector"]) != meta::at(old, &["spec", "selector"])
    {
        let selector = meta::at(spec, &["selector"]).cloned().unwrap_or_default();
        errors.push(FieldError::invalid("spec.selector", selector, "field is immutable"));
    }
}

fn matches_template(selector: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let Ok(parsed) = LabelSelector::from_object(selector) else {
        errors.push(FieldError::invalid("spec.selector", selector.clone(), "invalid label selector"));
        return;
    };
    if parsed.is_empty() {
        let message = "empty selector is invalid for deployment";
        errors.push(FieldError::invalid("spec.selector", selector.clone(), message));
    }
    let labels = meta::at(spec, &["template", "metadata", "labels"]).cloned().unwrap_or_else(|| serde_json::json!({}));
    if !parsed.matches(&labels) {
        let message = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, message));
    }
}
