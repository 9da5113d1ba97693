//! Validation of webhooks: what they are asked, and where they are.

use super::{
    Errors,
    admission::{FAILURE, MATCH, conditions, operations},
    at::At,
    names, selector,
};

const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const VERSIONS: &str = "v1, v1beta1";

/// The faults of webhooks, validating or mutating.
pub(super) fn webhooks(new: &At, old: Option<&At>, e: &mut Errors) {
    let mut seen = Vec::new();
    for hook in new.get("webhooks").items() {
        webhook(&hook, old, e);
        let versions = hook.get("admissionReviewVersions");
        if versions.is_empty() {
            versions.required(e, format!("must specify one of {VERSIONS}"));
        } else {
            review_versions(&versions, e);
        }
        let name = hook.get("name");
        if !name.is_empty() && seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
    }
}

fn webhook(at: &At, old: Option<&At>, e: &mut Errors) {
    qualified_name(&at.get("name"), e);
    at.get("rules").items().for_each(|rule| operations(&rule, e));
    at.get("failurePolicy").one_of(e, FAILURE);
    at.get("matchPolicy").one_of(e, MATCH);
    let effects = at.get("sideEffects");
    if !effects.exists() {
        effects.required(e, format!("must specify one of {}", SIDE_EFFECTS.join(", ")));
    }
    let any = old.is_some_and(|old| {
        old.get("webhooks").items().any(|hook| !SIDE_EFFECTS.contains(&hook.get("sideEffects").text()))
    });
    effects.one_of(e, if any { &["None", "NoneOnDryRun", "Some", "Unknown"] } else { SIDE_EFFECTS });
    let timeout = at.get("timeoutSeconds");
    if timeout.exists() && !(1..=30).contains(&timeout.int()) {
        timeout.invalid(e, "the timeout value must be between 1 and 30 seconds");
    }
    selector::selector(&at.get("namespaceSelector"), e);
    selector::selector(&at.get("objectSelector"), e);
    at.get("reinvocationPolicy").one_of(e, &["IfNeeded", "Never"]);
    client(&at.get("clientConfig"), e);
    conditions(&at.get("matchConditions"), e);
}

/// A name in a domain of at least three parts.
fn qualified_name(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    let faults = names::subdomain(at.text());
    if !faults.is_empty() {
        at.invalid_text(e, faults.join(","));
    } else if at.text().split('.').count() < 3 {
        at.invalid_text(e, "should be a domain with at least three segments separated by dots");
    }
}

/// The faults of a list of versions of reviews that a webhook understands.
pub(super) fn review_versions(at: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for version in at.items() {
        if seen.contains(&version.text()) {
            version.invalid_text(e, "duplicate version");
            continue;
        }
        seen.push(version.text());
        version.form(e, names::label_1035);
    }
    if !seen.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        at.invalid(e, format!("must include at least one of {VERSIONS}"));
    }
}

/// The faults of where a webhook is.
pub(super) fn client(at: &At, e: &mut Errors) {
    let (url, service) = (at.get("url"), at.get("service"));
    if url.exists() == service.exists() {
        return at.required(e, "exactly one of url or service is required");
    }
    if url.exists() {
        return self::url(&url, e);
    }
    service.get("name").require(e);
    service.get("namespace").require(e);
    let port = service.get("port");
    if !(1..=65535).contains(&port.int()) {
        port.invalid_int(e, format!("port is not valid: {}", names::range(1, 65535)));
    }
    let path = service.get("path");
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
        for fault in names::subdomain(step) {
            path.invalid_text(e, format!("segment[{index}]: {fault}"));
        }
    }
}

fn url(at: &At, e: &mut Errors) {
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
