//! Validation of admission policies, webhooks and APIServices beyond the rule tables.

use super::{config_map, prelude::*};

/// Rejects overlapping resources and subresources.
pub fn validate_rule_resources(list: &FieldCursor, e: &mut ErrorList) {
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
    if list.len() > 1 && list.contains_text("*/*") {
        list.invalid(e, "if '*/*' is present, must not specify other resources");
    }
    if without_sub && list.contains_text("*") {
        list.invalid(e, "if '*' is present, must not specify other resources without subresources");
    }
}

pub fn validate_group_and_version(version: &FieldCursor, e: &mut ErrorList) {
    let (group, name) = version.text().split_once('/').unwrap_or(("", version.text()));
    if name.contains('/') {
        return version.invalid_text(e, format!("unexpected GroupVersion string: {}", version.text()));
    }
    let faults = names::check_dns_subdomain(group);
    if !group.is_empty() && !faults.is_empty() {
        version.invalid_as(e, group, faults.join(","));
    }
    let faults = names::check_1035_label(name);
    if name.is_empty() {
        version.invalid_text(e, "version must be specified");
    } else if !faults.is_empty() {
        version.invalid_as(e, name, faults.join(","));
    }
}

/// Validates a kind as a label apart from its case.
pub fn validate_mixed_case_kind(kind: &FieldCursor, e: &mut ErrorList) {
    let faults = names::check_1035_label(&kind.text().to_lowercase());
    if !faults.is_empty() {
        let message = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        kind.invalid_text(e, message);
    }
}

pub fn validate_variable_name(name: &FieldCursor, e: &mut ErrorList) {
    if name.text().trim().is_empty() {
        name.required(e, "name is not specified");
    } else if !names::check_c_identifier(name.text()).is_empty() || names::is_cel_reserved(name.text()) {
        name.invalid_text(e, "must be a valid CEL identifier");
    }
}

/// Validates audit annotation keys, which are prefixed with the policy name.
pub fn validate_audit_annotation(annotation: &FieldCursor, e: &mut ErrorList) {
    let (key, value) = (annotation.get("key"), annotation.get("valueExpression"));
    let full = format!("{}/{}", annotation.root().get("metadata").text_at("name"), key.text());
    key.check_format_as(e, &full, names::check_qualified_name);
    if value.text().trim().is_empty() {
        value.required(e, "valueExpression is not specified");
    } else if value.text().trim().len() > 5 * 1024 {
        value.required(e, "must not exceed 5120 bytes in length");
    }
}

/// Requires a domain name of at least three segments.
pub fn validate_webhook_name(at: &FieldCursor, e: &mut ErrorList) {
    let faults = names::check_dns_subdomain(at.text());
    if !faults.is_empty() {
        at.invalid_text(e, faults.join(","));
    } else if at.text().split('.').count() < 3 {
        at.invalid_text(e, "should be a domain with at least three segments separated by dots");
    }
}

pub fn validate_no_subresource(resource: &FieldCursor, e: &mut ErrorList) {
    if resource.text().contains('/') {
        resource.invalid_text(e, "must not specify subresources");
    }
}

/// Requires webhooks without side effects on dry runs, unless a stored webhook has others.
pub fn validate_side_effects(effects: &FieldCursor, e: &mut ErrorList) {
    const NONE: &[&str] = &["None", "NoneOnDryRun"];
    let old = effects.root().old_cursor();
    let any = old.get("webhooks").items().any(|hook| !NONE.contains(&hook.text_at("sideEffects")));
    effects.require_one_of(e, if any { &["None", "NoneOnDryRun", "Some", "Unknown"] } else { NONE });
}

/// Validates the list of supported review versions.
pub fn validate_review_versions(at: &FieldCursor, e: &mut ErrorList) {
    let mut seen = Vec::new();
    for version in at.items() {
        if seen.contains(&version.text()) {
            version.invalid_text(e, "duplicate version");
            continue;
        }
        seen.push(version.text());
        version.check_format(e, names::check_1035_label);
    }
    if !seen.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        at.invalid(e, "must include at least one of v1, v1beta1");
    }
}

/// Validates the path segments of a service reference.
pub fn validate_url_path(path: &FieldCursor, e: &mut ErrorList) {
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return path.invalid_text(e, "segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        path.invalid_text(e, "must start with a '/'");
    }
    let mut rest = text.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            path.invalid_text(e, format!("segment[{index}] may not be empty"));
            continue;
        }
        for fault in names::check_dns_subdomain(step) {
            path.invalid_text(e, format!("segment[{index}]: {fault}"));
        }
    }
}

/// Validates a webhook URL: https, without user, query or fragment.
pub fn validate_https_url(at: &FieldCursor, e: &mut ErrorList) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = at.text().split_once("://").unwrap_or(("", at.text()));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        at.invalid_as(e, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        at.invalid_as(e, host, format!("host must be specified{FORM}"));
    }
    for (part, message) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            at.invalid_as(e, part, message);
        }
    }
}

/// Requires the name `<version>.<group>`.
pub fn validate_service_name(new: &FieldCursor, e: &mut ErrorList) {
    let (spec, meta) = (new.get("spec"), new.get("metadata"));
    let name = meta.get("name");
    let wanted = format!("{}.{}", spec.text_at("version"), spec.text_at("group"));
    if !name.is_empty() && names::check_path_segment(name.text()).is_empty() && name.text() != wanted {
        name.invalid_text(e, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
}

pub fn validate_no_bundle(bundle: &FieldCursor, e: &mut ErrorList) {
    if !bundle.is_empty() {
        let bytes = config_map::decoded_length(bundle.text());
        bundle.invalid_as(e, format!("{bytes} bytes"), "local APIServices may not have a caBundle");
    }
}
