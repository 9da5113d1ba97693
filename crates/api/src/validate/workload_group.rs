//! Validation of groups of pods that are scheduled together, and of workloads made of them.

use super::{
    Errors,
    at::At,
    device::{limited, unique},
    names,
    render::same,
};
use crate::Value;

/// The faults of a workload.
pub(super) fn workload(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let controller = spec.get("controllerRef");
    if let Some(old) = old {
        let before = old.get("spec");
        for field in ["controllerRef", "podGroupTemplates"] {
            if !same(spec.get(field).value, before.get(field).value) {
                spec.get(field).invalid_as(e, Value::Null, super::at::IMMUTABLE);
            }
        }
        return;
    }
    if controller.exists() {
        controller.get("apiGroup").optional_form(e, names::subdomain);
        controller.get("kind").required_form(e, names::path_segment);
        controller.get("name").required_form(e, names::path_segment);
    }
    let templates = spec.get("podGroupTemplates");
    limited(&templates, 8, e);
    templates.require(e);
    unique(&templates, "name", e);
    for template in templates.items() {
        template.get("name").required_form(e, names::label);
        group(&template, e);
    }
}

/// The faults of a group of pods.
pub(super) fn pod_group(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    if let Some(old) = old {
        let before = old.get("spec");
        for field in ["podGroupTemplateRef", "schedulingPolicy", "schedulingConstraints", "resourceClaims"] {
            if !same(spec.get(field).value, before.get(field).value) {
                spec.get(field).invalid_as(e, Value::Null, super::at::IMMUTABLE);
            }
        }
        return;
    }
    let reference = spec.get("podGroupTemplateRef");
    if reference.exists() {
        let workload = reference.get("workload");
        if workload.exists() {
            workload.get("workloadName").required_form(e, names::subdomain);
            workload.get("podGroupTemplateName").required_form(e, names::label);
        } else {
            reference.invalid_as(e, "", "must specify one of: `workload`");
        }
    }
    group(&spec, e);
}

/// What a group and a template of groups have in common.
fn group(at: &At, e: &mut Errors) {
    one_of(&at.get("schedulingPolicy"), ["basic", "gang"], e);
    let policy = at.get("schedulingPolicy");
    let gang = policy.get("gang");
    let count = gang.get("minCount");
    if gang.exists() && count.int() == 0 {
        count.required(e, "");
    } else if count.int() < 0 {
        count.invalid(e, "must be greater than or equal to 1");
    }
    let constraints = at.get("schedulingConstraints");
    limited(&constraints.get("topology"), 1, e);
    for topology in constraints.get("topology").items() {
        topology.get("key").required_form(e, names::qualified);
    }
    let claims = at.get("resourceClaims");
    limited(&claims, 4, e);
    unique(&claims, "name", e);
    for claim in claims.items() {
        one_of(&claim, ["resourceClaimName", "resourceClaimTemplateName"], e);
        claim.get("name").required_form(e, names::label);
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            claim.get(field).optional_form(e, names::subdomain);
        }
    }
    at.get("disruptionMode").one_of(e, &["Pod", "PodGroup"]);
    at.get("priorityClassName").optional_form(e, names::subdomain);
    let priority = at.get("priority");
    if priority.int() > 1_000_000_000 {
        priority.invalid(e, "must be less than or equal to 1000000000");
    }
}

/// Exactly one of two fields is set.
fn one_of(at: &At, fields: [&str; 2], e: &mut Errors) {
    let set: Vec<&str> = fields.into_iter().filter(|field| at.get(field).exists()).collect();
    let all = fields.map(|field| format!("`{field}`")).join(", ");
    match set.len() {
        0 => at.invalid_as(e, "", format!("must specify one of: {all}")),
        1 => {}
        _ => {
            let given = set.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
            at.invalid_as(e, format!("{{{given}}}"), format!("must specify exactly one of: {all}"));
        }
    }
}
