//! Validation of admission policies and of which requests they mean. Expressions are compiled where they are run.

use super::{Errors, at::At, names, selector};
use crate::Value;

pub(super) const FAILURE: &[&str] = &["Fail", "Ignore"];
pub(super) const MATCH: &[&str] = &["Equivalent", "Exact"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];

/// The faults of a rule about which requests are meant.
pub(super) fn operations(at: &At, e: &mut Errors) {
    let list = at.get("operations");
    list.require(e);
    let wild = |list: &At| list.len() > 1 && list.texts().any(|text| text == "*");
    if wild(&list) {
        list.invalid(e, "if '*' is present, must not specify other operations");
    }
    list.items().for_each(|operation| operation.one_of(e, OPERATIONS));
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = at.get(field);
        list.require(e);
        if wild(&list) {
            list.invalid(e, format!("if '*' is present, must not specify other {what}"));
        }
        if field == "apiVersions" {
            list.items().for_each(|version| {
                version.require(e);
            });
        }
    }
    resources(&at.get("resources"), e);
    at.get("scope").one_of(e, SCOPES);
}

fn resources(list: &At, e: &mut Errors) {
    list.require(e);
    let (mut wild_subs, mut wild_resources): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut without_sub = false;
    for resource in list.items() {
        let text = resource.text();
        resource.require(e);
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
    if list.len() > 1 && list.texts().any(|text| text == "*/*") {
        list.invalid(e, "if '*/*' is present, must not specify other resources");
    }
    if without_sub && list.texts().any(|text| text == "*") {
        list.invalid(e, "if '*' is present, must not specify other resources without subresources");
    }
}

/// The faults of conditions that narrow which requests are meant.
pub(super) fn conditions(list: &At, e: &mut Errors) {
    if list.len() > 64 {
        list.too_many(e, 64);
    }
    let mut seen = Vec::new();
    for condition in list.items() {
        let (name, expression) = (condition.get("name"), condition.get("expression"));
        if expression.text().trim().is_empty() {
            expression.required(e, "");
        }
        name.required_form(e, names::qualified);
        if !name.is_empty() && seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
    }
}

fn match_resources(at: &At, e: &mut Errors) {
    let policy = at.get("matchPolicy");
    if !policy.exists() {
        policy.required(e, "");
    }
    policy.one_of(e, MATCH);
    for field in ["namespaceSelector", "objectSelector"] {
        if !at.get(field).exists() {
            at.get(field).required(e, "");
        }
        selector::selector(&at.get(field), e);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in at.get(field).items() {
            let mut seen = Vec::new();
            for name in rule.get("resourceNames").items() {
                name.form(e, names::path_segment);
                if seen.contains(&name.text()) {
                    name.duplicate(e, name.text());
                }
                seen.push(name.text());
            }
            operations(&rule, e);
        }
    }
}

fn param_kind(at: &At, e: &mut Errors) {
    let (version, kind) = (at.get("apiVersion"), at.get("kind"));
    if version.require(e) {
        let (group, name) = version.text().split_once('/').unwrap_or(("", version.text()));
        if name.contains('/') {
            version.invalid_text(e, format!("unexpected GroupVersion string: {}", version.text()));
        } else {
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
    }
    if kind.require(e) {
        let faults = names::label_1035(&kind.text().to_lowercase());
        if !faults.is_empty() {
            let message = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
            kind.invalid_text(e, message);
        }
    }
}

fn policy_head(spec: &At, e: &mut Errors) {
    let failure = spec.get("failurePolicy");
    if !failure.exists() {
        failure.required(e, "");
    }
    failure.one_of(e, FAILURE);
    if spec.get("paramKind").exists() {
        param_kind(&spec.get("paramKind"), e);
    }
    let constraints = spec.get("matchConstraints");
    if constraints.exists() {
        match_resources(&constraints, e);
        constraints.get("resourceRules").require(e);
    } else {
        constraints.required(e, "");
    }
    conditions(&spec.get("matchConditions"), e);
    for variable in spec.get("variables").items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        if name.text().trim().is_empty() {
            name.required(e, "name is not specified");
        } else if !names::c_identifier(name.text()).is_empty() {
            name.invalid_text(e, "must be a valid CEL identifier");
        }
        if expression.text().trim().is_empty() {
            expression.required(e, "expression is not specified");
        }
    }
}

/// The faults of a validating policy.
pub(super) fn policy(new: &At, _: Option<&At>, e: &mut Errors) {
    const NEEDED: &str = "validations or auditAnnotations must contain at least one item";
    let spec = new.get("spec");
    policy_head(&spec, e);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        validations.required(e, NEEDED);
        return annotations.required(e, NEEDED);
    }
    validations.items().for_each(|validation| self::validation(&validation, e));
    if annotations.len() > 20 {
        annotations.invalid(e, "must not have more than 20 auditAnnotations");
    }
    let mut seen = Vec::new();
    for annotation in annotations.items() {
        let (key, value) = (annotation.get("key"), annotation.get("valueExpression"));
        let full = format!("{}/{}", new.get("metadata").get("name").text(), key.text());
        names::qualified(&full).into_iter().for_each(|fault| key.invalid_text(e, fault));
        if value.text().trim().is_empty() {
            value.required(e, "valueExpression is not specified");
        } else if value.text().trim().len() > 5 * 1024 {
            value.required(e, "must not exceed 5120 bytes in length");
        }
        if seen.contains(&key.text()) {
            key.duplicate(e, key.text());
        }
        seen.push(key.text());
    }
}

