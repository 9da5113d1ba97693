//! Policies of admission, and which requests they mean, as far as the tables cannot say what is right.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! {
    rule_resources
    group_and_version mixed_case_kind variable_name audit_annotation

};

/// Resources and subresources do not overlap.
fn rule_resources(list: &At, e: &mut Errors) {
    let (mut wild_subs, mut wild_resources): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut without_sub = false;
    for resource in list.items() {
        let text = resource.text();
        let Some((name, sub)) = text.split_once('/') else {
            without_sub = text != "*";
            continue;
        };
        if wild_subs.contains(&name) {
            resource.invalid_text(e, format!("if '{name}/*' is present, must not specify {text}"));
        }
        if wild_resources.contains(&sub) {
            resource.invalid_text(e, format!("if '*/{sub}' is present, must not specify {text}"));
        }
        if sub == "*" {
            wild_subs.push(name);
        }
        if name == "*" {
            wild_resources.push(sub);
        }
    }
    if list.len() > 1 && list.has("*/*") {
        list.invalid(e, "if '*/*' is present, must not specify other resources");
    }
    if without_sub && list.has("*") {
        list.invalid(e, "if '*' is present, must not specify other resources without subresources");
    }
}

fn group_and_version(version: &At, e: &mut Errors) {
    let (group, name) = version.text().split_once('/').unwrap_or(("", version.text()));
    if name.contains('/') {
        return version.invalid_text(e, format!("unexpected GroupVersion string: {}", version.text()));
    }
    let faults = names::subdomain(group);
    if !group.is_empty() && !faults.is_empty() {
        version.invalid_as(e, group, faults.join(","));
    }
    let faults = names::label_1035(name);
    if name.is_empty() {
        version.invalid_text(e, "version must be specified");
    } else if !faults.is_empty() {
        version.invalid_as(e, name, faults.join(","));
    }
}

/// A kind is a label but for its capitals.
pub(super) fn mixed_case_kind(kind: &At, e: &mut Errors) {
    let faults = names::label_1035(&kind.text().to_lowercase());
    if !faults.is_empty() {
        let message = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        kind.invalid_text(e, message);
    }
}

fn variable_name(name: &At, e: &mut Errors) {
    if name.text().trim().is_empty() {
        name.required(e, "name is not specified");
    } else if !names::c_identifier(name.text()).is_empty() {
        name.invalid_text(e, "must be a valid CEL identifier");
    }
}

/// Audit annotations are named after their policy.
fn audit_annotation(annotation: &At, e: &mut Errors) {
    let (key, value) = (annotation.get("key"), annotation.get("valueExpression"));
    let full = format!("{}/{}", annotation.whole().get("metadata").text_of("name"), key.text());
    key.form_as(e, &full, names::qualified);
    if value.text().trim().is_empty() {
        value.required(e, "valueExpression is not specified");
    } else if value.text().trim().len() > 5 * 1024 {
        value.required(e, "must not exceed 5120 bytes in length");
    }
}
