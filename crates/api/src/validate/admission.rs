//! Policies of admission, and which requests they mean, as far as the tables cannot say what is right.

use super::{Errors, at::At, names, rules::Functions};

pub(super) const FUNCTIONS: Functions = functions! {
    wildcard_operation wildcard_group wildcard_version rule_resources mutating_operations condition_names
    some_expression expression group_and_version mixed_case_kind variable_name not_blank one_line audit_annotation
    deny_or_warn
};

/// `*` stands alone.
pub(super) fn wildcard(list: &At, what: &str, e: &mut Errors) {
    if list.len() > 1 && list.has("*") {
        list.invalid(e, format!("if '*' is present, must not specify other {what}"));
    }
}

fn wildcard_operation(list: &At, e: &mut Errors) {
    wildcard(list, "operations", e);
}

fn wildcard_group(list: &At, e: &mut Errors) {
    wildcard(list, "API groups", e);
}

fn wildcard_version(list: &At, e: &mut Errors) {
    wildcard(list, "API versions", e);
}

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

/// Nothing is mutated on deletion. Upstream tells it without the indexes.
fn mutating_operations(rules: &At, e: &mut Errors) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
    for rule in rules.items() {
        for operation in rule.get("operations").texts().filter(|operation| !OPERATIONS.contains(operation)) {
            rules.get("operations").unsupported_as(e, operation, OPERATIONS);
        }
    }
}

fn condition_names(list: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for condition in list.items() {
        let name = condition.get("name");
        if !name.is_empty() && seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
    }
}

fn some_expression(at: &At, e: &mut Errors) {
    if at.text().trim().is_empty() {
        at.required(e, "");
    }
}

fn expression(at: &At, e: &mut Errors) {
    if at.text().trim().is_empty() {
        at.required(e, "expression is not specified");
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

pub(super) fn not_blank(at: &At, e: &mut Errors) {
    if !at.is_empty() && at.text().trim().is_empty() {
        at.invalid_text(e, "must be non-empty if specified");
    }
}

pub(super) fn one_line(at: &At, e: &mut Errors) {
    if at.text().trim().contains(['\n', '\r']) {
        at.invalid_text(e, "must not contain line breaks");
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

fn deny_or_warn(actions: &At, e: &mut Errors) {
    if actions.has("Deny") && actions.has("Warn") {
        let message = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
            response and headers serves no purpose)";
        actions.invalid(e, message);
    }
}