fn validation(at: &At, e: &mut Errors) {
    let (expression, message, computed) = (at.get("expression"), at.get("message"), at.get("messageExpression"));
    if expression.text().trim().is_empty() {
        expression.required(e, "expression is not specified");
    }
    if !computed.is_empty() && computed.text().trim().is_empty() {
        computed.invalid_text(e, "must be non-empty if specified");
    }
    if !message.is_empty() && message.text().trim().is_empty() {
        message.invalid_text(e, "must be non-empty if specified");
    } else if message.text().trim().contains(['\n', '\r']) {
        message.invalid_text(e, "must not contain line breaks");
    }
    at.get("reason").one_of(e, &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
}

/// The faults of a mutating policy.
pub(super) fn mutating_policy(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    policy_head(&spec, e);
    let mutations = spec.get("mutations");
    if mutations.is_empty() {
        mutations.required(e, "mutations must contain at least one item");
    }
    for mutation in mutations.items() {
        let kind = mutation.get("patchType");
        kind.required_one_of(e, &["ApplyConfiguration", "JSONPatch"]);
        for (name, field) in [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")] {
            let part = mutation.get(field);
            if kind.text() == name && !part.exists() {
                part.required(e, format!("must be specified when patchType is {name}"));
            } else if kind.text() == name && part.get("expression").text().trim().is_empty() {
                part.get("expression").required(e, "expression is not specified");
            }
        }
    }
    spec.get("reinvocationPolicy").required_one_of(e, &["IfNeeded", "Never"]);
}

/// The faults of a binding of a mutating policy.
pub(super) fn mutating_binding(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    spec.get("policyName").required_form(e, names::subdomain);
    if spec.get("paramRef").exists() {
        param_ref(&spec.get("paramRef"), e);
    }
    if spec.get("matchResources").exists() {
        match_resources(&spec.get("matchResources"), e);
    }
}

/// The faults of a binding of a validating policy.
pub(super) fn binding(new: &At, old: Option<&At>, e: &mut Errors) {
    mutating_binding(new, old, e);
    let spec = new.get("spec");
    let actions = spec.get("validationActions");
    let mut seen = Vec::new();
    for action in actions.items() {
        action.one_of(e, &["Audit", "Deny", "Warn"]);
        if seen.contains(&action.text()) {
            action.duplicate(e, action.text());
        }
        seen.push(action.text());
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        let message = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
            response and headers serves no purpose)";
        actions.invalid(e, message);
    }
    if seen.is_empty() {
        actions.required(e, "at least one validation action is required");
    }
}

fn param_ref(at: &At, e: &mut Errors) {
    let (name, labels, missing) = (at.get("name"), at.get("selector"), at.get("parameterNotFoundAction"));
    if !name.is_empty() {
        name.form(e, names::path_segment);
        if labels.exists() {
            name.forbidden(e, "name and selector are mutually exclusive");
        }
    }
    if labels.exists() {
        selector::selector(&labels, e);
        if !name.is_empty() {
            labels.forbidden(e, "name and selector are mutually exclusive");
        }
    }
    if name.is_empty() && !labels.exists() {
        at.required(e, "one of name or selector must be specified");
    }
    if missing.value == &Value::Null {
        missing.required(e, "");
    }
    missing.one_of(e, &["Allow", "Deny"]);
}
